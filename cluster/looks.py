"""Looks at agents: one at a time for each, shared by all who want to know how it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from cluster.fleet import Fleet


class Looks:
    """Asks agents how they are.

    Args:
        fleet: The agents.
        learn: Gets a replica and whether it lives, once a look at it has ended.
    """

    def __init__(self, fleet: Fleet, learn: Callable[[int, bool], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._learn = learn
        self._under_way: dict[int, asyncio.Task[None]] = {}

    async def at(self, replicas: Iterable[int], fresh_s: float = 0.0, within_s: float | None = None) -> None:
        """Has agents looked at, but not those that have said how they are just now, and not those that are only starting.

        Args:
            replicas: Which ones.
            fresh_s: Seconds that an answer may be old.
            within_s: Seconds to wait for the answers; whoever takes longer is still looked at. None waits for all.
        """
        now = time.monotonic()
        agents = self._fleet.agents
        known = [replica for replica in list(replicas) if replica in agents and agents[replica].report is not None]
        looks = [self._look(replica) for replica in known if now - agents[replica].seen_at >= fresh_s]
        if looks:
            await asyncio.wait(looks, timeout=within_s)

    def _look(self, replica: int) -> asyncio.Task[None]:
        look = self._under_way.get(replica)
        if look is None:
            look = self._under_way[replica] = asyncio.get_running_loop().create_task(self._look_and_tell(replica))
            look.add_done_callback(lambda _: self._under_way.pop(replica, None))
        return look

    async def _look_and_tell(self, replica: int) -> None:
        await self._learn(replica, await self._fleet.look(replica))
