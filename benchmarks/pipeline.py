"""A scoring job against the engine alone, on the same cores, and what its processes hold in memory meanwhile.

    python -m benchmarks.pipeline --rows 200000 --agents 2

Processor time tells the same as rows a second where all cores are busy, and is less disturbed by what else a machine does. That of the
job counts from when its agents are ready.

The rows are the bundled tickets, cut and varied so that no two are alike. The engine's rate is that of `Agent.predict_batch` in a process
of its own with all cores, taken before and after the job, since machines drift.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.harness import cpu_seconds, descendants, own_ray, positive

QUESTIONS: dict[str | int, Any] = {"leaving": {"type": "noul", "instructions": "The customer wants to cancel or switch to a competitor"}}
SAMPLE_S = 2.0
STATES = 4000
"""Rows that the engine alone answers, in each of its turns."""


def varied(count: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Rows made of the bundled tickets: 6 to 16 words of one each, and a number of its own."""
    source = resources.files("configs") / "datasets" / "tickets.jsonl"
    texts = [json.loads(line)["text"].split() for line in source.read_text(encoding="utf-8").splitlines()]
    rng = random.Random(seed)
    for number in range(count):
        words = rng.choice(texts)
        start = rng.randrange(max(1, len(words) - 12))
        yield {"id": number, "text": f"{' '.join(words[start : start + rng.randrange(6, 16)])} {number}"}


def engine_alone(model: str, threads: int) -> tuple[float, float]:
    """Rows a second, and milliseconds of processor time a row, of the engine alone, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, model, threads))
    process.start()
    measured: tuple[float, float] = ours.recv()
    process.join()
    print(f"engine alone   {measured[0]:8.1f} rows/s, {measured[1]:6.2f} ms of processor a row", flush=True)
    return measured


def _answer(pipe: Any, model: str, threads: int) -> None:
    import torch

    import laya

    torch.set_num_threads(threads)
    agent = laya.load(model)
    states = [row["text"] for row in varied(STATES, seed=11)]
    agent.predict_batch(states[:256], QUESTIONS)
    started, cpu = time.monotonic(), time.process_time()
    agent.predict_batch(states, QUESTIONS)
    pipe.send((len(states) / (time.monotonic() - started), 1e3 * (time.process_time() - cpu) / len(states)))


class Watch:
    """What the processes of a job hold in memory and take of the processor, sampled while it runs."""

    def __init__(self) -> None:
        self.samples: dict[str, list[int]] = {"driver": [], "workers": [], "agents": [], "ray": []}
        self._cpu: dict[int, tuple[str, float]] = {}
        self._started: dict[int, float] = {}
        self._stop = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Samples until the block ends."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._sample()
            self._stop.set()
            thread.join()

    def begin(self) -> None:
        """Processor time counts from now on: what starting took is left out."""
        self._sample()
        self._started = {pid: cpu for pid, (_, cpu) in self._cpu.items()}

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each kind of process, in seconds."""
        taken: dict[str, float] = {}
        for pid, (kind, cpu) in self._cpu.items():
            taken[kind] = taken.get(kind, 0.0) + cpu - self._started.get(pid, 0.0)
        return taken

    def memory(self) -> Iterator[str]:
        """For each kind of process: the median of each tenth of the time, in MB."""
        for name, samples in self.samples.items():
            tenths = [samples[len(samples) * index // 10 : len(samples) * (index + 1) // 10] for index in range(10)]
            yield f"{name:8}" + " ".join(f"{median(tenth) / 1e6:6.0f}" for tenth in tenths if tenth)

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        held = dict.fromkeys(self.samples, 0)
        for pid in [os.getpid(), *descendants(os.getpid())]:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if not command:  # it is ending
                    continue
                kind = "driver" if pid == os.getpid() else _kind(command)
                self._cpu[pid] = (kind, cpu_seconds(pid))
                held[kind] += _private(pid)
        for kind, value in held.items():
            self.samples[kind].append(value)


def _kind(command: bytes) -> str:
    if not command.startswith(b"ray::"):
        return "ray"
    return "agents" if b"AgentActor" in command else "workers"


def _private(pid: int) -> int:
    """Resident bytes of a process that it does not share."""
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=positive, default=20_000, help="rows of the job (default %(default)s)")
    parser.add_argument("--agents", type=positive, default=2, help="agents of the job (default %(default)s)")
    parser.add_argument("--model", default="mini", help="checkpoint (default %(default)s)")
    options = parser.parse_args()
    threads = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in varied(options.rows))
        before = engine_alone(options.model, threads)
        rate, cpu_ms, watch = _job(options, str(source), f"{folder}/out")
        after = engine_alone(options.model, threads)
        print(f"the job does {rate / mean((before[0], after[0])):.1%} of the rows of the engine alone")
        print(f"the engine alone takes {mean((before[1], after[1])) / cpu_ms:.1%} of the processor time of the job")
        print("memory that is not shared, in MB, by tenths of the time:")
        print("\n".join(watch.memory()))


def _job(options: argparse.Namespace, source: str, output: str) -> tuple[float, float, Watch]:
    import pipelines

    job_module: Any = importlib.import_module("pipelines.score")
    watch = Watch()
    config = pipelines.ScoreConfig(
        inputs=(source,), questions=dict(QUESTIONS), output=output, model=options.model, agents=options.agents, report=False
    )
    load = job_module.load_models

    def loaded(*arguments: Any) -> None:
        load(*arguments)
        watch.begin()

    job_module.load_models = loaded
    with own_ray(4 * options.agents, 200_000_000), watch.watched():
        summary = pipelines.score(config)
    rows, taken = summary.tally.rows, watch.cpu_s()
    rate, cpu_ms = rows / summary.scoring_seconds, 1e3 * sum(taken.values()) / rows
    print(f"job            {rate:8.1f} rows/s, {cpu_ms:6.2f} ms of processor a row; {rows:,} rows, {summary.tally.errors.total()} errors")
    print("               " + ", ".join(f"{kind} {1e3 * seconds / rows:.2f} ms" for kind, seconds in taken.items()))
    return rate, cpu_ms, watch


if __name__ == "__main__":
    main()
