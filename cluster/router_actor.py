"""The actor that decides which checkpoint sits in which slot: a thin shell round `cluster.residency`."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from cluster.agent_actor import AgentActor
from cluster.messages import AgentReport, LifecycleEvent, Placement, RouterReply, Value
from cluster.residency import Close, Command, Drain, Grant, Load, NoRoomError, Refuse, ReplicaState, Residency
from laya.names import CheckpointSource

_POLL_S = 0.5
"""Seconds between two looks at the agents: how fresh their last use is known, and how soon a death is noticed."""
_ANSWER_S = 5.0
"""Seconds that an agent may take to say how it is; one that takes longer is only known by what it said before."""
_SCHEDULE_S = 120.0
"""Seconds that Ray may take to find room for an agent; a cluster that grows needs a while."""
_DEATHS = 3
"""Agents of one checkpoint that may die while loading, one after the other, before those who wait are told."""

log = logging.getLogger("laya.cluster")


class AgentDiedError(RuntimeError):
    """A checkpoint's agents die before they are ready; out of memory is the usual reason."""


class RouterActor:
    """Places checkpoints and evicts them. Payloads never pass through it.

    It fires on_load and on_evict, each once and in order, in its reply to the request that they happened for: a hook is the
    user's own object, so it runs where it was installed, in the client that gets the reply.

    Args:
        sources: Checkpoint name to source.
        slots: How many agents there may be at a time.
        device: Where agents run.
        token: Hub token.
        agent_options: Ray options of each AgentActor (num_cpus, num_gpus, label_selector, ...).
        threads: Threads of an agent's forward pass on a CPU.
        min_residency_s: How long a checkpoint stays at least, in seconds.
    """

    def __init__(
        self,
        sources: Mapping[str, CheckpointSource],
        slots: int,
        device: str | None,
        token: str | None,
        agent_options: Mapping[str, Any],
        threads: int,
        min_residency_s: float,
    ) -> None:
        self._sources = dict(sources)
        self._device = device
        self._token = token
        self._agent_options = dict(agent_options)
        self._threads = threads
        self._residency = Residency(slots, min_residency_s, time.monotonic)
        self._agents: dict[int, Any] = {}
        self._tickets = itertools.count()
        self._waiting: dict[int, asyncio.Future[Placement]] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports: dict[int, AgentReport] = {}
        self._failures: dict[str, Exception] = {}
        self._deaths: dict[str, int] = {}
        self._events: dict[str, list[LifecycleEvent]] = {}  # by the checkpoint that they happened for, until somebody is told
        self._leaving_for: dict[int, list[LifecycleEvent]] = {}  # by replica, those of the request that it leaves for
        self._evictions = 0
        self._loads = 0

    async def join(self, sources: Mapping[str, CheckpointSource]) -> dict[str, Any]:
        """Answers a client that joins, once the actor lives; starts watching the agents.

        Args:
            sources: Checkpoints that the client knows. Names that are new are noted.

        Returns:
            The number of ``slots``, and of its ``sources`` the ``others``: names that mean another checkpoint here.
        """
        if not self._tasks:
            self._spawn(self._watch())
        for name, source in sources.items():
            self._sources.setdefault(name, source)
        others = {name: str(self._sources[name]) for name, source in sources.items() if self._sources[name] != source}
        return {"slots": self._residency.slots, "others": others}

    async def register(self, name: str, source: CheckpointSource) -> None:
        """Points a name at a checkpoint; replicas that are there already stay."""
        self._sources[name] = source

    async def place(self, checkpoint: str) -> RouterReply[Placement]:
        """Where a checkpoint can be asked, after loading it if it must be.

        The reply's error is a laya.CheckpointError where it cannot be built, and a NoRoomError where every slot is pinned.
        """
        return await self._reply_to(self._wait_for(checkpoint), checkpoint)

    async def _reply_to(self, work: Awaitable[Value], checkpoint: str) -> RouterReply[Value]:
        value, error = None, None
        try:
            value = await work
        except Exception as raised:
            error = raised
        return RouterReply(value, error, self._events.pop(checkpoint, []))

    async def _wait_for(self, checkpoint: str) -> Placement:
        if not self._residency.ready(checkpoint):
            await self._look_around()  # somebody may have to go for it: who, their last use decides
        ticket = next(self._tickets)
        granted: asyncio.Future[Placement] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = granted
        try:
            self._perform(self._residency.place(checkpoint, ticket))
            return await granted
        finally:
            del self._waiting[ticket]
            self._residency.abandon(ticket)

    async def touch(self, checkpoint: str) -> None:
        """Counts a checkpoint as used just now."""
        self._residency.touch(checkpoint)

    async def scale(self, checkpoint: str, replicas: int) -> RouterReply[Placement]:
        """Gives a checkpoint a number of replicas that it keeps, and returns when they are ready.

        The reply's error is a ValueError where there are not that many slots, and a laya.CheckpointError where one of them could
        not be built: the wish is dropped, those that are there stay.
        """
        return await self._reply_to(self._scale(checkpoint, replicas), checkpoint)

    async def _scale(self, checkpoint: str, replicas: int) -> Placement:
        self._failures.pop(checkpoint, None)
        commands = self._residency.scale(checkpoint, replicas)
        leaving = [command.replica for command in commands if isinstance(command, Drain)]
        events = await self._see_off(leaving, commands)
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self._residency.ready(checkpoint)) >= replicas or self._residency.wanted(checkpoint) < replicas
            )
        self._events.setdefault(checkpoint, []).extend(events)
        if (error := self._failures.pop(checkpoint, None)) is not None:
            raise error
        return self._placement(replica.id for replica in self._residency.ready(checkpoint))

    async def unload(self, checkpoint: str | None) -> RouterReply[None]:
        """Drains and drops one checkpoint, or all; returns once they are gone."""
        names = self._residency.names() if checkpoint is None else {checkpoint}
        leaving = list(self._residency.replicas) if checkpoint is None else self._residency.ids(checkpoint)
        commands = [command for name in names for command in self._residency.release(name)]
        return RouterReply(events=await self._see_off(leaving, commands))

    async def _see_off(self, leaving: list[int], commands: list[Command]) -> list[LifecycleEvent]:
        """Performs commands that make replicas leave, and returns their evictions once they are gone, for one request to tell."""
        events: list[LifecycleEvent] = []
        mine = [replica for replica in leaving if replica not in self._leaving_for]
        self._leaving_for.update(dict.fromkeys(mine, events))
        self._perform(commands)
        async with self._changed:
            await self._changed.wait_for(lambda: not any(replica in self._residency.replicas for replica in leaving))
        for replica in mine:
            del self._leaving_for[replica]
        return events

    async def pin(self, checkpoint: str) -> None:
        """Keeps a checkpoint from being evicted."""
        self._residency.pinned.add(checkpoint)

    async def unpin(self, checkpoint: str) -> None:
        """Lets a checkpoint be evicted again."""
        self._residency.pinned.discard(checkpoint)
        self._perform(self._residency.advance())

    async def lost(self, replica: int) -> None:
        """A client could not reach an agent: look whether it lives."""
        agent = self._agents.get(replica)
        if agent is not None:
            await self._look_at(replica, agent)

    async def loaded(self) -> list[str]:
        """Names of the checkpoints that are ready somewhere, least recently used first."""
        await self._look_around()
        return self._residency.ready_names()

    async def status(self) -> dict[str, Any]:
        """Slots, replicas, for how many seconds each has been ready, and what the agents last said of themselves."""
        replicas = [
            {
                "id": replica.id,
                "checkpoint": replica.checkpoint,
                "state": replica.state.value,
                "ready_s": None if replica.state is ReplicaState.LOADING else time.monotonic() - replica.ready_at,
                "report": self._reports.get(replica.id),
            }
            for replica in self._residency.replicas.values()
        ]
        return {"slots": self._residency.slots, "replicas": replicas, "loads": self._loads, "evictions": self._evictions}

    async def close(self) -> None:
        """Ends every agent at once, for a session that is over; no request is waited for."""
        for agent in self._agents.values():
            ray.kill(agent, no_restart=True)
        self._agents.clear()

    def _placement(self, replicas: Iterable[int]) -> Placement:
        return Placement(self._residency.epoch, {replica: self._agents[replica] for replica in replicas})

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Load(replica, checkpoint):
                    self._spawn(self._load(replica, checkpoint))
                case Drain(replica):
                    self._spawn(self._drain(replica))
                case Close(replica, checkpoint):
                    self._spawn(self._close(replica, checkpoint))
                case Grant(ticket, replicas):
                    if (waiting := self._waiting.get(ticket)) is not None and not waiting.done():
                        waiting.set_result(self._placement(replicas))
                case Refuse(ticket, error):
                    if (waiting := self._waiting.get(ticket)) is not None and not waiting.done():
                        waiting.set_exception(error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, replica: int, checkpoint: str) -> None:
        agent = None
        try:
            source = self._sources[checkpoint]
            actor_class = ray.remote(AgentActor).options(max_restarts=0, max_concurrency=1000, **self._agent_options)
            agent = actor_class.remote(source, self._device, self._token, self._threads)
            await asyncio.wait_for(agent.describe.remote(), _SCHEDULE_S)
            await agent.load.remote()
        except RayActorError as error:
            self._deaths[checkpoint] = self._deaths.get(checkpoint, 0) + 1
            log.warning("an agent of checkpoint %r died while it was loading", checkpoint)
            if self._deaths[checkpoint] < _DEATHS:
                self._perform(self._residency.gone(replica))  # whoever waits still waits: it is tried again
            else:
                self._fail(replica, checkpoint, AgentDiedError(f"{_DEATHS} agents of checkpoint {checkpoint!r} died loading: {error}"))
        except Exception as error:
            if agent is not None:
                ray.kill(agent, no_restart=True)
            if isinstance(error, TimeoutError):
                error = NoRoomError(
                    f"Ray found no room for an agent of checkpoint {checkpoint!r} within {_SCHEDULE_S:.0f} s: it needs "
                    f"{self._agent_options}, the cluster has {ray.cluster_resources()}"
                )
            self._fail(replica, checkpoint, error.cause if isinstance(error, RayTaskError) else error)
        else:
            self._agents[replica] = agent
            self._loads += 1
            self._deaths.pop(checkpoint, None)
            self._events.setdefault(checkpoint, []).append(LifecycleEvent("on_load", checkpoint))
            self._perform(self._residency.loaded(replica))
        await self._tell()

    def _fail(self, replica: int, checkpoint: str, failure: Exception) -> None:
        self._failures[checkpoint] = failure
        self._deaths.pop(checkpoint, None)
        self._perform(self._residency.failed(replica, failure))

    async def _drain(self, replica: int) -> None:
        agent = self._agents.get(replica)
        if agent is None:  # dead and buried meanwhile
            return
        try:
            await agent.drain.remote()
        except RayActorError:
            await self._bury(replica)
        else:
            self._perform(self._residency.emptied(replica))

    async def _close(self, replica: int, checkpoint: str) -> None:
        agent = self._agents.pop(replica, None)  # nobody looks at it any more: its death is meant
        if agent is None:
            return
        try:
            await agent.close.remote()
            ray.kill(agent, no_restart=True)
            # Its slot is somebody's only once it is certain that the process holds nothing any more.
            await agent.describe.remote()
        except RayActorError:
            pass
        self._evictions += 1
        commands = self._forget(replica)
        newcomer = next((command.checkpoint for command in commands if isinstance(command, Load)), checkpoint)
        events = self._leaving_for[replica] if replica in self._leaving_for else self._events.setdefault(newcomer, [])
        events.append(LifecycleEvent("on_evict", checkpoint))
        self._perform(commands)
        await self._tell()

    async def _bury(self, replica: int) -> None:
        """An agent is dead: nothing was evicted, its checkpoint is only loaded anew when it is asked for."""
        self._perform(self._forget(replica))
        await self._tell()

    def _forget(self, replica: int) -> list[Command]:
        self._agents.pop(replica, None)
        self._reports.pop(replica, None)
        return self._residency.gone(replica)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _watch(self) -> None:
        """Keeps the last use of every agent known, notices deaths, and lets time pass for the residency."""
        while True:
            try:
                await self._look_around()
                self._perform(self._residency.advance())
            except Exception:
                log.exception("a look at the agents failed; the next one follows")
            await asyncio.sleep(_POLL_S)

    async def _look_around(self) -> None:
        await asyncio.gather(*(self._look_at(replica, agent) for replica, agent in list(self._agents.items())))

    async def _look_at(self, replica: int, agent: Any) -> None:
        try:
            report: AgentReport = await asyncio.wait_for(agent.describe.remote(), _ANSWER_S)
        except RayActorError:
            log.warning("agent %s is dead", replica)
            await self._bury(replica)
        except (RayError, TimeoutError) as error:
            log.warning("agent %s did not answer: %r", replica, error)
        else:
            self._reports[replica] = report
            self._residency.report(replica, time.monotonic() - report.idle_s, report.in_flight)
