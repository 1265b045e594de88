"""Who stays where, and who has to leave: the rules by which checkpoints share a fixed number of slots.

A pure state machine: events go in, commands come out, and nothing here knows of Ray, threads or the time of day. The rules, as a
hotel would put them:

- A slot holds one replica of one checkpoint, and the house only so many bytes. Both are taken when a load starts, given back when it
  fails, and free again when the replica is gone.
- Whoever asks for a checkpoint that is ready gets it at once. Otherwise they wait, and those who wait are served in order: nobody
  takes what somebody before them still needs.
- Nobody is turned out of a house with room. When there is none, the replica unused for longest leaves, idle ones first, and one that
  is slow to come back counts as used that much later; not a pinned one, not one that has only just arrived, and none of the
  replicas that a checkpoint is to keep.
- A checkpoint that is busy for a while may have more replicas, as long as there is room; those beyond its least leave when idle.
- Who has to leave finishes what they have begun: a replica is drained, then closed, and only then is its slot free. From a slot that
  itself goes away they move: the next replica is loaded first, if there is room for it.
- A load that fails reaches everyone who waited for it; the next request tries again.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from cluster.commands import Abort, Close, Command, Drain, Forgo, Grant, Load, NoRoomError, Refuse
from cluster.guest_book import GuestBook
from cluster.guests import Guest, Replica, ReplicaState, Room

RETRY_S = 30.0
"""Seconds until a replica that nobody waits for is tried again, after its load has failed."""
RELOAD_STEP_S = 10.0
"""Seconds by which loads differ if it is the checkpoints that differ, and not what else their machine was about."""


@dataclass(slots=True)
class Residency:
    """The state of all slots. Every method is one event and returns the commands that follow from it, in order.

    Attributes:
        slots: How many replicas fit.
        min_residency_s: How long a replica may stay once it is ready, whoever waits.
        clock: Seconds that only grow.
        capacity_bytes: What all replicas together may hold; None for no limit.
        busy_depth: Calls on each replica from which on a checkpoint is busy.
        busy_s: Seconds that it has to be busy to get another replica.
        idle_s: Seconds after which a replica beyond the least is not needed any more.
        epoch: Counts changes of who is ready, so that an old answer can be told from a new one.
    """

    slots: int
    min_residency_s: float
    clock: Callable[[], float]
    capacity_bytes: int | None = None
    busy_depth: float = 4.0
    busy_s: float = 2.0
    idle_s: float = 60.0
    epoch: int = 0
    book: GuestBook = field(default_factory=GuestBook)

    @property
    def replicas(self) -> Mapping[int, Replica]:
        """All replicas by their ids."""
        return self.book.replicas

    def ready(self, checkpoint: str) -> list[Replica]:
        """The replicas of a checkpoint that take requests."""
        guest = self.book.guests.get(checkpoint)
        return [] if guest is None else guest.ready()

    def has_room(self, checkpoint: str) -> bool:
        """Whether one more replica fits, so that nobody has to leave for it."""
        guest = self.book.guest(checkpoint)
        return not self.book.queue and self._room(len(self.replicas), self.book.held_bytes).holds(guest.size_bytes)

    def describe(self, checkpoint: str, least: int, most: int, size_bytes: int = 0) -> list[Command]:
        """Says what is known of a checkpoint beforehand.

        Args:
            checkpoint: Its name.
            least: Replicas that it keeps, whoever waits.
            most: Replicas that it may have when it is busy.
            size_bytes: What one holds; it is corrected once one is loaded.
        """
        guest = self.book.guest(checkpoint)
        guest.least, guest.most, guest.size_bytes = least, max(most, least, 1), guest.size_bytes or size_bytes
        self.book.keep(guest)
        return self.advance()

    def place(self, checkpoint: str, ticket: int) -> list[Command]:
        """Somebody asks for a checkpoint and holds this ticket until it is granted or refused."""
        guest = self.book.guest(checkpoint)
        if ready := guest.ready():
            self.touch(checkpoint)
            return [Grant(ticket, tuple(replica.id for replica in ready))]
        guest.waiters[ticket] = None
        if not guest.coming():
            self.book.queue.setdefault(checkpoint)
        return self.advance()

    def touch(self, checkpoint: str) -> None:
        """A checkpoint was asked for just now."""
        now = self.clock()
        for replica in self.ready(checkpoint):
            replica.last_used = now

    def abandon(self, checkpoint: str, ticket: int) -> list[Command]:
        """Whoever held this ticket has gone, served or not."""
        waiters = self.book.guest(checkpoint).waiters
        if ticket not in waiters:
            return []
        del waiters[ticket]
        if not waiters:
            self.book.queue.pop(checkpoint, None)
        return self.advance()

    def scale(self, checkpoint: str, replicas: int) -> list[Command]:
        """A checkpoint is to have this many replicas, and to keep them.

        Raises:
            NoRoomError: There is not that much room, once what others are to keep is taken off. Fewer than now are never refused.
        """
        guest = self.book.guest(checkpoint)
        if replicas > guest.least and (reason := self._never(guest, replicas)) is not None:
            raise NoRoomError(reason)
        guest.least, guest.wanted, guest.not_before, guest.forgone = replicas, 0, 0.0, None
        guest.most = max(guest.most, replicas)
        self.book.keep(guest)
        staying = sorted(guest.staying(), key=lambda replica: (replica.in_flight > 0, replica.last_used))
        spare = staying[: max(0, len(staying) - max(1, replicas))]
        return [*(self._drain(replica) for replica in spare), *self.advance()]

    def pin(self, checkpoint: str) -> None:
        """A checkpoint is not to be turned out."""
        guest = self.book.guest(checkpoint)
        guest.pinned = True
        self.book.keep(guest)

    def unpin(self, checkpoint: str) -> list[Command]:
        """A checkpoint may be turned out again."""
        guest = self.book.guest(checkpoint)
        guest.pinned = False
        self.book.keep(guest)
        return self.advance()

    def release(self, checkpoint: str) -> list[Command]:
        """A checkpoint is to leave, now; it may be loaded again when somebody asks for it.

        A replica that is being loaded is still given to those who wait for it, and leaves then; if nobody does, its load is stopped.
        """
        guest = self.book.guest(checkpoint)
        guest.least = guest.wanted = 0
        guest.pinned = False
        for replica in guest.coming():
            replica.unwelcome = True
        self.book.keep(guest)
        in_vain = [] if guest.waiters else [replica for replica in guest.coming() if replica.state is ReplicaState.LOADING]
        return [*(Abort(replica.id) for replica in in_vain), *(self._drain(replica) for replica in guest.ready()), *self.advance()]

    def evacuate(self, replica_id: int) -> list[Command]:
        """The place of a replica will go away: it is to leave, after a successor is there if it has work and there is room for one."""
        replica = self.replicas.get(replica_id)
        if replica is None or replica.state is ReplicaState.DRAINING:
            return []
        if replica.state is ReplicaState.LOADING:
            return [Abort(replica_id)]
        replica.unwelcome = True
        self.book.tend(self.book.guests[replica.checkpoint])
        return self.advance()

    def resize(self, slots: int) -> list[Command]:
        """There are this many slots now. Loads that have none any more are stopped, the last begun first."""
        self.slots = slots
        loading = [replica for replica in self.replicas.values() if replica.state is ReplicaState.LOADING]
        excess = max(0, len(self.replicas) - len(self.book.leaving) - slots)
        return [*(Abort(replica.id) for replica in loading[::-1][:excess]), *self.advance()]

    def adopt(self, replica_id: int, checkpoint: str, state: ReplicaState, size_bytes: int = 0) -> list[Command]:
        """A replica is there already, from an earlier life of the house. Ids given out from now on are higher than its own."""
        guest = self.book.guest(checkpoint)
        guest.size_bytes = guest.size_bytes or size_bytes
        replica = self.book.add(guest, self.clock(), replica_id)
        if state is not ReplicaState.LOADING:
            self.book.arrive(replica, replica.begun_at)
        self.epoch += 1
        return [self._drain(replica)] if state is ReplicaState.DRAINING else []

    def loaded(self, replica_id: int, size_bytes: int = 0) -> list[Command]:
        """A load has ended well, and the replica holds this much."""
        replica = self.replicas.get(replica_id)
        if replica is None or replica.state is not ReplicaState.LOADING:
            return []
        guest = self.book.guests[replica.checkpoint]
        self.book.arrive(replica, self.clock())
        guest.reload_s = (replica.ready_at - replica.begun_at) // RELOAD_STEP_S * RELOAD_STEP_S
        if size_bytes:
            self.book.weigh(replica, size_bytes)
        self.epoch += 1
        ready = tuple(replica.id for replica in guest.ready())
        commands: list[Command] = [Grant(ticket, ready) for ticket in guest.waiters]
        guest.waiters.clear()
        return [*commands, *self.advance()]

    def failed(self, replica_id: int, error: BaseException) -> list[Command]:
        """A load has failed; its slot is free."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return []
        self.book.remove(replica)
        guest = self.book.guests[replica.checkpoint]
        guest.wanted, guest.not_before = 0, self.clock() + RETRY_S
        return [*([] if guest.coming() else self._refuse(guest, error)), *self.advance()]

    def report(self, replica_id: int, last_used: float, in_flight: int) -> None:
        """An agent has said when it was last used and what is on it."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return
        replica.last_used = max(replica.last_used, last_used)
        replica.in_flight = in_flight
        guest = self.book.guests[replica.checkpoint]
        if guest.measure(self.clock(), self.busy_depth, self.busy_s):
            self.book.tend(guest)

    def emptied(self, replica_id: int) -> list[Command]:
        """A draining replica has finished all that it had accepted."""
        replica = self.replicas.get(replica_id)
        return [] if replica is None else [Close(replica_id, replica.checkpoint)]

    def gone(self, replica_id: int) -> list[Command]:
        """A replica is dead, as ordered or not; its slot is free."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return []
        self.book.remove(replica)
        self.epoch += 1
        guest = self.book.guests[replica.checkpoint]
        if guest.waiters and not guest.coming() and guest.name not in self.book.queue:
            self.book.queue = {guest.name: None, **self.book.queue}  # they were served before everybody who still waits
        return self.advance()

    def advance(self) -> list[Command]:
        """Starts what can be started. Also to be called as time passes, since a replica may have stayed long enough by now."""
        now = self.clock()
        thinned_out = self._thin_out(now) if self.book.tended else []
        return [*thinned_out, *self._admit(now)] if self.book.tended or self.book.queue else thinned_out

    def _thin_out(self, now: float) -> list[Command]:
        """Lets replicas go that are not needed: idle ones beyond the least, and those whose place goes away."""
        commands: list[Command] = []
        for guest in self.book.in_care():
            commands += [self._drain(replica) for replica in guest.spare(now, self.idle_s)]
            for replica in guest.moving():
                room = self._room(len(self.replicas), self.book.held_bytes)
                no_successor = not guest.welcome() and not room.holds(guest.size_bytes)
                if guest.staying() or no_successor or not guest.needs_successor(replica):
                    commands.append(self._drain(replica))
            if guest.settled():
                self.book.tended.discard(guest.name)
        return commands

    def _admit(self, now: float) -> list[Command]:
        """Loads what there is room for, in order, and makes room for those who wait for the rest."""
        commands: list[Command] = []
        free = self._room(len(self.replicas), self.book.held_bytes)
        soon: Room | None = None  # once somebody has to wait: what is free, and what those who leave will leave
        for guest, may_evict in self._in_need(now):
            if soon is None and free.holds(guest.size_bytes):
                free.take(guest.size_bytes)
                commands.append(Load(self.book.add(guest, now).id, guest.name))
                continue
            if not may_evict:
                continue
            if soon is None or not soon.holds(guest.size_bytes):
                if (reason := self._never(guest, guest.welcome() + 1)) is not None:
                    commands += [] if guest.coming() else self._refuse(guest, NoRoomError(reason))
                    if guest.owed() and reason != guest.forgone:
                        guest.forgone = reason
                        commands.append(Forgo(guest.name, NoRoomError(reason)))
                    continue
                soon = soon or free.plus(*self.book.leaving.values())
                if not soon.holds(guest.size_bytes):
                    victims = self._victims(guest, soon, now)
                    commands += [self._drain(victim) for victim in victims]
                    soon = soon.plus(*victims)
                    if not victims:
                        break
            soon.take(guest.size_bytes)
        return commands

    def _in_need(self, now: float) -> Iterator[tuple[Guest, bool]]:
        """Checkpoints that need one more replica, and whether others have to go for it: to be kept, waited for, and busy, in this order."""
        tended = [guest for guest in self.book.in_care() if guest.not_before <= now]
        owed = {guest.name: guest.owed() for guest in tended}
        for guest in tended:
            yield from itertools.repeat((guest, True), owed[guest.name])
        for name in tuple(self.book.queue):
            if not owed.get(name):
                yield self.book.guests[name], True
        for guest in tended:
            if guest.name not in self.book.queue:
                yield from itertools.repeat((guest, False), guest.lacking() - guest.owed())

    def _victims(self, newcomer: Guest, soon: Room, now: float) -> list[Replica]:
        """Who leaves for a newcomer; nobody, if it would not be enough."""
        candidates: list[tuple[bool, float, int]] = []
        for replica in self.book.arrived.values():
            if replica.ready_at + self.min_residency_s > now:
                break  # and so it is with all that have come after it
            if replica.checkpoint != newcomer.name:
                leaves_at = replica.last_used + self.book.guests[replica.checkpoint].reload_s
                candidates.append((replica.in_flight > 0, leaves_at, replica.id))
        heapq.heapify(candidates)  # nearly always the first one is enough
        chosen: list[Replica] = []
        while candidates:
            replica = self.replicas[heapq.heappop(candidates)[-1]]
            guest = self.book.guests[replica.checkpoint]
            if guest.dispensable() > sum(other.checkpoint == guest.name for other in chosen):
                chosen.append(replica)
                if soon.plus(*chosen).holds(newcomer.size_bytes):
                    return chosen
        return []

    def _never(self, guest: Guest, replicas: int) -> str | None:
        """Why there will be no room for so many replicas whoever leaves of their own accord, or None if there may be."""
        kept = [(other.kept(), other) for other in self.book.keepers() if other is not guest]
        room = self._room(sum(count for count, _ in kept), sum(count * other.size_bytes for count, other in kept))
        if replicas <= room.slots and replicas * guest.size_bytes <= room.size_bytes:
            return None
        size = "" if self.capacity_bytes is None else f" and {self.capacity_bytes} bytes, each needs {guest.size_bytes}"
        others = "".join(f"; {other.name!r} keeps {count}" for count, other in kept if count)
        return f"no room for {replicas} of {guest.name!r}: {self.slots} slots{size}{others}; unpin or scale down another, or add room"

    def _room(self, slots_taken: int, bytes_taken: int) -> Room:
        return Room(self.slots - slots_taken, (math.inf if self.capacity_bytes is None else self.capacity_bytes) - bytes_taken)

    def _refuse(self, guest: Guest, error: BaseException) -> list[Command]:
        refused: list[Command] = [Refuse(ticket, error) for ticket in guest.waiters]
        guest.waiters.clear()
        self.book.queue.pop(guest.name, None)
        return refused

    def _drain(self, replica: Replica) -> Drain:
        self.book.leave(replica)
        self.epoch += 1
        return Drain(replica.id)
