"""The book in which `cluster.residency` keeps who is there, who leaves and who is waited for: no rules, only the counting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from cluster.guests import Guest, Replica, ReplicaState


@dataclass(slots=True)
class GuestBook:
    """All checkpoints that were ever asked for, and their replicas.

    Attributes:
        guests: Checkpoints by name.
        replicas: Replicas by id, whatever they are about.
        arrived: Those that take requests, in the order in which they were ready.
        leaving: Those that drain or close.
        held_bytes: What all replicas hold.
        queue: Checkpoints that are waited for and not coming, in order.
        keeping: Checkpoints that keep replicas, whoever waits.
        tended: Checkpoints that may need a replica more or less as time passes, though nobody waits.
    """

    guests: dict[str, Guest] = field(default_factory=dict)
    replicas: dict[int, Replica] = field(default_factory=dict)
    arrived: dict[int, Replica] = field(default_factory=dict)
    leaving: dict[int, Replica] = field(default_factory=dict)
    held_bytes: int = 0
    queue: dict[str, None] = field(default_factory=dict)
    keeping: set[str] = field(default_factory=set)
    tended: set[str] = field(default_factory=set)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def guest(self, name: str) -> Guest:
        """A checkpoint; a page is begun for one that is new."""
        guest = self.guests.get(name)
        if guest is None:
            guest = self.guests[name] = Guest(name)
        return guest

    def add(self, guest: Guest, now: float, replica_id: int | None = None) -> Replica:
        """A replica takes a slot, and what it will hold. Ids given out are higher than any that was brought along."""
        if replica_id is not None:
            self._ids = itertools.count(max(replica_id + 1, next(self._ids)))
        replica = Replica(next(self._ids) if replica_id is None else replica_id, guest.name, size_bytes=guest.size_bytes, begun_at=now)
        self.replicas[replica.id] = guest.replicas[replica.id] = replica
        self.held_bytes += replica.size_bytes
        self.queue.pop(guest.name, None)
        self.tend(guest)
        return replica

    def weigh(self, replica: Replica, size_bytes: int) -> None:
        """What a replica holds is known now, and so is what the next one of its checkpoint will hold."""
        self.held_bytes += size_bytes - replica.size_bytes
        replica.size_bytes = self.guests[replica.checkpoint].size_bytes = size_bytes

    def arrive(self, replica: Replica, now: float) -> None:
        """A replica takes requests."""
        replica.state, replica.ready_at, replica.last_used = ReplicaState.READY, now, now
        self.arrived[replica.id] = replica

    def leave(self, replica: Replica) -> None:
        """A replica takes nothing new."""
        replica.state = ReplicaState.DRAINING
        del self.arrived[replica.id]
        self.leaving[replica.id] = replica

    def remove(self, replica: Replica) -> None:
        """A replica is gone, and its slot free."""
        guest = self.guests[replica.checkpoint]
        del self.replicas[replica.id], guest.replicas[replica.id]
        self.arrived.pop(replica.id, None)
        self.leaving.pop(replica.id, None)
        self.held_bytes -= replica.size_bytes
        self.tend(guest)

    def keepers(self) -> list[Guest]:
        """The checkpoints that keep replicas, whoever waits."""
        return [self.guests[name] for name in sorted(self.keeping)]

    def ready_names(self) -> list[str]:
        """The checkpoints that take requests, least recently used first."""
        used = {guest.name: max(replica.last_used for replica in ready) for guest in self.guests.values() if (ready := guest.ready())}
        return sorted(used, key=used.__getitem__)

    def in_care(self) -> list[Guest]:
        """The checkpoints that may need a replica more or less."""
        return [self.guests[name] for name in sorted(self.tended)]

    def keep(self, guest: Guest) -> None:
        """What a checkpoint keeps has changed."""
        if guest.pinned or guest.least:
            self.keeping.add(guest.name)
        else:
            self.keeping.discard(guest.name)
        self.tend(guest)

    def tend(self, guest: Guest) -> None:
        """A checkpoint may need a replica more or less from now on."""
        if not guest.settled():
            self.tended.add(guest.name)
