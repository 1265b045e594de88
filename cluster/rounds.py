"""What a router actor does as time passes, whoever asks: it looks after agents and nodes."""

from __future__ import annotations

import asyncio
import itertools
import logging

from cluster.house import House

_TICK_S = 0.5
"""Seconds between two rounds: how fresh the agents' last use is known, and how soon a death or a drain is noticed."""
_LOOKS = 16
"""Agents looked at in one round; with more of them, each is looked at less often, so that a large fleet costs no more than a small one."""

log = logging.getLogger("laya.cluster")


class Rounds:
    """The rounds through a house.

    Args:
        house: Whose agents and slots are looked after.
    """

    def __init__(self, house: House) -> None:
        self._house = house

    async def go(self) -> None:
        """Keeps the last use of every agent known, notices deaths and nodes that go, and lets time pass for the residency."""
        for tick in itertools.count():
            try:
                await self.look_round(tick)
            except Exception:
                log.exception("a look round failed; the next one follows")
            await asyncio.sleep(_TICK_S)

    async def look_round(self, tick: int) -> None:
        """One round.

        Args:
            tick: Its number: of a large fleet each round looks at some.
        """
        house = self._house
        agents = sorted(house.fleet.agents)
        turns = max(1, -(-len(agents) // _LOOKS))
        await house.looks.at(agents[tick % turns :: turns], within_s=_TICK_S)
        taken = [agent.report.node for agent in house.fleet.agents.values() if agent.report is not None]
        slots = await asyncio.to_thread(house.slots.look, taken)
        if slots != house.residency.slots:
            house.perform(house.residency.resize(slots))
        for node_id in [node.id for node in house.slots.nodes.values() if node.state == "dead"]:
            house.shelf.forget(node_id)
        for replica, agent in list(house.fleet.agents.items()):
            node = house.slots.nodes.get(agent.report.node) if agent.report is not None else None
            if node is not None and node.state == "dead":
                await house.bury(replica)
            elif node is not None and node.state == "draining":
                house.perform(house.residency.evacuate(replica))
        house.perform(house.residency.advance())
        if not house.residency.replicas and house.slots.reserved:
            house.slots.release()  # the next load reserves them again; if this actor ended now, there would be no agent to do it
        guests = [guest for guest in house.residency.book.guests.values() if guest.replicas or guest.waiters]
        house.metrics.resident({guest.name: sum(one.size_bytes for one in guest.replicas.values()) for guest in guests})
        house.metrics.replicas({guest.name: len(guest.replicas) for guest in guests})
        house.metrics.waiting({guest.name: len(guest.waiters) for guest in guests})
