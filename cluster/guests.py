"""What the house of `cluster.residency` knows of one checkpoint, its replicas, and of room."""

from __future__ import annotations

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
        id: Counts up.
        checkpoint: Its name.
        state: Where it stands.
        size_bytes: What it holds.
        begun_at: When its load began, in seconds of the clock.
        ready_at: When its load ended.
        last_used: When it last began a request, as far as is known.
        in_flight: Calls on it, as far as is known.
        unwelcome: Whether it is to leave: it was released while it loaded, or its place goes away.
    """

    id: int
    checkpoint: str
    state: ReplicaState = ReplicaState.LOADING
    size_bytes: int = 0
    begun_at: float = 0.0
    ready_at: float = 0.0
    last_used: float = 0.0
    in_flight: int = 0
    unwelcome: bool = False


@dataclass(slots=True)
class Room:
    """Slots and bytes, free or soon to be; infinite bytes are without limit."""

    slots: int
    size_bytes: float

    def holds(self, size_bytes: int) -> bool:
        """Whether one replica of that size fits."""
        return self.slots > 0 and self.size_bytes >= size_bytes

    def take(self, size_bytes: int) -> None:
        """One replica of that size has its place."""
        self.slots -= 1
        self.size_bytes -= size_bytes

    def plus(self, *leaving: Replica) -> Room:
        """This, and what these replicas leave."""
        return Room(self.slots + len(leaving), self.size_bytes + sum(replica.size_bytes for replica in leaving))


@dataclass(slots=True)
class Guest:
    """One checkpoint.

    Attributes:
        name: Its name.
        replicas: By their ids.
        waiters: Tickets of those who wait for it, in order.
        pinned: Whether it is not to be turned out.
        least: Replicas that it keeps, whoever waits.
        most: Replicas that it may have when it is busy.
        wanted: Replicas that it should have by what is on it.
        size_bytes: What a replica holds, as far as is known.
        reload_s: Seconds that its last load took, in coarse steps.
        busy_since: Since when it has been busy, in seconds of the clock; None if it is not.
        not_before: When a replica that nobody waits for may be tried again.
        forgone: Why replicas that it is to keep cannot be had, as was told last.
    """

    name: str
    replicas: dict[int, Replica] = field(default_factory=dict)
    waiters: dict[int, None] = field(default_factory=dict)
    pinned: bool = False
    least: int = 0
    most: int = 1
    wanted: int = 0
    size_bytes: int = 0
    reload_s: float = 0.0
    busy_since: float | None = None
    not_before: float = 0.0
    forgone: str | None = None

    def ready(self) -> list[Replica]:
        """Those that take requests."""
        return [replica for replica in self.replicas.values() if replica.state is ReplicaState.READY]

    def coming(self) -> list[Replica]:
        """Those that take requests, now or once they are loaded."""
        return [replica for replica in self.replicas.values() if replica.state is not ReplicaState.DRAINING]

    def welcome(self) -> int:
        """How many there are that may stay."""
        return sum(not replica.unwelcome for replica in self.coming())

    def kept(self) -> int:
        """Slots that others cannot have, whatever they need them for."""
        return max(self.least, self.welcome(), int(bool(self.moving()))) if self.pinned else self.least

    def owed(self) -> int:
        """Replicas that it is to keep and has not."""
        return max(0, self.least - self.welcome())

    def lacking(self) -> int:
        """Replicas that it should have and has not."""
        moving = any(self.needs_successor(replica) for replica in self.moving())
        return max(0, max(self.least, min(self.wanted, self.most), int(moving)) - self.welcome())

    def dispensable(self) -> int:
        """How many of those that are ready may be turned out."""
        return 0 if self.pinned else max(0, len(self.ready()) - self.least)

    def spare(self, now: float, idle_s: float) -> list[Replica]:
        """Those beyond the least that have had nothing to do for a while; the last one stays until its room is needed."""
        staying = self.staying()
        idle = [replica for replica in staying if not replica.in_flight and max(replica.last_used, replica.ready_at) + idle_s <= now]
        spare = sorted(idle, key=lambda replica: replica.last_used)[: max(0, len(staying) - max(self.least, 1))]
        if spare:
            self.wanted = 0
        return spare

    def moving(self) -> list[Replica]:
        """Those that take requests, and are to leave."""
        return [replica for replica in self.ready() if replica.unwelcome]

    def needs_successor(self, leaving: Replica) -> bool:
        """Whether another has to take over from one whose place goes away."""
        return leaving.in_flight > 0 or self.pinned or self.least > 0

    def staying(self) -> list[Replica]:
        """Those that take requests, and may stay."""
        return [replica for replica in self.ready() if not replica.unwelcome]

    def measure(self, now: float, busy_depth: float, busy_s: float) -> bool:
        """Notes how busy it is, and returns whether it wants another replica for that."""
        ready = self.ready()
        if not ready or sum(replica.in_flight for replica in ready) < busy_depth * len(ready):
            self.busy_since, self.wanted = None, 0
        elif self.busy_since is None or len(self.coming()) > len(ready):
            self.busy_since = now  # how busy it is with one more is to be seen once that is there
        elif now - self.busy_since >= busy_s and len(ready) < self.most:
            self.busy_since = None
            self.wanted = len(ready) + 1
            return True
        return False

    def settled(self) -> bool:
        """Whether it needs nothing as time passes: no replica more, and none less."""
        return len(self.replicas) <= 1 and not (self.least or self.wanted or any(replica.unwelcome for replica in self.replicas.values()))
