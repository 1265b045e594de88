"""What a router actor does about its residency's commands: agents are started, drained, closed, watched and found again."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayTaskError

from cluster.asking import GONE
from cluster.commands import Abort, Close, Command, Drain, Forgo, Grant, Load, NoRoomError, Refuse
from cluster.diary import Diary
from cluster.fleet import SCHEDULE_S, Agent, Fleet
from cluster.guests import ReplicaState
from cluster.hosting import RouterConfig, resolve_hooks
from cluster.looks import Looks
from cluster.messages import AgentId, LifecycleEvent, Loaded, Notice, Placement
from cluster.metrics import RouterMetrics
from cluster.registrations import forget, registered, remember
from cluster.residency import Residency
from cluster.slots import Slots
from cluster.weights import Shelf
from laya.names import CheckpointSource

_FRESH_S = 0.05
"""Seconds for which what an agent said is fresh enough to decide who has to leave."""
_PATIENCE_S = 0.5
"""Seconds that agents are waited for when somebody has to leave; one that has not answered by then is taken as it was known."""
_DEATHS = 3
"""Agents of one checkpoint that may die while loading, one after the other, before those who wait are told."""
_REMEMBERED = 1024
"""Replicas that left last, and are remembered as such."""

log = logging.getLogger("laya.cluster")


class AgentDiedError(RuntimeError):
    """A checkpoint's agents die before they are ready; out of memory is the usual reason."""


