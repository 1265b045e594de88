"""Scoring jobs that lose their driver, a worker or an agent at any moment, and must end as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.harness import descendants
from pipelines.sinks import committed_parts
from tests.chaos.support import kill
from tests.patience import until

TOLERANCE = 1e-3
PARTS = 15
ROWS_PER_PART = 40
VICTIMS = {"worker": b"ray::Map(score_fragment)", "agent": b"ray::AgentActor"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = random.Random(3)
    path = tmp_path_factory.mktemp("input") / "in.jsonl"
    words = ["parcel", "late", "invoice", "twice", "angry", "thanks", "account", "broken", "app", "order", "courier", "refund"]
    rows = [{"text": " ".join(rng.choices(words, k=rng.randrange(4, 30)))} for _ in range(PARTS * ROWS_PER_PART)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def command(source: Path, output: Path) -> list[str]:
    score = [sys.executable, "-m", "pipelines", "score", str(source), "-q", "tickets", "--quiet", "--no-report"]
    return [*score, "--agents", "2", "--max-len", "128", "--rows-per-fragment", str(ROWS_PER_PART), "-o", str(output)]


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """The output of a run that nothing happened to."""
    output = tmp_path_factory.mktemp("whole") / "out"
    subprocess.run(command(source, output), check=True, capture_output=True)
    return rows_of(output)


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output).to_pylist()
    return rows


def same(found: Any, expected: Any) -> bool:
    """Whether two values are equal but for what neighbours in a forward pass may move a number."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in expected)
    return bool(found == (pytest.approx(expected, abs=TOLERANCE) if isinstance(expected, float) else expected))


def title_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("turn", range(10))
def test_whatever_is_killed_the_output_is_that_of_one_run(source, whole, tmp_path, turn):
    rng = random.Random(turn)
    victim = ("driver", "worker", "agent")[turn % 3]
    output = tmp_path / "out"
    told = tmp_path / "told.txt"
    with told.open("wb") as file:
        process = subprocess.Popen(command(source, output), stdout=subprocess.DEVNULL, stderr=file)
    wanted = rng.randrange(0, PARTS - 3)
    ready = lambda: process.poll() is not None or (output.exists() and len(committed_parts(str(output), "parquet")) >= wanted)  # noqa: E731
    until(ready, f"{wanted} parts are committed", 120)
    threading.Event().wait(rng.random())  # a moment like any other
    assert process.poll() is None, "it ended before anything could be killed"
    if victim == "driver":
        os.kill(process.pid, 9)
        process.wait()
        subprocess.run(command(source, output), check=True, capture_output=True)
    else:
        kill(
            rng.choice(
                until(
                    lambda: [pid for pid in descendants(process.pid) if title_of(pid).startswith(VICTIMS[victim])], f"there is a {victim}"
                )
            )
        )
        assert process.wait(300) == 0, told.read_text()
    found = rows_of(output)
    assert len(found) == len(whole)
    assert [index for index, (row, expected) in enumerate(zip(found, whole, strict=True)) if not same(row, expected)] == []
    assert not list((output / "_laya").glob("unfinished*"))


NODES = """
from ray.cluster_utils import Cluster

cluster = Cluster()
cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
other = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
print(cluster.address, flush=True)
input()
cluster.remove_node(other, allow_graceful=False)
print("lost", flush=True)
input()
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_may_be_lost_under_a_job(source, whole, tmp_path):
    output = tmp_path / "out"
    nodes = subprocess.Popen(
        [sys.executable, "-c", NODES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    try:
        job = subprocess.Popen([*command(source, output), "--address", nodes.stdout.readline().strip()], stdout=subprocess.DEVNULL)
        ready = lambda: job.poll() is not None or (output.exists() and len(committed_parts(str(output), "parquet")) >= 2)  # noqa: E731
        until(ready, "2 parts are committed", 120)
        assert job.poll() is None, "it ended before the node could be lost"
        print(file=nodes.stdin, flush=True)
        assert nodes.stdout.readline() == "lost\n"
        assert job.wait(400) == 0
    finally:
        nodes.communicate("\n", timeout=60)
    # On a cluster the driver may not have the checkpoint's files, which run ids otherwise depend on.
    found, expected = ([{**row, "laya": {**row["laya"], "run_id": None}} for row in rows] for rows in (rows_of(output), whole))
    assert len(found) == len(expected)
    assert [index for index, pair in enumerate(zip(found, expected, strict=True)) if not same(*pair)] == []
