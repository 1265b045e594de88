"""The actor that decides which checkpoint sits in which slot: the front desk, behind which `cluster.house` does what has to be done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError

from cluster.commands import Drain
from cluster.hosting import RouterConfig
from cluster.house import House
from cluster.messages import Placement, RouterReply, Value
from cluster.status import router_status
from laya.names import CheckpointSource

_PAUSE_S = 0.2
"""Seconds between two tries of a router actor to reach itself."""


class RouterActor:
    """Places checkpoints and evicts them. Payloads never pass through it.

    Hooks of on_load and on_evict hear each event once and in order: those of the config here, those of a client in that client, in the
    reply to the request that the event happened for.

    What it knows it can learn again: its process may end at any time, and the next one asks the agents who they are.

    Args:
        config: What it is to do; see `RouterConfig`.
    """

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self._house = House(config)
        self._opening: asyncio.Task[None] | None = None
        self._restarted = ray.get_runtime_context().was_current_actor_reconstructed
        threading.Thread(target=_wake, args=(ray.get_runtime_context().current_actor,), daemon=True).start()

    async def wake(self) -> None:
        """Begins its work, once; whatever it is asked waits for that.

        It asks itself, since no client may be there to do it when its process was started again.
        """
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._house.open(self._restarted))
        await asyncio.shield(self._opening)

    async def join(self, sources: Mapping[str, CheckpointSource]) -> dict[str, Any]:
        """Answers a client that joins, once the actor lives.

        Args:
            sources: Checkpoints that the client knows. Names that are new are noted.

        Returns:
            The number of ``slots``, and of its ``sources`` the ``others``: names that mean another checkpoint here.
        """
        await self.wake()
        for name, source in sources.items():
            self._house.sources.setdefault(name, source)
        others = {name: str(self._house.sources[name]) for name, source in sources.items() if self._house.sources[name] != source}
        return {"slots": self._config.slots, "others": others}

    async def register(self, name: str, source: CheckpointSource) -> None:
        """Points a name at a checkpoint; replicas that are there already stay."""
        self._house.sources[name] = source

    async def place(self, checkpoint: str, source: CheckpointSource) -> RouterReply[Placement]:
        """Where a checkpoint can be asked, after loading it if it must be.

        The reply's error is a laya.CheckpointError where it cannot be built, and a NoRoomError where there is and will be no room.

        Args:
            checkpoint: Its name.
            source: What the client takes it for, in case that nobody has said so yet.
        """
        self._house.done["calls"] += 1
        self._house.sources.setdefault(checkpoint, source)
        return await self._reply_to(self._house.placed(checkpoint), checkpoint)

    async def _reply_to(self, work: Awaitable[Value], checkpoint: str) -> RouterReply[Value]:
        value, error = None, None
        try:
            await self.wake()
            value = await work
        except Exception as raised:
            error = raised
        return RouterReply(value, error, self._house.diary.take(checkpoint))

    async def touch(self, checkpoint: str) -> None:
        """Counts a checkpoint as used just now."""
        self._house.done["calls"] += 1
        self._house.residency.touch(checkpoint)

    async def scale(self, checkpoint: str, source: CheckpointSource, replicas: int) -> RouterReply[Placement]:
        """Gives a checkpoint a number of replicas that it keeps, and returns when they are ready.

        The reply's error is a NoRoomError where there are not that many slots, and a laya.CheckpointError where one of them could not
        be built: what was asked for is dropped, those that are there stay.
        """
        self._house.sources.setdefault(checkpoint, source)
        return await self._reply_to(self._scale(checkpoint, replicas), checkpoint)

    async def _scale(self, checkpoint: str, replicas: int) -> Placement:
        self._house.failures.pop(checkpoint, None)
        commands = self._house.residency.scale(checkpoint, replicas)
        events = await self._house.see_off([command.replica for command in commands if isinstance(command, Drain)], commands)
        self._house.announce(checkpoint)
        # Somebody else may ask for fewer meanwhile, or unload it: then what was asked for here never comes.
        guest = self._house.residency.book.guest(checkpoint)
        await self._house.until(lambda: len(guest.ready()) >= min(replicas, guest.least) or checkpoint in self._house.failures)
        self._house.diary.keep(checkpoint, events)
        if (error := self._house.failures.pop(checkpoint, None)) is not None:
            self._house.perform(self._house.residency.scale(checkpoint, 0))
            await self._house.tell()
            raise error
        return self._house.placement(replica.id for replica in self._house.residency.ready(checkpoint))

    async def unload(self, checkpoint: str | None) -> RouterReply[None]:
        """Drains and drops one checkpoint, or all; returns once they are gone."""
        await self.wake()
        names = list(self._house.residency.book.guests) if checkpoint is None else [checkpoint]
        leaving = [replica.id for replica in self._house.residency.replicas.values() if replica.checkpoint in names]
        commands = [command for name in names for command in self._house.residency.release(name)]
        return RouterReply(events=await self._house.see_off(leaving, commands))

    async def pin(self, checkpoint: str) -> None:
        """Keeps a checkpoint from being evicted."""
        await self.wake()
        self._house.residency.pin(checkpoint)
        self._house.announce(checkpoint)

    async def unpin(self, checkpoint: str) -> None:
        """Lets a checkpoint be evicted again."""
        await self.wake()
        self._house.perform(self._house.residency.unpin(checkpoint))
        self._house.announce(checkpoint)

    async def lost(self, replica: int) -> bool:
        """A client could not reach an agent: looks whether it lives, and returns whether it has left in good order."""
        self._house.done["calls"] += 1
        await self._house.look_at([replica])
        return self._house.has_left(replica)

    async def loaded(self) -> list[str]:
        """Names of the checkpoints that are ready somewhere, least recently used first."""
        await self.wake()
        await self._house.look_at(self._house.fleet.agents)
        return self._house.residency.ready_names()

    async def status(self) -> dict[str, Any]:
        """What is where, and what it does; see `cluster.status.router_status`."""
        await self.wake()
        return router_status(self._config, self._house, self._restarted)

    async def close(self) -> None:
        """Ends every agent at once, for a session that is over; no request is waited for."""
        await self.wake()
        self._house.close()


def _wake(actor: Any) -> None:
    while True:
        try:
            ray.get(actor.wake.remote())
        except RayActorError:  # Ray still takes it for the process that has ended
            time.sleep(_PAUSE_S)
        else:
            return