class House:
    """The residency's commands carried out on a fleet of agents.

    What it knows it can learn again: its process may end at any time, and the next one asks the agents who they are.

    Args:
        config: What the router actor was made with.
    """

    def __init__(self, config: RouterConfig) -> None:
        self.sources = dict(config.sources)
        self.residency = Residency(
            config.slots, config.min_residency_s, time.monotonic, config.capacity_bytes, config.busy_depth, idle_s=config.idle_s
        )
        self.slots = Slots(config)
        self.fleet = Fleet(config)
        self.diary = Diary()
        self.done: Counter[str] = Counter()
        self.failures: dict[str, Exception] = {}
        self._config = config
        self.metrics = RouterMetrics(config.name)
        self.shelf = Shelf()
        self._tickets = itertools.count()
        self._waiting: dict[int, asyncio.Future[Placement]] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deaths: Counter[str] = Counter()
        self._closing: set[int] = set()  # replicas whose death is meant and waited for
        self._left: deque[int] = deque(maxlen=_REMEMBERED)
        self.looks = Looks(self.fleet, self._learn)
        self._closed = False

    async def open(self, restarted: bool) -> None:
        """Takes over the agents of an earlier life, or ends those that a router of this name has left behind."""
        self.diary.hooks = resolve_hooks(self._config.hooks)
        living = await self.fleet.find()
        if restarted:
            # Not all that changed was told to agents that still live: by the time of day it is later than any change of an earlier life.
            self.residency.epoch = time.time_ns() // 1_000_000
            self.sources |= registered(self._config.name)
        else:
            forget(self._config.name)
            self.slots.release()
        for agent in living:
            if restarted:
                self._adopt(agent)
            else:
                ray.kill(agent.handle, no_restart=True)
        for name, hosting in self._config.hosting.items():
            self.perform(self.residency.describe(name, hosting.min_replicas, hosting.max_replicas, hosting.size_bytes))
        for agent in living if restarted else ():
            notice = agent.report.notice if agent.report is not None else Notice()
            if notice.epoch and notice.least != self.residency.book.guest(agent.id.checkpoint).least:
                with suppress(NoRoomError):  # what was pinned since leaves less room: it keeps as many as it is described with
                    self.perform(self.residency.scale(agent.id.checkpoint, notice.least))

    def close(self) -> None:
        """Ends every agent at once and gives its slots back; nothing is begun from then on, whoever waits."""
        self._closed = True  # first: a replica that dies is one to be loaded again
        for replica in list(self.fleet.agents):
            self.fleet.kill(replica)
        self.slots.release()
        forget(self._config.name)

    def register(self, checkpoint: str, source: CheckpointSource) -> None:
        """A name means another checkpoint from now on, for a later life of this router too."""
        self.sources[checkpoint] = source
        remember(self._config.name, checkpoint, source)

    def _adopt(self, agent: Agent) -> None:
        report, checkpoint = agent.report, agent.id.checkpoint
        if report is None:
            return
        self.sources.setdefault(checkpoint, agent.id.source)
        self.fleet.agents[agent.id.replica] = agent
        if agent.id.bundle is not None:
            self.slots.adopt(agent.id.replica, agent.id.bundle)
        state = ReplicaState.DRAINING if report.draining else ReplicaState.READY if report.loaded else ReplicaState.LOADING
        self.residency.epoch = max(self.residency.epoch, report.notice.epoch)
        self.perform(self.residency.adopt(agent.id.replica, checkpoint, state, report.size_bytes))
        if report.notice.pinned:
            self.residency.pin(checkpoint)
        if state is ReplicaState.LOADING:
            self.spawn(self._finish_load(agent.id.replica, checkpoint))

    async def placed(self, checkpoint: str) -> Placement:
        """Where a checkpoint can be asked, after loading it if it must be."""
        if not self.residency.ready(checkpoint) and not self.residency.has_room(checkpoint):
            await self.looks.at(self.fleet.agents, _FRESH_S, _PATIENCE_S)  # somebody may have to go for it: who, their last use decides
        ticket = next(self._tickets)
        granted: asyncio.Future[Placement] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = granted
        try:
            self.perform(self.residency.place(checkpoint, ticket))
            return await granted
        finally:
            del self._waiting[ticket]
            self.perform(self.residency.abandon(checkpoint, ticket))

    async def see_off(self, leaving: list[int], commands: list[Command]) -> list[LifecycleEvent]:
        """Performs commands that make replicas leave, and returns their evictions once they are gone, for one request to tell."""
        mine, events = self.diary.expect(leaving)
        try:
            self.perform(commands)
            await self.tell()  # whoever waits for more of these waits in vain
            await self.until(lambda: not any(replica in self.residency.replicas for replica in leaving))
        except asyncio.CancelledError:
            for event in events:
                self.diary.keep(event.checkpoint, [event])
            raise
        finally:
            self.diary.forget(mine)
        return events

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds, which is looked at whenever a replica has come or gone."""
        async with self._changed:
            await self._changed.wait_for(holds)

    def placement(self, replicas: Iterable[int]) -> Placement:
        """Where these replicas can be asked."""
        return Placement(self.residency.epoch, {replica: self.fleet.agents[replica].handle for replica in replicas})

    def announce(self, checkpoint: str) -> None:
        """Leaves with a checkpoint's agents what is true of it now."""
        guest = self.residency.book.guest(checkpoint)
        self.fleet.notify(list(guest.replicas), Notice(self.residency.epoch, guest.least, guest.pinned))

    def perform(self, commands: list[Command]) -> None:
        """Carries commands out; what takes time goes on in the background and is answered to the residency when it has ended."""
        for command in [] if self._closed else commands:
            match command:
                case Load(replica, checkpoint):
                    self.spawn(self._load(replica, checkpoint))
                case Abort(replica):
                    self._end(replica)  # at once, lest its load end meanwhile
                    self.spawn(self.tell())
                case Drain(replica):
                    self.spawn(self._drain(replica))
                case Close(replica, checkpoint):
                    self.spawn(self._close(replica, checkpoint))
                case Grant(ticket, replicas):
                    if (waiting := self._waiting.get(ticket)) is not None and not waiting.done():
                        waiting.set_result(self.placement(replicas))
                case Forgo(checkpoint, error):
                    log.warning("replicas that %r is to keep cannot be had: %s", checkpoint, error)
                    self.failures[checkpoint] = error
                    self.spawn(self.tell())
                case Refuse(ticket, error):
                    if (waiting := self._waiting.get(ticket)) is not None and not waiting.done():
                        waiting.set_exception(error)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Has something done in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what a router does in the background failed", exc_info=error)

    async def _load(self, replica: int, checkpoint: str) -> None:
        try:
            await self.slots.reserve(SCHEDULE_S)
            if self._closed or replica not in self.residency.replicas:  # there is no slot for it any more
                return
            placing = self.slots.take(replica)
            agent = AgentId(self._config.name, replica, checkpoint, self._source(checkpoint), self.slots.bundle(replica))
            self.fleet.start(agent, placing)
        except Exception as error:
            await self._fail(replica, checkpoint, error)
        else:
            await self._finish_load(replica, checkpoint)

    def _source(self, checkpoint: str) -> CheckpointSource:
        """Where a replica is loaded from: all that take requests are of one checkpoint, also where its name means another one by now."""
        others = (self.fleet.agents.get(replica.id) for replica in self.residency.book.guest(checkpoint).coming())
        return next((other.id.source for other in others if other is not None), self.sources[checkpoint])

    async def _finish_load(self, replica: int, checkpoint: str) -> None:
        begun = time.monotonic()
        loaded: Loaded | None = None
        failure: Exception | None = None
        try:
            loaded = await self.fleet.load(replica, self.shelf)
        except Exception as error:
            failure = error
        if replica not in self.fleet.agents:  # its end was meant, or is known already
            return
        if loaded is not None:
            self.done["loads"] += 1
            self._deaths.pop(checkpoint, None)
            self.failures.pop(checkpoint, None)
            self.metrics.loaded(checkpoint, time.monotonic() - begun)
            self.diary.loaded(checkpoint)
            self.perform(self.residency.loaded(replica, loaded.size_bytes))
            self.announce(checkpoint)
            await self.tell()
        elif isinstance(failure, GONE):
            await self._died_loading(replica, checkpoint, failure)
        elif failure is not None:
            self.fleet.kill(replica)
            await self._fail(replica, checkpoint, failure.cause if isinstance(failure, RayTaskError) else failure)

    async def _died_loading(self, replica: int, checkpoint: str, death: Exception) -> None:
        self._deaths[checkpoint] += 1
        log.warning("an agent of checkpoint %r died while it was loading", checkpoint)
        if self._deaths[checkpoint] < _DEATHS:
            await self.bury(replica)  # whoever waits still waits: it is tried again
        else:
            mend = "give agents more memory, or look into their logs"
            died = AgentDiedError(f"{_DEATHS} agents of checkpoint {checkpoint!r} died loading ({death}): {mend}")
            await self._fail(replica, checkpoint, died)

    async def _fail(self, replica: int, checkpoint: str, failure: Exception) -> None:
        self.failures[checkpoint] = failure
        self._deaths.pop(checkpoint, None)
        self.metrics.load_failed(checkpoint, failure)
        self.slots.leave(replica)
        self.fleet.agents.pop(replica, None)
        self.perform(self.residency.failed(replica, failure))
        await self.tell()

    async def _drain(self, replica: int) -> None:
        agent = self.fleet.agents.get(replica)
        if agent is None:  # dead and buried meanwhile
            return
        self.announce(agent.id.checkpoint)
        try:
            await agent.handle.drain.remote()
        except GONE:
            await self.bury(replica)
        else:
            self.perform(self.residency.emptied(replica))

    async def _close(self, replica: int, checkpoint: str) -> None:
        if replica not in self.fleet.agents:  # dead and buried meanwhile
            return
        self._closing.add(replica)
        try:
            await self.fleet.end(replica)
        finally:
            self._closing.discard(replica)
        self._left.append(replica)
        self.done["evictions"] += 1
        self.metrics.evicted(checkpoint)
        commands = self._forget(replica)
        newcomer = next((command.checkpoint for command in commands if isinstance(command, Load)), checkpoint)
        self.diary.evicted(checkpoint, replica, newcomer)
        self.perform(commands)
        await self.tell()

    async def bury(self, replica: int) -> None:
        """An agent is dead: nothing was evicted, its checkpoint is only loaded anew when it is asked for or to be kept."""
        self._end(replica)  # it may only have been out of reach
        await self.tell()

    def _end(self, replica: int) -> None:
        self.fleet.kill(replica)
        self.perform(self._forget(replica))

    def _forget(self, replica: int) -> list[Command]:
        self.fleet.agents.pop(replica, None)
        self.slots.leave(replica)
        known = self.residency.replicas.get(replica)
        commands = self.residency.gone(replica)
        if known is not None:
            self.announce(known.checkpoint)
        return commands

    def has_left(self, replica: int) -> bool:
        """Whether a replica was empty when it ended: a call that found it dead came too late for it, and was not cut."""
        return replica in self._closing or replica in self._left

    async def tell(self) -> None:
        """Has all that `until` waits for looked at."""
        async with self._changed:
            self._changed.notify_all()

    async def _learn(self, replica: int, lives: bool) -> None:
        """A look at an agent has ended."""
        agent = self.fleet.agents.get(replica)
        if agent is None or (not lives and replica in self._closing):
            return
        if not lives:
            log.warning("agent %s is dead", agent.id.name)
            await self.bury(replica)
        elif agent.report is not None:
            self.residency.report(replica, agent.seen_at - agent.report.idle_s, agent.report.in_flight)
