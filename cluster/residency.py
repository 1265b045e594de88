"""Who stays where, and who has to leave: the rules by which checkpoints share a fixed number of slots.

A pure state machine: events go in, commands come out, and nothing here knows of Ray, threads or the time of day. The rules, as a
hotel would put them:

- A slot holds one replica of one checkpoint. It is taken when a load starts and free again when the replica is gone.
- Whoever asks for a checkpoint that is ready gets it at once. Otherwise they wait, and those who wait are served in order.
- Nobody is turned out of a house with a free slot. When there is none, the replica unused for longest leaves, idle ones first;
  not a pinned one, not one that has only just arrived, and not the last one of a checkpoint that others wait for.
- Who has to leave finishes what they have begun: a replica is drained, then closed, and only then is its slot free.
- A load that fails gives its slot back and reaches everyone who waited for it; the next request tries again.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum


class ReplicaState(Enum):
    """Where a replica stands between its load and its end."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True)
class Replica:
    """One copy of a checkpoint in a slot.

    Attributes:
        id: Counts up; never used again.
        checkpoint: Its name.
        state: Where it stands.
        ready_at: When its load ended, in seconds of the clock.
        last_used: When it last began a request, as far as is known.
        in_flight: Requests on it, as far as is known.
        unwelcome: Whether it is to leave as soon as its load has ended.
    """

    id: int
    checkpoint: str
    state: ReplicaState = ReplicaState.LOADING
    ready_at: float = 0.0
    last_used: float = 0.0
    in_flight: int = 0
    unwelcome: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Build this replica; answer with `Residency.loaded` or `Residency.failed`."""

    replica: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Let this replica finish what it has accepted and take nothing new; answer with `Residency.emptied`."""

    replica: int


@dataclass(frozen=True, slots=True)
class Close:
    """This replica is empty: fire on_evict, close it, make sure it is dead; answer with `Residency.gone`."""

    replica: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The checkpoint that this ticket waits for is ready, on these replicas."""

    ticket: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The checkpoint that this ticket waits for cannot be had."""

    ticket: int
    error: BaseException


Command = Load | Drain | Close | Grant | Refuse


class NoRoomError(RuntimeError):
    """There is no room for a checkpoint, and none can be made."""


