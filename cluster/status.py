"""What a router actor says of its cluster."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from cluster.guests import ReplicaState
from cluster.hosting import RouterConfig
from cluster.house import House


def router_status(config: RouterConfig, house: House, restarted: bool) -> dict[str, Any]:
    """What is where and what it does, ready for JSON.

    Returns:
        ``router``, ``pid``, ``slots`` (asked for), ``slots_open`` (on nodes that live), ``capacity_bytes``, ``resident_bytes``, ``loads``,
        ``evictions`` and ``calls`` (since its process began), ``restarted`` (whether an earlier process of it ended), ``waiting``
        (requests by checkpoint), ``pinned``, ``wanted`` (replicas that are kept, by checkpoint), ``nodes``, and ``replicas`` with
        their ``ready_s`` (seconds), ``bytes``, ``node``, ``pid``, ``tokens_per_s`` and what the agent last said in ``report``, at
        ``seen_at`` (seconds of a clock that only grows).
    """
    now = time.monotonic()
    replicas = []
    for replica in house.residency.replicas.values():
        agent = house.fleet.agents.get(replica.id)
        report = agent.report if agent is not None else None
        replicas.append(
            {
                "id": replica.id,
                "checkpoint": replica.checkpoint,
                "state": replica.state.value,
                "ready_s": None if replica.state is ReplicaState.LOADING else now - replica.ready_at,
                "bytes": replica.size_bytes,
                "node": report.node if report is not None else None,
                "pid": report.pid if report is not None else None,
                "seen_at": agent.seen_at if agent is not None else None,
                "tokens_per_s": agent.tokens_per_s if agent is not None else 0.0,
                "report": dataclasses.asdict(report) if report is not None else None,
            }
        )
    guests = house.residency.book.guests.values()
    return {
        "router": config.name,
        "pid": os.getpid(),
        "slots": config.slots,
        "slots_open": house.residency.slots,
        "capacity_bytes": config.capacity_bytes,
        "resident_bytes": house.residency.book.held_bytes,
        "loads": house.done.get("loads", 0),
        "evictions": house.done.get("evictions", 0),
        "calls": house.done.get("calls", 0),
        "restarted": restarted,
        "waiting": {guest.name: len(guest.waiters) for guest in guests if guest.waiters},
        "pinned": sorted(guest.name for guest in guests if guest.pinned),
        "wanted": {guest.name: guest.least for guest in guests if guest.least},
        "nodes": [{"id": node.id, "address": node.address, "state": node.state} for node in house.slots.nodes.values()],
        "replicas": replicas,
    }
