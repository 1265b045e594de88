"""The actor that decides which checkpoint sits in which slot: the front desk, behind which `cluster.house` does what has to be done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import ray

from cluster.commands import Drain
from cluster.hosting import RouterConfig
from cluster.house import House
from cluster.messages import Placement, RouterReply, Value
from cluster.rounds import Rounds
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
            self._opening = asyncio.get_running_loop().create_task(self._open())
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except Exception:
            if self._opening is opening:
                self._opening = None  # the next request tries again
            raise

    async def _open(self) -> None:
        await self._house.open(self._restarted)
        self._house.spawn(Rounds(self._house).go())

    async def join(self, sources: Mapping[str, CheckpointSource]) -> dict[str, Any]:
        """Answers a client that joins, once the actor lives.

        Args:
            sources: Checkpoints that the client knows. Names that are new are noted.

        Returns:
            The number of ``slots``, and of its ``sources`` the ``others``: names that mean another checkpoint here.
        """
        await self.wake()  # first: agents of an earlier life know better which checkpoint a name means
        for name, source in sources.items():
            self._house.sources.setdefault(name, source)
        others = {name: str(self._house.sources[name]) for name, source in sources.items() if self._house.sources[name] != source}
        return {"slots": self._config.slots, "others": others}

    async def register(self, name: str, source: CheckpointSource) -> None:
        """Points a name at a checkpoint; replicas that are there already stay."""
        await self.wake()
        self._house.register(name, source)

    async def place(self, checkpoint: str, source: CheckpointSource) -> RouterReply[Placement]:
        """Where a checkpoint can be asked, after loading it if it must be.

        The reply's error is a laya.CheckpointError where it cannot be built, and a NoRoomError where there is and will be no room.

        Args:
            checkpoint: Its name.
            source: What the client takes it for, in case that nobody has said so yet.
        """
        self._house.done["calls"] += 1
        return await self._reply_to(checkpoint, source, self._house.placed)

    async def _reply_to(self, checkpoint: str, source: CheckpointSource, work: Callable[[str], Awaitable[Value]]) -> RouterReply[Value]:
        value, error = None, None
        try:
            await self.wake()
            self._house.sources.setdefault(checkpoint, source)
            value = await work(checkpoint)
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
        be built: it keeps as many as before, and those that are there stay.
        """
        return await self._reply_to(checkpoint, source, partial(self._scale, replicas))

    async def _scale(self, replicas: int, checkpoint: str) -> Placement:
        guest, failures = self._house.residency.book.guest(checkpoint), self._house.failures
        before, earlier = guest.least, failures.get(checkpoint)
        commands = self._house.residency.scale(checkpoint, replicas)
        events = await self._house.see_off([command.replica for command in commands if isinstance(command, Drain)], commands)
        self._house.announce(checkpoint)

        def failure() -> Exception | None:
            found = failures.get(checkpoint)
            return None if found is earlier else found

        # Somebody else may ask for fewer meanwhile, or unload it: then what was asked for here never comes.
        await self._house.until(lambda: len(guest.ready()) >= min(replicas, guest.least) or failure() is not None)
        self._house.diary.keep(checkpoint, events)
        if (failed := failure()) is not None:
            self._house.perform(self._house.residency.scale(checkpoint, min(before, replicas)))
            self._house.announce(checkpoint)
            await self._house.tell()
            raise failed
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
        await self._house.looks.at([replica])
        await self._house.looks.at([replica])  # a look that was under way may have found it alive, just before
        return self._house.has_left(replica)

    async def loaded(self) -> list[str]:
        """Names of the checkpoints that are ready somewhere, least recently used first."""
        await self.wake()
        await self._house.looks.at(self._house.fleet.agents)
        return self._house.residency.book.ready_names()

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
        except Exception:  # Ray may still take it for the process that has ended, and what failed is told to whoever asks
            time.sleep(_PAUSE_S)
        else:
            return
