"""The rules of cluster.residency over random orders of events, and over a long time."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.commands import Abort, Close, Command, Drain, Forgo, Grant, Load, NoRoomError, Refuse
from cluster.guests import Guest, ReplicaState
from cluster.residency import Residency

NAMES = st.sampled_from("abcd")
CAPACITY = 100
MIN_RESIDENCY_S = 5.0
IDLE_S = 20.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class AnyOrder(RuleBasedStateMachine):
    """Random events; the machine obeys commands in any order, late or never, as a cluster would.

    It keeps books of its own: `doing` says what the shell does with every replica that is alive, and `waiting` who waits for what.
    """

    @initialize(
        slots=st.integers(1, 4),
        sizes=st.tuples(*[st.integers(10, 110)] * 4),
        capacity=st.sampled_from([None, CAPACITY]),
        honest=st.booleans(),
        adopted=st.dictionaries(st.integers(0, 9), st.tuples(NAMES, st.sampled_from(ReplicaState)), max_size=2),
    )
    def open(
        self, slots: int, sizes: tuple[int, ...], capacity: int | None, honest: bool, adopted: dict[int, tuple[str, ReplicaState]]
    ) -> None:
        self.clock = Clock()
        self.residency = Residency(slots, MIN_RESIDENCY_S, self.clock, capacity, idle_s=IDLE_S)
        self.size = dict(zip("abcd", sizes, strict=True))
        self.honest = honest
        self.doing: dict[int, str] = {}
        self.ever: set[int] = set()
        self.aborted: set[int] = set()
        self.told_to_leave: set[int] = set()
        self.waiting: dict[int, str] = {}
        self.ticket = 0
        self.moved_on = True  # the last event has let time pass for the residency
        if honest:
            for name, size in self.size.items():
                self.obey(self.residency.describe(name, 0, 1, size))
        for replica, (name, state) in list(adopted.items())[:slots]:
            if capacity is None or not honest or self.bytes_there() + self.size[name] <= capacity:
                self.doing[replica] = "loading" if state is ReplicaState.LOADING else "ready"
                self.ever.add(replica)
                self.told_to_leave |= {replica} if state is ReplicaState.DRAINING else set()
                self.obey(self.residency.adopt(replica, name, state, self.size[name]))

    # what the machine knows

    def guest(self, name: str) -> Guest:
        return self.residency.book.guest(name)

    def bytes_there(self) -> int:
        return sum(self.size[self.residency.replicas[replica].checkpoint] for replica in self.doing)

    def pick(self, data: st.DataObject, *doing: str) -> int:
        return data.draw(st.sampled_from(sorted(replica for replica, what in self.doing.items() if what in doing)))

    def any_doing(self, *doing: str) -> bool:
        return any(what in doing for what in self.doing.values())

    def could_keep(self) -> dict[str, int]:
        """At most what each checkpoint keeps from others."""
        guests = self.residency.book.guests.values()
        return {guest.name: max(guest.least, len(guest.coming()) if guest.pinned else 0) for guest in guests}

    # commands are obeyed, and looked at

    def obey(self, commands: list[Command], told: str | None = None) -> None:
        """Notes what is asked for; ``told`` is the checkpoint whose replicas were told to leave, or may be fewer."""
        self.moved_on = True
        granted: dict[str, list[int]] = {}
        drained = {command.replica for command in commands if isinstance(command, Drain)}
        for command in commands:
            match command:
                case Load(replica, name):
                    self.may_load(replica, name)
                    self.doing[replica] = "loading"
                    self.ever.add(replica)
                case Abort(replica):
                    assert self.doing[replica] == "loading"
                    self.aborted.add(replica)
                case Drain(replica):
                    assert self.doing[replica] == "ready"
                    if self.residency.replicas[replica].checkpoint != told:
                        self.may_drain(replica)
                    self.doing[replica] = "draining"
                case Close(replica, name):
                    assert self.doing[replica] == "empty", "closed before it had reported empty"
                    assert self.residency.replicas[replica].checkpoint == name
                    self.doing[replica] = "closing"
                case Grant(ticket, replicas):
                    name = self.waiting.pop(ticket)
                    assert replicas, "granted, but nobody is ready"
                    for replica in replicas:  # one that is not welcome any more may leave at once
                        assert self.residency.replicas[replica].checkpoint == name
                        assert self.doing[replica] == "ready"
                        assert self.residency.replicas[replica].state is ReplicaState.READY or replica in drained
                    granted.setdefault(name, []).append(ticket)
                case Forgo(name, error):
                    assert self.guest(name).owed()
                    assert repr(name) in str(error)
                case Refuse(ticket, error):
                    name = self.waiting.pop(ticket)
                    assert not self.residency.ready(name)
                    if isinstance(error, NoRoomError):
                        self.may_refuse(name)
        for tickets in granted.values():
            assert tickets == sorted(tickets), "waiters out of order"

    def may_load(self, replica: int, name: str) -> None:
        assert replica not in self.ever
        assert self.residency.replicas[replica].checkpoint == name
        assert len(self.doing) < self.residency.slots, "a load without a slot"
        if self.honest and self.residency.capacity_bytes is not None:
            assert self.bytes_there() + self.size[name] <= self.residency.capacity_bytes, "a load without room"
        guest = self.guest(name)
        assert len(guest.coming()) <= max(guest.least, guest.most, 1) + len([kin for kin in guest.coming() if kin.unwelcome])

    def may_drain(self, replica_id: int) -> None:
        replica = self.residency.replicas[replica_id]
        guest = self.guest(replica.checkpoint)
        if replica_id in self.told_to_leave:
            return
        stay = len(self.residency.ready(guest.name))  # with all commands of this event obeyed
        idle = not replica.in_flight and max(replica.last_used, replica.ready_at) + IDLE_S <= self.clock.now
        if idle and stay >= max(guest.least, 1):
            return
        assert not guest.pinned, "a pinned one was turned out"
        assert stay >= guest.least, "fewer than the least"
        assert replica.ready_at + MIN_RESIDENCY_S <= self.clock.now, "turned out before its time"
        others = [other for other in self.residency.book.guests.values() if other is not guest]
        assert any((other.waiters and not other.coming()) or other.owed() for other in others), "turned out for nobody"

    def may_refuse(self, name: str) -> None:
        kept = {other: count for other, count in self.could_keep().items() if other != name}
        no_slot = sum(kept.values()) >= self.residency.slots
        capacity = self.residency.capacity_bytes
        need = sum(count * self.guest(other).size_bytes for other, count in kept.items()) + self.guest(name).size_bytes
        assert no_slot or (capacity is not None and need > capacity), "refused, though there may be room"

    # events

    @rule(name=NAMES)
    def place(self, name: str) -> None:
        self.ticket += 1
        self.waiting[self.ticket] = name
        self.obey(self.residency.place(name, self.ticket))

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        self.residency.touch(name)

    @rule(data=st.data())
    @precondition(lambda self: self.waiting)
    def abandon(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        self.obey(self.residency.abandon(self.waiting.pop(ticket), ticket))
        self.moved_on = False

    @rule(name=NAMES, share=st.integers(0, 3))
    def scale(self, name: str, share: int) -> None:
        with suppress(NoRoomError):
            self.obey(self.residency.scale(name, share), told=name)

    @rule(name=NAMES, least=st.integers(0, 2), most=st.integers(0, 3))
    def describe(self, name: str, least: int, most: int) -> None:
        self.obey(self.residency.describe(name, least, most))

    @rule(name=NAMES)
    def pin(self, name: str) -> None:
        self.residency.pin(name)
        self.moved_on = False

    @rule(name=NAMES)
    def unpin(self, name: str) -> None:
        self.obey(self.residency.unpin(name))

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        self.told_to_leave |= {replica.id for replica in self.guest(name).coming()}
        self.obey(self.residency.release(name))
        assert not self.residency.ready(name)

    @rule(data=st.data())
    @precondition(lambda self: self.doing)
    def evacuate(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(sorted(self.doing)))
        self.told_to_leave.add(replica)
        self.obey(self.residency.evacuate(replica))

    @rule(slots=st.integers(0, 4))
    def resize(self, slots: int) -> None:
        self.obey(self.residency.resize(slots))
        there = [what for replica, what in self.doing.items() if replica not in self.aborted]
        assert "loading" not in there or sum(what in ("loading", "ready") for what in there) <= slots

    @rule(data=st.data(), works=st.booleans())
    @precondition(lambda self: self.any_doing("loading"))
    def finish_load(self, data: st.DataObject, works: bool) -> None:
        replica = self.pick(data, "loading")
        if works:
            self.doing[replica] = "ready"
            self.obey(self.residency.loaded(replica, self.size[self.residency.replicas[replica].checkpoint]))
        else:
            del self.doing[replica]
            self.obey(self.residency.failed(replica, RuntimeError("broken")))

    @rule(data=st.data())
    @precondition(lambda self: self.any_doing("draining"))
    def finish_drain(self, data: st.DataObject) -> None:
        replica = self.pick(data, "draining")
        self.doing[replica] = "empty"
        self.obey(self.residency.emptied(replica))
        assert self.doing[replica] == "closing"

    @rule(data=st.data())
    @precondition(lambda self: self.any_doing("closing"))
    def finish_close(self, data: st.DataObject) -> None:
        self.is_gone(self.pick(data, "closing"))

    @rule(data=st.data())
    @precondition(lambda self: self.aborted & self.doing.keys())
    def finish_abort(self, data: st.DataObject) -> None:
        self.is_gone(data.draw(st.sampled_from(sorted(self.aborted & self.doing.keys()))))

    @rule(data=st.data())
    @precondition(lambda self: self.doing)
    def die(self, data: st.DataObject) -> None:
        self.is_gone(data.draw(st.sampled_from(sorted(self.doing))))

    def is_gone(self, replica: int) -> None:
        del self.doing[replica]
        epoch = self.residency.epoch
        self.obey(self.residency.gone(replica))
        assert self.residency.epoch > epoch

    @rule(data=st.data(), in_flight=st.integers(0, 6), ago=st.floats(0, 30))
    @precondition(lambda self: self.doing)
    def report(self, data: st.DataObject, in_flight: int, ago: float) -> None:
        replica = data.draw(st.sampled_from(sorted(self.doing)))
        self.residency.report(replica, self.clock.now - ago, in_flight)
        self.moved_on = False

    @rule(busy=st.booleans())
    def report_all(self, busy: bool) -> None:
        for replica in list(self.doing):
            self.residency.report(replica, self.clock.now, 5 * busy)
        self.clock.now += 1.0
        self.obey(self.residency.advance())

    @rule(seconds=st.sampled_from([0.5, 2.5, 5.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.obey(self.residency.advance())

    # what always holds

    @invariant()
    def everyone_ready_is_served(self) -> None:
        for name in self.waiting.values():
            assert not self.residency.ready(name), "somebody waits for a checkpoint that is ready"

    @invariant()
    def the_shell_knows_what_each_replica_is_doing(self) -> None:
        states = {"loading": ReplicaState.LOADING, "ready": ReplicaState.READY}
        there = {replica: states.get(what, ReplicaState.DRAINING) for replica, what in self.doing.items()}
        assert there == {replica.id: replica.state for replica in self.residency.replicas.values()}

    @invariant()
    def the_book_is_right(self) -> None:
        book = self.residency.book
        replicas = list(book.replicas.values())
        assert book.held_bytes == sum(replica.size_bytes for replica in replicas)
        assert book.leaving == {replica.id: replica for replica in replicas if replica.state is ReplicaState.DRAINING}
        assert book.arrived == {replica.id: replica for replica in replicas if replica.state is ReplicaState.READY}
        arrivals = [replica.ready_at for replica in book.arrived.values()]
        assert arrivals == sorted(arrivals)
        guests = book.guests
        assert {name: list(guest.waiters) for name, guest in guests.items() if guest.waiters} == {
            name: [ticket for ticket, whose in self.waiting.items() if whose == name] for name in self.waiting.values()
        }
        assert book.queue.keys() == {name for name, guest in guests.items() if guest.waiters and not guest.coming()}
        assert book.keeping == {name for name, guest in guests.items() if guest.pinned or guest.least}
        assert book.tended >= {name for name, guest in guests.items() if not guest.settled()}
        for guest in guests.values():
            assert guest.replicas == {replica.id: replica for replica in replicas if replica.checkpoint == guest.name}
        if self.honest:
            assert all(replica.size_bytes == self.size[replica.checkpoint] for replica in replicas)

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        if not self.moved_on:
            return
        book = self.residency.book
        free_slots = self.residency.slots - len(self.doing)
        capacity = self.residency.capacity_bytes
        due = [guest for name, guest in book.guests.items() if guest.owed() and guest.not_before <= self.clock.now]
        first = [book.guests[name] for name in book.queue][:1]
        if len(due) <= 1:  # of several to be kept the first may be in the way of the next
            for guest in due or first:
                assert free_slots <= 0 or (capacity is not None and book.held_bytes + guest.size_bytes > capacity)

    def teardown(self) -> None:
        """When all work is done and time passes, nobody waits, nothing starves, and what is to be kept is there if it can be."""
        if not hasattr(self, "residency"):
            return
        for _ in range(60):
            self.finish_all()
            self.wait(6.0)
        assert not self.waiting, f"still waiting: {self.waiting} on {self.residency.replicas}"
        self.finish_all()
        assert not self.any_doing("loading", "draining", "closing"), "it does not come to rest"
        if self.residency.capacity_bytes is None and sum(self.could_keep().values()) <= self.residency.slots:
            assert not any(guest.owed() for guest in self.residency.book.guests.values())

    def finish_all(self) -> None:
        for replica, what in list(self.doing.items()):
            if replica in self.aborted:
                self.is_gone(replica)
            elif what == "loading":
                self.doing[replica] = "ready"
                self.obey(self.residency.loaded(replica, self.size[self.residency.replicas[replica].checkpoint]))
            elif what == "draining":
                self.doing[replica] = "empty"
                self.obey(self.residency.emptied(replica))
            elif what == "closing":
                self.is_gone(replica)


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


@dataclass
class Town:
    """Clients that ask for checkpoints all the time, and a house whose loads, drains and closes take their time; simulated."""

    slots: int
    seed: int
    clients: list[str]
    clock: Clock = field(default_factory=Clock)
    served: dict[str, list[float]] = field(default_factory=dict)
    evictions: int = 0

    def __post_init__(self) -> None:
        self.residency = Residency(self.slots, MIN_RESIDENCY_S, self.clock)
        self._rng = random.Random(self.seed)
        self._later: list[tuple[float, int, Command]] = []
        self._asks_at = {client: self._rng.random() for client in range(len(self.clients))}
        self._whose: dict[int, int] = {}
        self._ticket = 0

    def run(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += 0.1
            self.perform(self.residency.advance())
            due = [entry for entry in self._later if entry[0] <= self.clock.now]
            self._later = [entry for entry in self._later if entry[0] > self.clock.now]
            for _, _, command in due:
                self.perform(self.answer(command))
            for client, asks_at in list(self._asks_at.items()):
                if asks_at <= self.clock.now:
                    del self._asks_at[client]
                    self._ticket += 1
                    self._whose[self._ticket] = client
                    self.perform(self.residency.place(self.clients[client], self._ticket))

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Grant):
                client = self._whose.pop(command.ticket)
                self._asks_at[client] = self.clock.now + self._rng.random()
                self.served.setdefault(self.clients[client], []).append(self.clock.now)
            else:
                assert not isinstance(command, Refuse), command
                self.evictions += isinstance(command, Drain)
                self._later.append((self.clock.now + self._rng.random(), len(self._later), command))

    def answer(self, command: Command) -> list[Command]:
        match command:
            case Load(replica, _):
                return self.residency.loaded(replica)
            case Drain(replica):
                return self.residency.emptied(replica)
            case Close(replica, _):
                return self.residency.gone(replica)
        raise AssertionError(command)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("clients", ["abc", "aaaaaaaabc", "aabbccaabbccaabbcc"])
def test_checkpoints_that_are_asked_for_all_the_time_take_turns(slots, clients):
    town = Town(slots, seed=1, clients=list(clients))
    town.run(300.0)
    turn_s = MIN_RESIDENCY_S + 4.0  # drained, closed and loaded, each within a second, and asked for again
    for name in "abc":
        times = [0.0, *town.served[name], town.clock.now]
        assert max(later - earlier for earlier, later in pairwise(times)) <= 3 * turn_s
    assert 10 * slots <= town.evictions <= town.clock.now / MIN_RESIDENCY_S * slots


def test_what_is_to_be_kept_comes_soon_and_stays_though_others_take_turns():
    town = Town(2, seed=2, clients=list("abcabc"))
    town.run(50.0)
    town.perform(town.residency.scale("z", 1))
    town.run(MIN_RESIDENCY_S + 4.0)
    assert town.residency.ready("z")
    for _ in range(100):
        town.run(1.0)
        assert town.residency.ready("z")
