"""Agents of a job and its workers find room on the Ray that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from pipelines import shares
from pipelines.shares import WORKER_CPUS, AgentShare, agent_share, embedded_cpus, threads_of_each

JOB = """
import sys, ray, pipelines
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, logging_level="error", log_to_driver=False)
config = pipelines.ScoreConfig(inputs=(sys.argv[1],), questions="tickets", state=("text",), output=sys.argv[2], agents=2, report=False)
print(pipelines.score(config).tally.rows)
"""


def test_a_job_on_a_ray_with_a_single_cpu_does_not_wait_for_itself(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"refund of order {index}"}) + "\n" for index in range(4)))
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(rows), str(tmp_path / "out")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["4"], done.stderr


@pytest.mark.parametrize(
    ("cpus", "slots", "threads"),
    [
        *[([16.0], 1, 16), ([16.0], 2, 8), ([16.0], 3, 5), ([2.0], 2, 1), ([2.0], 3, 0), ([], 1, 0), ([0.0], 1, 0)],
        *[([4.0, 16.0], 2, 8), ([4.0, 16.0], 5, 4), ([8.0] * 4, 4, 8), ([8.0] * 4, 5, 4)],
    ],
)
def test_threads_of_each(cpus, slots, threads):
    assert threads_of_each(cpus, slots) == threads


def nodes_of(monkeypatch, *resources, dead=(), taken=None):
    alive = {f"node {place}": of for place, of in enumerate(resources)}
    nodes = [{"NodeID": name, "Alive": True, "Resources": of} for name, of in alive.items()]
    monkeypatch.setattr(ray, "nodes", lambda: nodes + [{"NodeID": "gone", "Alive": False, "Resources": of} for of in dead])
    free = {name: {**of, "CPU": of.get("CPU", 0.0) - (taken or {}).get(name, 0.0)} for name, of in alive.items()}
    monkeypatch.setattr(shares, "available_resources_per_node", lambda: free)


@given(cpus=st.lists(st.integers(1, 64), min_size=1, max_size=5), slots=st.integers(1, 16))
def test_agents_leave_room_for_a_worker_each(cpus, slots):
    with pytest.MonkeyPatch.context() as monkeypatch:
        nodes_of(monkeypatch, *({"CPU": float(count)} for count in cpus))
        share = agent_share(slots)
        room = [float(count) for count in cpus]
        placed = 0
        for index in range(len(room)):
            while placed < slots and room[index] >= share.num_cpus:
                room[index] -= share.num_cpus
                placed += 1
        assert placed == slots
        assert any(left >= WORKER_CPUS for left in room)
        assert share.threads >= 1


def test_what_the_user_says_counts(monkeypatch):
    nodes_of(monkeypatch, {"CPU": 64.0, "GPU": 4.0})
    assert agent_share(8, agent_cpus=2) == AgentShare(threads=2, num_cpus=1.75, num_gpus=0.5)
    assert embedded_cpus(3, 3, agent_cpus=2) == 6


def test_only_nodes_with_gpus_count_where_there_are_any(monkeypatch):
    nodes_of(monkeypatch, {"CPU": 64.0}, {"CPU": 8.0, "GPU": 2.0}, dead=[{"CPU": 32.0, "GPU": 8.0}])
    assert agent_share(2) == AgentShare(threads=4, num_cpus=3.75, num_gpus=1.0)


def test_what_others_hold_is_left_to_them(monkeypatch):
    nodes_of(monkeypatch, {"CPU": 8.0}, {"CPU": 8.0}, taken={"node 0": 8.0, "node 1": 4.0})
    assert agent_share(1) == AgentShare(threads=4, num_cpus=3.75, num_gpus=0.0)
    assert agent_share(2) == AgentShare(threads=2, num_cpus=1.75, num_gpus=0.0)
    nodes_of(monkeypatch, {"CPU": 8.0}, taken={"node 0": 7.25})
    assert agent_share(1) == AgentShare(threads=1, num_cpus=0.5, num_gpus=0.0)


def test_where_nothing_is_free_an_agent_waits_for_one_cpu(monkeypatch):
    nodes_of(monkeypatch, {"CPU": 8.0}, taken={"node 0": 8.0})
    assert agent_share(1) == AgentShare(threads=1, num_cpus=0.75, num_gpus=0.0)


def test_cpus_that_an_autoscaler_may_bring_are_asked_for(monkeypatch):
    nodes_of(monkeypatch, {"memory": 1e9})
    assert agent_share(4) == AgentShare(threads=1, num_cpus=0.75, num_gpus=0.0)


@pytest.mark.parametrize(("cores", "slots", "agents", "cpus"), [(16, 2, 2, 16), (16, 2, 1, 32), (2, 4, 4, 4), (None, 1, 1, 1)])
def test_an_embedded_ray_has_room_for_all(monkeypatch, cores, slots, agents, cpus):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert embedded_cpus(slots, agents) == cpus
    nodes_of(monkeypatch, {"CPU": float(cpus)})
    assert agent_share(slots).threads == max(1, (cores or 1) // agents)
