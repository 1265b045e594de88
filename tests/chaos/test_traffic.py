"""More checkpoints than slots under mixed traffic: they take turns, nobody waits for ever, and no answer is lost or wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import laya
from cluster import Hosting
from tests.chaos.support import AGENT, Traffic, agree, answers_of, in_flight, living_agents, stand_ins
from tests.patience import LONG, start, until

ROOT = Path(__file__).parents[2]

RESIDENCY_S = 0.5


def take_turns(router, answers, slots, turns):
    """Eight threads ask until each checkpoint was answered so often, then the bounds are looked at."""
    begun = time.monotonic()
    with Traffic(router, answers, threads=8) as traffic:
        traffic.wait_for(turns)
        for name in answers:  # whichever has just left comes back
            traffic.wait_for(1, name)
    status = router.status()
    took_s = time.monotonic() - begun
    assert status["evictions"] >= 2, "they did not take turns"
    # Each eviction is of one that has stayed its time, and each slot has one at a time.
    assert status["evictions"] <= slots * (took_s / RESIDENCY_S + 1)
    assert status["loads"] - status["evictions"] == len(status["replicas"]) <= slots
    assert status["waiting"] == {}
    assert max(traffic.longest_s.values()) < LONG
    assert in_flight(router) == 0
    until(lambda: agree(router), "the table is what lives")


def take_turns_for_a_while(make_router, folder, slots, turns):
    """The same with checkpoints that note each batch that they begin, and take their time to end it: none is cut."""
    names = ("a", "b", "c")
    hosting = {name: Hosting(agent=AGENT, options={"name": name, "log": str(folder / name), "work_s": 0.05}) for name in names}
    router = make_router(models=dict.fromkeys(names, "mini"), hosting=hosting, max_loaded=slots, min_residency_s=RESIDENCY_S)
    take_turns(router, stand_ins(*names), slots, turns)
    for name in names:
        noted = Counter(line.split()[0] for line in (folder / name).read_text(encoding="utf-8").splitlines())
        assert noted["begun"] == noted["ended"] > 0, (name, noted)


def test_three_on_two_slots(make_router, tmp_path):
    take_turns_for_a_while(make_router, tmp_path, 2, turns=2)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_three_real_ones(make_router, quiet_folder, mini, slots):
    router = make_router(models={"a": quiet_folder, "b": "mini", "c": quiet_folder}, max_loaded=slots, min_residency_s=RESIDENCY_S)
    quiet = answers_of(laya.load(str(quiet_folder), device="cpu"))
    take_turns(router, {"a": quiet, "b": answers_of(mini), "c": quiet}, slots, turns=5)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_for_longer(make_router, tmp_path, slots):
    take_turns_for_a_while(make_router, tmp_path, slots, turns=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overtake", [lambda router: router.unload("slow"), lambda router: router.scale("slow", 1)], ids=["unload", "scale"]
)
def test_a_scale_that_is_overtaken_while_it_loads_comes_back(make_router, make_gate, overtake):
    gate = make_gate()
    hosting = {"slow": Hosting(agent=AGENT, options={"load_gate": str(gate.path)})}
    router = make_router(models={"slow": "mini"}, hosting=hosting, max_loaded=2)
    first = start(lambda: router.scale("slow", 2))
    gate.wait_for(2)
    second = start(lambda: overtake(router))
    until(lambda: router.status()["wanted"] != {"slow": 2}, "it is overtaken")
    gate.open()
    first.result(LONG)
    second.result(LONG)
    until(lambda: router.status()["wanted"] or not living_agents(router), "what was asked for last holds")


@pytest.mark.slow
def test_a_minute_of_all_at_once_with_a_fault_every_few_seconds():
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.soak", "--minutes", "1"], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