@dataclass(slots=True)
class Residency:
    """The state of all slots. Every method is one event and returns the commands that follow from it, in order.

    Attributes:
        slots: How many replicas fit.
        min_residency_s: How long a replica may stay once it is ready, whoever waits.
        clock: Seconds that only grow.
        epoch: Counts changes of who is ready, so that an old answer can be told from a new one.
    """

    slots: int
    min_residency_s: float
    clock: Callable[[], float]
    epoch: int = 0
    replicas: dict[int, Replica] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    _wanted: dict[str, int] = field(default_factory=dict)  # replicas that a checkpoint is to have, asked for by `scale`
    _waiters: dict[str, deque[int]] = field(default_factory=dict)  # checkpoints in the order in which they were first asked for
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def ready(self, checkpoint: str) -> list[Replica]:
        """The replicas of a checkpoint that take requests."""
        return [replica for replica in self._of(checkpoint) if replica.state is ReplicaState.READY]

    def ids(self, checkpoint: str) -> list[int]:
        """All replicas of a checkpoint, whatever they are about."""
        return [replica.id for replica in self._of(checkpoint)]

    def names(self) -> set[str]:
        """Every checkpoint that has a replica, a wish or a pin."""
        return {*(replica.checkpoint for replica in self.replicas.values()), *self._wanted, *self.pinned}

    def ready_names(self) -> list[str]:
        """The checkpoints that take requests, least recently used first."""
        used: dict[str, float] = {}
        for replica in self.replicas.values():
            if replica.state is ReplicaState.READY:
                used[replica.checkpoint] = max(replica.last_used, used.get(replica.checkpoint, replica.last_used))
        return sorted(used, key=used.__getitem__)

    def wanted(self, checkpoint: str) -> int:
        """The replicas that `scale` last asked for, 0 if a load of one has failed since."""
        return self._wanted.get(checkpoint, 0)

    def place(self, checkpoint: str, ticket: int) -> list[Command]:
        """Somebody asks for a checkpoint and holds this ticket until it is granted or refused."""
        ready = self.ready(checkpoint)
        if ready:
            self.touch(checkpoint)
            return [self._grant(ticket, ready)]
        self._waiters.setdefault(checkpoint, deque()).append(ticket)
        return self.advance()

    def abandon(self, ticket: int) -> None:
        """Whoever held this ticket has gone."""
        for name, waiters in list(self._waiters.items()):
            if ticket in waiters:
                waiters.remove(ticket)
                if not waiters:
                    del self._waiters[name]

    def scale(self, checkpoint: str, replicas: int) -> list[Command]:
        """A checkpoint is to have this many replicas, and to keep them.

        Raises:
            NoRoomError: There are not that many slots, once those that others are to keep are taken off.
        """
        kept = {name: max(self.wanted(name), int(name in self.pinned)) for name in {*self._wanted, *self.pinned} - {checkpoint}}
        if not 0 <= replicas <= self.slots - sum(kept.values()):
            raise NoRoomError(f"{checkpoint!r} cannot have {replicas} replicas: there are {self.slots} slots, and others keep {kept}")
        self._wanted[checkpoint] = replicas
        spare = sorted(self.ready(checkpoint), key=_idle_longest)[: max(0, len(self._of(checkpoint)) - max(1, replicas))]
        return [*(self._drain(replica) for replica in spare), *self.advance()]

    def release(self, checkpoint: str) -> list[Command]:
        """A checkpoint is to leave, now; it may be loaded again when somebody asks for it.

        A replica that is being loaded is still given to those who wait for it, and leaves then.
        """
        self._wanted.pop(checkpoint, None)
        self.pinned.discard(checkpoint)
        for replica in self._of(checkpoint):
            replica.unwelcome = replica.state is ReplicaState.LOADING
        return [self._drain(replica) for replica in self.ready(checkpoint)]

    def loaded(self, replica_id: int) -> list[Command]:
        """A load has ended well."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return []
        replica.state = ReplicaState.READY
        replica.ready_at = replica.last_used = self.clock()
        self.epoch += 1
        ready = self.ready(replica.checkpoint)
        commands: list[Command] = [self._grant(ticket, ready) for ticket in self._waiters.pop(replica.checkpoint, ())]
        if replica.unwelcome:
            commands.append(self._drain(replica))
        return [*commands, *self.advance()]

    def failed(self, replica_id: int, error: BaseException) -> list[Command]:
        """A load has failed; its slot is free."""
        replica = self.replicas.pop(replica_id, None)
        if replica is None:
            return []
        self._wanted.pop(replica.checkpoint, None)
        waiters = () if self.ready(replica.checkpoint) else self._waiters.pop(replica.checkpoint, ())
        return [*(Refuse(ticket, error) for ticket in waiters), *self.advance()]

    def report(self, replica_id: int, last_used: float, in_flight: int) -> None:
        """An agent has said when it was last used and what is on it."""
        if (replica := self.replicas.get(replica_id)) is not None:
            replica.last_used = max(replica.last_used, last_used)
            replica.in_flight = in_flight

    def emptied(self, replica_id: int) -> list[Command]:
        """A draining replica has finished all that it had accepted."""
        replica = self.replicas.get(replica_id)
        return [] if replica is None else [Close(replica_id, replica.checkpoint)]

    def gone(self, replica_id: int) -> list[Command]:
        """A replica is dead, as ordered or not; its slot is free."""
        if self.replicas.pop(replica_id, None) is None:
            return []
        self.epoch += 1
        return self.advance()

    def advance(self) -> list[Command]:
        """Starts what can be started. Also to be called as time passes, since a replica may have stayed long enough by now."""
        commands: list[Command] = []
        for checkpoint in self._lacking():
            if len(self.replicas) < self.slots:
                replica = Replica(next(self._ids), checkpoint)
                self.replicas[replica.id] = replica
                commands.append(Load(replica.id, checkpoint))
            elif not self._leaving():
                victim = self._victim(checkpoint)
                if victim is not None:
                    commands.append(self._drain(victim))
                elif all(resident.checkpoint in self.pinned for resident in self.replicas.values()):
                    error = NoRoomError(f"no slot for {checkpoint!r}: all {self.slots} are pinned; unpin one or add slots")
                    commands += [Refuse(ticket, error) for ticket in self._waiters.pop(checkpoint, ())]
        return commands

    def _lacking(self) -> list[str]:
        """Checkpoints that need one more replica, once for each: those that are waited for first, in order."""
        lacking = [name for name, waiters in self._waiters.items() if waiters and not self._coming(name)]
        for name, count in self._wanted.items():
            lacking += [name] * (count - len(self._coming(name)) - lacking.count(name))
        return lacking

    def _of(self, checkpoint: str) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.checkpoint == checkpoint]

    def _coming(self, checkpoint: str) -> list[Replica]:
        return [replica for replica in self._of(checkpoint) if replica.state is not ReplicaState.DRAINING]

    def _leaving(self) -> bool:
        # One at a time: the slot that comes free is given to whoever is first then.
        return any(replica.state is ReplicaState.DRAINING for replica in self.replicas.values())

    def _victim(self, newcomer: str) -> Replica | None:
        stayed_until = self.clock() - self.min_residency_s
        candidates = [
            replica
            for replica in self.replicas.values()
            if replica.state is ReplicaState.READY
            and replica.ready_at <= stayed_until
            and replica.checkpoint != newcomer
            and replica.checkpoint not in self.pinned
            and len(self._coming(replica.checkpoint)) > self._floor(replica.checkpoint, newcomer)
        ]
        return min(candidates, key=_idle_longest, default=None)

    def _floor(self, checkpoint: str, newcomer: str) -> int:
        """Replicas that a checkpoint may keep against a newcomer: what `scale` gave it, unless somebody waits for the newcomer."""
        return 0 if self._waiters.get(newcomer) else self._wanted.get(checkpoint, 0)

    def touch(self, checkpoint: str) -> None:
        """A checkpoint was asked for just now."""
        for replica in self.ready(checkpoint):
            replica.last_used = self.clock()

    def _grant(self, ticket: int, replicas: Sequence[Replica]) -> Grant:
        return Grant(ticket, tuple(replica.id for replica in replicas))

    def _drain(self, replica: Replica) -> Drain:
        replica.state = ReplicaState.DRAINING
        self.epoch += 1
        return Drain(replica.id)


def _idle_longest(replica: Replica) -> tuple[bool, float]:
    return (replica.in_flight > 0, replica.last_used)
