"""What each agent of a job gets of the machine or cluster it runs on."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import ray
from ray._private.state import available_resources_per_node  # the public one adds the nodes up

WORKER_CPUS = 0.25
"""Share of a CPU that a worker counts for: it reads, waits for agents and writes."""


@dataclass(frozen=True, slots=True)
class AgentShare:
    """What an agent gets.

    Attributes:
        threads: Threads it computes with.
        num_cpus: CPUs that Ray keeps for it.
        num_gpus: Likewise.
    """

    threads: int
    num_cpus: float
    num_gpus: float


def embedded_cpus(slots: int, agents: int, agent_cpus: float | None = None) -> int:
    """Logical CPUs of an embedded Ray: as many as let each of its agents use its part of the cores.

    Args:
        slots: How many agents there may be.
        agents: How many of them are busy at a time.
        agent_cpus: CPUs of each; None shares the cores.
    """
    return slots * math.ceil(agent_cpus or max(1, (os.cpu_count() or 1) // agents))


def agent_share(slots: int, agent_cpus: float | None = None) -> AgentShare:
    """What each agent gets of the Ray that is there, so that all of them and the workers find room.

    Args:
        slots: How many agents there may be.
        agent_cpus: CPUs of each, and of the worker that feeds it; None shares what is free on the nodes now.
    """
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    gpus = sum(node.get("GPU", 0.0) for node in nodes.values())
    usable = [name for name, node in nodes.items() if not gpus or node.get("GPU")]
    left = available_resources_per_node()
    free = [left.get(name, nodes[name]).get("CPU", 0.0) for name in usable]  # of a new node nothing is told yet
    # Where nothing is free, agents wait for others to leave, or for an autoscaler's nodes.
    there = sum(free) or sum(nodes[name].get("CPU", 0.0) for name in usable)
    share = agent_cpus or threads_of_each(free, slots) or min(1.0, there / slots) or 1.0
    # Workers that found no room would wait for the agents, which wait for them.
    return AgentShare(math.ceil(share), max(share - WORKER_CPUS, share / 2), min(1.0, gpus / slots))


def threads_of_each(cpus: Sequence[float], slots: int) -> int:
    """The most whole CPUs of which every agent finds as many on one node; 0 where there are fewer CPUs than agents."""
    most = int(max(cpus, default=0.0))
    return next((each for each in range(most, 0, -1) if sum(int(count) // each for count in cpus) >= slots), 0)
