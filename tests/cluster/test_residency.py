"""The rules of cluster.residency: by example, and over random orders of events."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.residency import Close, Command, Drain, Grant, Load, NoRoomError, Refuse, ReplicaState, Residency


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def hotel(clock: Clock, slots: int = 2, min_residency_s: float = 10.0) -> Residency:
    return Residency(slots, min_residency_s, clock)


def settle(residency: Residency, *names: str) -> None:
    """Loads checkpoints into free slots, one after the other."""
    for ticket, name in enumerate(names):
        (load,) = residency.place(name, -1 - ticket)
        assert isinstance(load, Load)
        residency.loaded(load.replica)


def test_the_first_request_loads_and_is_granted_when_the_load_ends(clock):
    residency = hotel(clock)
    assert residency.place("a", 7) == [Load(0, "a")]
    assert residency.place("a", 8) == []
    assert residency.loaded(0) == [Grant(7, (0,)), Grant(8, (0,))]
    assert residency.place("a", 9) == [Grant(9, (0,))]


def test_two_checkpoints_load_side_by_side(clock):
    residency = hotel(clock)
    assert residency.place("a", 1) == [Load(0, "a")]
    assert residency.place("b", 2) == [Load(1, "b")]


def test_a_failed_load_gives_its_slot_back_and_reaches_every_waiter(clock):
    residency = hotel(clock, slots=1)
    residency.place("a", 1)
    residency.place("a", 2)
    residency.place("b", 3)
    error = RuntimeError("no such file")
    assert residency.failed(0, error) == [Refuse(1, error), Refuse(2, error), Load(1, "b")]
    assert residency.loaded(1) == [Grant(3, (1,))]


def test_the_replica_unused_for_longest_leaves(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.place("a", 1)
    assert residency.place("c", 2) == [Drain(1)]


def test_an_idle_replica_leaves_before_a_busy_one_that_was_used_earlier(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.report(0, last_used=1.0, in_flight=3)
    residency.report(1, last_used=19.0, in_flight=0)
    assert residency.place("c", 1) == [Drain(1)]


def test_a_slot_is_free_only_when_its_replica_is_gone(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    clock.now = 20.0
    assert residency.place("b", 1) == [Drain(0)]
    assert residency.emptied(0) == [Close(0, "a")]
    assert residency.gone(0) == [Load(1, "b")]


def test_nobody_leaves_before_the_minimum_residency(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    clock.now = 9.0
    assert residency.place("b", 1) == []
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]


def test_a_draining_replica_grants_nothing(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    clock.now = 20.0
    residency.place("b", 1)
    assert residency.place("a", 2) == []
    assert residency.ready("a") == []


def test_a_pinned_checkpoint_stays_and_a_full_house_of_them_refuses(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.pinned.add("a")
    assert residency.place("c", 1) == [Drain(1)]
    residency.emptied(1)
    residency.gone(1)
    residency.loaded(2)
    residency.pinned.add("c")
    clock.now = 40.0
    (refusal,) = residency.place("d", 2)
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, NoRoomError)


def test_scale_keeps_as_many_replicas_as_asked_for(clock):
    residency = hotel(clock)
    assert residency.scale("a", 2) == [Load(0, "a"), Load(1, "a")]
    residency.loaded(0)
    residency.loaded(1)
    assert residency.gone(1) == [Load(2, "a")]
    residency.loaded(2)
    assert residency.scale("a", 1) == [Drain(0)]


def test_scale_beyond_the_slots_is_refused(clock):
    with pytest.raises(NoRoomError, match="there are 2 slots"):
        hotel(clock).scale("a", 3)


def test_what_others_are_to_keep_is_not_given_away(clock):
    residency = hotel(clock)
    residency.scale("a", 1)
    residency.pinned.add("b")
    with pytest.raises(NoRoomError, match="others keep"):
        residency.scale("c", 1)
    assert residency.wanted("c") == 0
    residency.release("b")
    assert residency.scale("c", 1) == [Load(1, "c")]


def test_a_failed_load_ends_the_wish_for_replicas(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.failed(0, RuntimeError())
    assert residency.wanted("a") == 0


def test_released_while_it_loads_it_leaves_as_soon_as_it_has_arrived(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    assert residency.release("a") == []
    assert residency.loaded(0) == [Grant(1, (0,)), Drain(0)]  # whoever waited has it, for as long as it is there
    assert residency.emptied(0) == [Close(0, "a")]
    assert residency.gone(0) == []


def test_a_death_frees_the_slot(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.place("b", 1)
    assert residency.gone(0) == [Load(1, "b")]


def test_the_epoch_grows_with_every_change_of_who_is_ready(clock):
    residency = hotel(clock, slots=1)
    epochs = [residency.epoch]
    settle(residency, "a")
    epochs.append(residency.epoch)
    clock.now = 20.0
    residency.place("b", 1)
    epochs.append(residency.epoch)
    residency.emptied(0)
    residency.gone(0)
    epochs.append(residency.epoch)
    assert epochs == sorted(set(epochs))


NAMES = st.sampled_from("abcd")


class AnyOrder(RuleBasedStateMachine):
    """Random events; the machine obeys commands in any order, late or never, as a cluster would."""

    @initialize(slots=st.integers(1, 3))
    def open(self, slots: int) -> None:
        self.clock = Clock()
        self.residency = Residency(slots, 5.0, self.clock)
        self.loading: list[int] = []
        self.draining: list[int] = []
        self.closing: list[int] = []
        self.empty: set[int] = set()
        self.waiting: dict[int, str] = {}
        self.ticket = 0

    def obey(self, commands: list[Command]) -> None:
        granted: dict[str, list[int]] = {}
        for command in commands:
            match command:
                case Load(replica, _):
                    self.loading.append(replica)
                case Drain(replica):
                    assert replica not in self.draining
                    self.draining.append(replica)
                case Close(replica, _):
                    assert replica in self.empty, "closed before it had reported empty"
                    self.closing.append(replica)
                case Grant(ticket, replicas):
                    name = self.waiting.pop(ticket)
                    assert replicas, "granted, but nobody is ready"
                    for replica in replicas:  # one that is not welcome any more may leave at once
                        assert self.residency.replicas[replica].checkpoint == name
                        assert replica not in self.loading
                    granted.setdefault(name, []).append(ticket)
                case Refuse(ticket, _):
                    del self.waiting[ticket]
        for tickets in granted.values():
            assert tickets == sorted(tickets), "waiters out of order"

    @rule(name=NAMES)
    def place(self, name: str) -> None:
        self.ticket += 1
        self.waiting[self.ticket] = name
        self.obey(self.residency.place(name, self.ticket))

    @rule(data=st.data())
    @precondition(lambda self: self.waiting)
    def abandon(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ticket]
        self.residency.abandon(ticket)

    @rule(name=NAMES, share=st.integers(0, 3))
    def scale(self, name: str, share: int) -> None:
        with suppress(NoRoomError):
            self.obey(self.residency.scale(name, share))

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        self.obey(self.residency.release(name))

    @rule(data=st.data(), works=st.booleans())
    @precondition(lambda self: self.loading)
    def finish_load(self, data: st.DataObject, works: bool) -> None:
        replica = data.draw(st.sampled_from(self.loading))
        self.loading.remove(replica)
        self.obey(self.residency.loaded(replica) if works else self.residency.failed(replica, RuntimeError("broken")))

    @rule(data=st.data())
    @precondition(lambda self: self.draining)
    def finish_drain(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(self.draining))
        self.draining.remove(replica)
        self.empty.add(replica)
        self.obey(self.residency.emptied(replica))

    @rule(data=st.data())
    @precondition(lambda self: self.closing)
    def finish_close(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(self.closing))
        self.closing.remove(replica)
        self.obey(self.residency.gone(replica))

    @rule(data=st.data())
    @precondition(lambda self: self.residency.replicas)
    def die(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(sorted(self.residency.replicas)))
        for doing in (self.loading, self.draining, self.closing):
            if replica in doing:
                doing.remove(replica)
        self.obey(self.residency.gone(replica))

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.obey(self.residency.advance())

    @invariant()
    def never_over_capacity(self) -> None:
        assert len(self.residency.replicas) <= self.residency.slots

    @invariant()
    def everyone_ready_is_served(self) -> None:
        for name in self.waiting.values():
            assert not self.residency.ready(name), "somebody waits for a checkpoint that is ready"

    @invariant()
    def the_shell_knows_what_each_replica_is_doing(self) -> None:
        for replica in self.residency.replicas.values():
            doing = (replica.id in self.loading, replica.id in self.draining or replica.id in self.closing)
            assert doing == (replica.state is ReplicaState.LOADING, replica.state is ReplicaState.DRAINING)

    def teardown(self) -> None:
        """When all work is done and time passes, nobody waits any more: no waiter is lost and no checkpoint starves."""
        if not hasattr(self, "residency"):
            return
        for _ in range(200):
            if not self.waiting:
                return
            for replica in list(self.loading):
                self.loading.remove(replica)
                self.obey(self.residency.loaded(replica))
            for replica in list(self.draining):
                self.draining.remove(replica)
                self.empty.add(replica)
                self.obey(self.residency.emptied(replica))
            for replica in list(self.closing):
                self.closing.remove(replica)
                self.obey(self.residency.gone(replica))
            self.wait(6.0)
        raise AssertionError(f"still waiting: {self.waiting} on {self.residency.replicas}")


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
