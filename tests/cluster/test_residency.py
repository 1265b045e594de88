"""The rules of cluster.residency, by example. `test_residency_orders` has them over random orders of events."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cluster.commands import Abort, Close, Command, Drain, Forgo, Grant, Load, NoRoomError, Refuse
from cluster.guests import ReplicaState
from cluster.residency import RETRY_S, Residency


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def hotel(clock: Clock, slots: int = 2, min_residency_s: float = 10.0, capacity_bytes: int | None = None) -> Residency:
    return Residency(slots, min_residency_s, clock, capacity_bytes)


def forgone(commands: list[Command]) -> list[str]:
    """The checkpoints of which commands tell that they cannot have what they are to keep."""
    return [command.checkpoint for command in commands if isinstance(command, Forgo)]


def settle(residency: Residency, *names: str) -> None:
    """Loads checkpoints into free slots, one after the other."""
    for ticket, name in enumerate(names):
        (load,) = residency.place(name, -1 - ticket)
        assert isinstance(load, Load)
        residency.loaded(load.replica)


def leave(residency: Residency, replica: int) -> list[Command]:
    """A draining replica empties, closes and is gone."""
    (close,) = residency.emptied(replica)
    assert close == Close(replica, residency.replicas[replica].checkpoint)
    return residency.gone(replica)


def states(residency: Residency) -> dict[int, str]:
    return {replica.id: replica.state.value for replica in residency.replicas.values()}


# who asks


def test_the_first_request_loads_and_is_granted_when_the_load_ends(clock):
    residency = hotel(clock)
    assert residency.place("a", 7) == [Load(0, "a")]
    assert residency.place("a", 8) == []
    assert residency.loaded(0) == [Grant(7, (0,)), Grant(8, (0,))]
    assert residency.place("a", 9) == [Grant(9, (0,))]


def test_a_grant_names_every_replica_that_is_ready(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    assert residency.place("a", 1) == [Grant(1, (0,))]
    residency.loaded(1)
    assert residency.place("a", 2) == [Grant(2, (0, 1))]


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


def test_the_next_request_after_a_failed_load_tries_again(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    residency.failed(0, RuntimeError())
    assert residency.place("a", 2) == [Load(1, "a")]


def test_a_failed_load_is_borne_by_nobody_while_another_may_end_well(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.place("a", 1)
    assert residency.failed(0, RuntimeError()) == []
    assert residency.loaded(1) == [Grant(1, (1,))]


def test_who_waits_is_served_in_order(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.place("b", 1)
    residency.place("c", 2)
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert leave(residency, 0) == [Load(1, "b")]


def test_one_who_abandons_is_not_granted_and_no_room_is_made_for_them(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.place("b", 1)
    residency.place("c", 2)
    residency.abandon("b", 1)
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert leave(residency, 0) == [Load(1, "c")]
    residency.abandon("c", 2)
    assert residency.loaded(1) == []
    assert residency.place("c", 3) == [Grant(3, (1,))]


def test_when_the_first_in_the_queue_abandons_the_next_begins(clock):
    residency = Residency(2, 10.0, clock, capacity_bytes=10)
    for name, size in (("a", 6), ("b", 6), ("c", 4)):
        residency.describe(name, 0, 1, size)
    settle(residency, "a")
    assert residency.place("b", 1) == []  # a may stay for a while
    assert residency.place("c", 2) == []  # it would fit, and waits its turn
    assert residency.abandon("b", 1) == [Load(1, "c")]


def test_one_who_abandons_leaves_the_others_of_the_same_checkpoint_in_their_place(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    for ticket, name in enumerate(("b", "c", "b"), 1):
        residency.place(name, ticket)
    residency.abandon("b", 1)
    clock.now = 10.0
    residency.advance()
    assert leave(residency, 0) == [Load(1, "b")]
    assert residency.loaded(1) == [Grant(3, (1,))]


# who leaves


def test_nobody_leaves_a_house_with_room(clock):
    residency = hotel(clock, slots=3)
    settle(residency, "a", "b")
    clock.now = 1000.0
    assert residency.advance() == []
    assert residency.place("c", 1) == [Load(2, "c")]


def test_the_replica_unused_for_longest_leaves(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.place("a", 1)
    assert residency.place("c", 2) == [Drain(1)]


def test_what_was_touched_counts_as_used(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.touch("a")
    assert residency.book.ready_names() == ["b", "a"]
    assert residency.place("c", 2) == [Drain(1)]


def test_an_agents_report_counts_as_use_but_an_old_one_takes_nothing_back(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.report(0, last_used=15.0, in_flight=0)
    residency.report(0, last_used=-1.0, in_flight=0)
    assert residency.place("c", 2) == [Drain(1)]


def test_an_idle_replica_leaves_before_a_busy_one_that_was_used_earlier(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.report(0, last_used=1.0, in_flight=3)
    residency.report(1, last_used=19.0, in_flight=0)
    assert residency.place("c", 1) == [Drain(1)]


def test_one_that_is_slow_to_come_back_stays_longer(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    clock.now = 30.0
    residency.loaded(0)  # took 30 s
    residency.place("b", 2)
    residency.loaded(1)  # took none
    clock.now = 50.0
    residency.place("b", 3)  # used 20 s after a
    assert residency.place("c", 4) == [Drain(1)]


def test_used_much_earlier_even_a_slow_one_leaves(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    clock.now = 30.0
    residency.loaded(0)
    residency.place("b", 2)
    residency.loaded(1)
    clock.now = 61.0
    residency.place("b", 3)
    assert residency.place("c", 4) == [Drain(0)]


def test_loads_that_differ_by_seconds_are_alike(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    clock.now = 9.0
    residency.loaded(0)  # took 9 s
    residency.place("b", 2)
    residency.loaded(1)  # took none
    clock.now = 20.0
    residency.place("b", 3)
    assert residency.place("c", 4) == [Drain(0)]


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


def test_the_residency_is_counted_from_the_end_of_the_load(clock):
    residency = hotel(clock, slots=1)
    residency.place("a", 1)
    clock.now = 100.0
    residency.loaded(0)
    clock.now = 109.0
    assert residency.place("b", 2) == []
    clock.now = 110.0
    assert residency.advance() == [Drain(0)]


def test_a_slot_is_cleared_at_most_once_in_a_residency(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    evictions = []
    waiting = 0
    for step in range(100):  # two that take turns, asked for all the time
        clock.now = step * 1.0
        commands = residency.place("ab"[step % 2], step)
        while commands:
            command = commands.pop(0)
            if isinstance(command, Drain):
                evictions.append(clock.now)
                commands += leave(residency, command.replica)
            elif isinstance(command, Load):
                commands += residency.loaded(command.replica)
            elif isinstance(command, Grant):
                waiting += 1
    assert len(evictions) == 9
    assert all(later - earlier >= 10.0 for earlier, later in pairwise(evictions))


def test_several_leave_at_a_time_for_several_who_wait(clock):
    residency = hotel(clock, slots=3)
    settle(residency, "a", "b", "c")
    residency.place("d", 1)
    residency.place("e", 2)
    clock.now = 10.0
    assert residency.advance() == [Drain(0), Drain(1)]


def test_who_leaves_already_is_enough_for_the_one_who_waits(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    assert residency.place("c", 1) == [Drain(0)]
    assert residency.advance() == []
    assert residency.place("d", 2) == [Drain(1)]
    assert residency.place("e", 3) == []


def test_a_draining_replica_grants_nothing(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    clock.now = 20.0
    residency.place("b", 1)
    assert residency.place("a", 2) == []
    assert residency.ready("a") == []


def test_a_full_house_whose_loads_may_still_leave_does_not_refuse(clock):
    residency = hotel(clock, slots=1)
    residency.place("a", 1)
    assert residency.place("b", 2) == []


# bytes


def test_bytes_are_taken_when_a_load_starts(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    for name, size in (("a", 60), ("b", 60), ("c", 40)):
        residency.describe(name, 0, 1, size)
    assert residency.place("a", 1) == [Load(0, "a")]
    assert residency.place("b", 2) == []
    assert residency.book.held_bytes == 60


def test_bytes_are_given_back_when_a_load_fails(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    residency.describe("a", 0, 1, 60)
    residency.describe("b", 0, 1, 60)
    residency.place("a", 1)
    residency.place("b", 2)
    error = RuntimeError()
    assert residency.failed(0, error) == [Refuse(1, error), Load(1, "b")]
    assert residency.book.held_bytes == 60


def test_bytes_are_free_again_when_a_replica_is_gone(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    residency.describe("a", 0, 1, 60)
    settle(residency, "a")
    residency.release("a")
    residency.emptied(0)
    assert residency.book.held_bytes == 60
    residency.gone(0)
    assert residency.book.held_bytes == 0


def test_what_a_replica_holds_is_corrected_once_it_is_loaded(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    residency.describe("a", 0, 1, 10)
    residency.describe("b", 0, 1, 60)
    residency.place("a", 1)
    residency.loaded(0, 50)
    assert residency.book.held_bytes == 50
    assert residency.place("b", 2) == []


def test_a_corrected_size_is_what_the_next_load_takes(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    residency.place("a", 1)
    residency.loaded(0, 50)
    leave(residency, residency.release("a")[0].replica)  # type: ignore[union-attr]
    residency.describe("a", 0, 1, 7)  # a guess; what was measured is better
    residency.place("a", 2)
    assert residency.book.held_bytes == 50


def test_a_load_that_tells_no_size_leaves_it_as_described(clock):
    residency = hotel(clock, capacity_bytes=100)
    residency.describe("a", 0, 1, 30)
    residency.place("a", 1)
    residency.loaded(0)
    assert residency.book.held_bytes == 30


def test_a_smaller_size_than_described_makes_room_at_once(clock):
    residency = hotel(clock, capacity_bytes=100)
    residency.describe("a", 0, 1, 90)
    residency.describe("b", 0, 1, 50)
    residency.place("a", 1)
    assert residency.place("b", 2) == []
    assert residency.loaded(0, 50) == [Grant(1, (0,)), Load(1, "b")]


def test_two_leave_for_a_big_newcomer(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    for name, size in (("a", 40), ("b", 40), ("c", 80)):
        residency.describe(name, 0, 1, size)
    settle(residency, "a", "b")
    clock.now = 10.0
    assert residency.place("c", 1) == [Drain(0), Drain(1)]
    assert leave(residency, 1) == []
    assert leave(residency, 0) == [Load(2, "c")]


def test_nobody_leaves_when_it_would_not_be_enough(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    for name, size in (("a", 40), ("b", 40), ("c", 80)):
        residency.describe(name, 0, 1, size)
    settle(residency, "a")
    clock.now = 5.0
    settle(residency, "b")
    clock.now = 10.0
    assert residency.place("c", 1) == []
    clock.now = 15.0
    assert residency.advance() == [Drain(0), Drain(1)]


def test_no_more_leave_than_a_newcomer_needs(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    for name in "abc":
        residency.describe(name, 0, 1, 40)
    settle(residency, "a", "b")
    clock.now = 10.0
    assert residency.place("c", 1) == [Drain(0)]


def test_nobody_overtakes_one_who_is_blocked_however_small(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    for name, size in (("a", 60), ("b", 60), ("c", 10)):
        residency.describe(name, 0, 1, size)
    settle(residency, "a")
    assert residency.place("b", 1) == []
    assert residency.place("c", 2) == []
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert residency.advance() == []  # c would fit beside the one that leaves, but not before b
    assert leave(residency, 0) == [Load(1, "b"), Load(2, "c")]


def test_nobody_is_turned_out_for_one_behind_one_who_is_blocked(clock):
    residency = hotel(clock, slots=4, capacity_bytes=100)
    for name, size in (("a", 40), ("b", 40), ("c", 80), ("d", 30)):
        residency.describe(name, 0, 1, size)
    settle(residency, "a")
    clock.now = 5.0
    settle(residency, "b")
    clock.now = 10.0
    assert residency.place("c", 1) == []
    assert residency.place("d", 2) == []


def test_a_big_newcomer_gets_no_more_of_one_checkpoint_than_it_can_spare(clock):
    residency = hotel(clock, slots=4, capacity_bytes=100)
    for name, size in (("a", 30), ("b", 40), ("c", 60)):
        residency.describe(name, 0, 2, size)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.describe("a", 1, 2)
    clock.now = 5.0
    settle(residency, "b")
    clock.now = 10.0
    assert residency.place("c", 1) == []
    clock.now = 15.0
    assert residency.advance() == [Drain(0), Drain(2)]


def test_what_is_too_big_for_the_house_is_refused_with_the_sizes(clock):
    residency = hotel(clock, capacity_bytes=100)
    residency.describe("a", 0, 1, 101)
    (refusal,) = residency.place("a", 1)
    assert isinstance(refusal, Refuse)
    with pytest.raises(NoRoomError, match="2 slots and 100 bytes, each needs 101"):
        raise refusal.error
    assert residency.place("b", 2) == [Load(0, "b")]


def test_bytes_that_others_keep_are_not_waited_for(clock):
    residency = hotel(clock, capacity_bytes=100)
    residency.describe("a", 1, 1, 60)
    residency.describe("b", 0, 1, 60)
    (refusal,) = residency.place("b", 1)
    assert isinstance(refusal, Refuse)
    with pytest.raises(NoRoomError, match="'a' keeps 1"):
        raise refusal.error


# who is kept


def test_a_pinned_checkpoint_stays_and_a_full_house_of_them_refuses(clock):
    residency = hotel(clock)
    settle(residency, "a", "b")
    clock.now = 20.0
    residency.pin("a")
    assert residency.place("c", 1) == [Drain(1)]
    leave(residency, 1)
    residency.loaded(2)
    residency.pin("c")
    clock.now = 40.0
    (refusal,) = residency.place("d", 2)
    assert isinstance(refusal, Refuse)
    with pytest.raises(NoRoomError, match="no room for 1 of 'd': 2 slots; 'a' keeps 1; 'c' keeps 1; unpin or scale down another"):
        raise refusal.error


def test_whoever_waits_for_one_that_is_pinned_meanwhile_is_refused_as_time_passes(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    assert residency.place("b", 1) == []
    residency.pin("a")
    (refusal,) = residency.advance()
    assert isinstance(refusal, Refuse)
    assert refusal.ticket == 1


def test_unpinned_it_may_leave_again(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.pin("a")
    clock.now = 20.0
    assert residency.unpin("a") == []
    assert residency.place("b", 1) == [Drain(0)]


def test_unpinned_it_makes_room_at_once_for_what_is_to_be_kept(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.pin("a")
    assert forgone(residency.describe("b", 1, 1)) == ["b"]
    clock.now = 20.0
    assert residency.advance() == []
    assert residency.unpin("a") == [Drain(0)]


def test_a_pin_alone_loads_nothing(clock):
    residency = hotel(clock, slots=1)
    residency.pin("a")
    assert residency.advance() == []
    assert residency.place("b", 1) == [Load(0, "b")]


def test_scale_keeps_as_many_replicas_as_asked_for(clock):
    residency = hotel(clock)
    assert residency.scale("a", 2) == [Load(0, "a"), Load(1, "a")]
    residency.loaded(0)
    residency.loaded(1)
    assert residency.gone(1) == [Load(2, "a")]
    residency.loaded(2)
    assert residency.scale("a", 1) == [Drain(0)]


def test_scaled_to_none_the_last_replica_stays_until_its_room_is_needed(clock):
    residency = hotel(clock, slots=1)
    residency.scale("a", 1)
    residency.loaded(0)
    clock.now = 1000.0
    assert residency.scale("a", 0) == []
    assert residency.place("b", 1) == [Drain(0)]


def test_scaled_down_while_one_loads_those_who_are_ready_stay(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    assert residency.scale("a", 1) == []
    residency.loaded(1)
    clock.now = 60.0
    assert residency.advance() == [Drain(0)]  # as any that is beyond the least


def test_scaled_down_the_idle_ones_leave_first(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.report(0, last_used=0.0, in_flight=1)
    assert residency.scale("a", 1) == [Drain(1)]


def test_scale_beyond_the_slots_is_refused(clock):
    with pytest.raises(NoRoomError, match="2 slots"):
        hotel(clock).scale("a", 3)


def test_what_others_are_to_keep_is_not_given_away(clock):
    residency = hotel(clock)
    residency.scale("a", 1)
    residency.scale("b", 1)
    with pytest.raises(NoRoomError, match="'a' keeps 1; 'b' keeps 1"):
        residency.scale("c", 1)
    residency.loaded(1)
    residency.release("b")
    assert residency.scale("c", 1) == []
    assert leave(residency, 1) == [Load(2, "c")]


def test_a_floor_is_hard(clock):
    residency = hotel(clock)
    residency.scale("a", 1)
    residency.loaded(0)
    settle(residency, "b")
    clock.now = 20.0
    residency.place("b", 1)  # a is unused for longest
    assert residency.place("c", 2) == [Drain(1)]
    leave(residency, 1)
    residency.loaded(2)
    residency.scale("c", 1)
    clock.now = 100.0
    (refusal,) = residency.place("d", 3)
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, NoRoomError)


def test_a_replica_beyond_the_floor_may_be_turned_out_but_not_the_next(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.describe("a", 1, 2)
    clock.now = 20.0
    assert residency.place("b", 1) == [Drain(0)]
    assert residency.place("c", 2) == []  # it may follow b
    leave(residency, 0)
    residency.loaded(2)
    clock.now = 30.0
    assert residency.advance() == [Drain(2)]


def test_what_is_to_be_kept_is_loaded_though_nobody_asks(clock):
    residency = hotel(clock)
    assert residency.describe("a", 1, 3) == [Load(0, "a")]
    assert residency.gone(0) == [Load(1, "a")]


def test_what_is_to_be_kept_turns_others_out(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    assert residency.scale("b", 1) == []
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert leave(residency, 0) == [Load(1, "b")]


def test_what_is_to_be_kept_comes_though_the_others_are_asked_for_all_the_time(clock):
    residency = hotel(clock)
    settle(residency, "b")
    clock.now = 5.0
    settle(residency, "c")
    assert residency.scale("a", 1) == []
    residency.place("d", 1)
    residency.place("e", 2)
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert leave(residency, 0) == [Load(2, "a")]


def test_more_than_there_is_room_for_is_not_waited_for_by_others(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    assert forgone(residency.describe("a", 2, 2, 60)) == ["a"]
    assert residency.describe("b", 1, 1, 40)[-1] == Load(1, "b")
    residency.loaded(1)
    assert residency.place("b", 1) == [Grant(1, (1,))]
    residency.describe("c", 0, 1, 40)
    (refusal,) = residency.place("c", 2)
    assert isinstance(refusal, Refuse)


def test_a_replica_that_is_still_to_come_in_vain_refuses_nobody_who_waits_for_another(clock):
    residency = hotel(clock, slots=1)
    residency.describe("a", 2, 2)
    residency.place("a", 1)
    assert forgone(residency.describe("b", 1, 1)) == ["a", "b"]
    assert residency.loaded(0) == [Grant(1, (0,))]


def test_what_is_to_be_kept_and_cannot_be_is_told_once_for_each_reason(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    load, told = residency.describe("a", 2, 2, 60)
    assert load == Load(0, "a")
    assert isinstance(told, Forgo)
    assert str(told.error) == "no room for 2 of 'a': 3 slots and 100 bytes, each needs 60; unpin or scale down another, or add room"
    assert residency.advance() == []
    assert forgone(residency.resize(2)) == ["a"]
    with pytest.raises(NoRoomError, match="no room for 3 of 'a': 2 slots"):
        residency.scale("a", 3)
    assert forgone(residency.scale("a", 2)) == ["a"]  # whoever asks anew is told anew
    assert residency.scale("a", 1) == []


def test_fewer_replicas_are_never_refused(clock):
    residency = hotel(clock, slots=3)
    residency.scale("a", 1)
    residency.scale("b", 2)
    residency.resize(1)
    residency.scale("b", 1)
    residency.scale("b", 0)
    assert residency.book.guest("b").least == 0


def test_room_is_room_in_slots_and_bytes_that_nobody_waits_for(clock):
    residency = hotel(clock, slots=2, capacity_bytes=100)
    residency.describe("b", 0, 1, 50)
    assert residency.has_room("b")
    residency.place("a", 1)
    residency.loaded(0, 60)
    assert not residency.has_room("b")
    assert residency.has_room("c")
    residency.place("b", 2)
    assert not residency.has_room("c")


def test_a_failed_load_of_a_kept_replica_is_tried_again_after_a_while(clock):
    residency = hotel(clock)
    residency.scale("a", 1)
    assert residency.failed(0, RuntimeError()) == []
    clock.now = RETRY_S - 1.0
    assert residency.advance() == []
    clock.now = RETRY_S
    assert residency.advance() == [Load(1, "a")]


def test_scaled_again_it_is_tried_at_once(clock):
    residency = hotel(clock)
    residency.scale("a", 1)
    residency.failed(0, RuntimeError())
    assert residency.scale("a", 1) == [Load(1, "a")]


# who leaves when told


def test_released_it_leaves_however_kept(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.pin("a")
    assert residency.release("a") == [Drain(0), Drain(1)]
    assert leave(residency, 0) == []
    assert leave(residency, 1) == []
    settle(residency, "a", "b")
    clock.now = 20.0
    assert residency.place("c", 1) == [Drain(2)]  # neither pinned nor to be kept any more


def test_released_while_it_loads_it_leaves_as_soon_as_it_has_arrived(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    assert residency.release("a") == []
    assert residency.loaded(0) == [Grant(1, (0,)), Drain(0)]  # whoever waited has it, for as long as it is there
    assert residency.emptied(0) == [Close(0, "a")]
    assert residency.gone(0) == []


def test_evacuated_while_idle_it_leaves_at_once(clock):
    residency = hotel(clock)
    settle(residency, "a")
    assert residency.evacuate(0) == [Drain(0)]
    assert residency.evacuate(0) == []
    assert leave(residency, 0) == []


def test_evacuated_at_work_it_leaves_when_its_successor_is_there(clock):
    residency = hotel(clock)
    settle(residency, "a")
    residency.report(0, last_used=0.0, in_flight=2)
    assert residency.evacuate(0) == [Load(1, "a")]
    assert residency.place("a", 1) == [Grant(1, (0,))]
    assert residency.loaded(1) == [Drain(0)]


def test_evacuated_at_work_it_leaves_at_once_when_there_is_no_room_for_a_successor(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.report(0, last_used=0.0, in_flight=2)
    assert residency.evacuate(0) == [Drain(0)]


def test_evacuated_with_another_replica_elsewhere_it_leaves_at_once(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.scale("a", 0)
    residency.report(1, last_used=0.0, in_flight=2)
    assert residency.evacuate(1) == [Drain(1)]


@pytest.mark.parametrize("keep", ["pin", "scale"])
def test_evacuated_one_that_is_kept_has_a_successor_first_though_it_is_idle(clock, keep):
    residency = hotel(clock)
    settle(residency, "a")
    residency.pin("a") if keep == "pin" else residency.scale("a", 1)
    assert residency.evacuate(0) == [Load(1, "a")]
    assert residency.loaded(1) == [Drain(0)]


def test_a_pinned_one_that_moves_is_not_in_the_way_of_those_who_wait(clock):
    residency = hotel(clock, slots=3, capacity_bytes=100)
    residency.describe("a", 0, 1, 40)
    residency.describe("b", 0, 1, 80)
    settle(residency, "a")
    residency.pin("a")
    assert residency.evacuate(0) == [Load(1, "a")]
    residency.failed(1, RuntimeError())  # it is tried again later: until then, a stays where it is
    (refusal,) = residency.place("b", 1)
    assert isinstance(refusal, Refuse)


def test_evacuated_while_it_loads_it_is_stopped_and_loaded_elsewhere(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    assert residency.evacuate(0) == [Abort(0)]
    assert residency.gone(0) == [Load(1, "a")]
    assert residency.loaded(1) == [Grant(1, (1,))]


def test_fewer_slots_stop_the_loads_that_began_last(clock):
    residency = hotel(clock, slots=3)
    for ticket, name in enumerate("abc"):
        residency.place(name, ticket)
    assert residency.resize(1) == [Abort(2), Abort(1)]
    assert residency.gone(2) == []
    assert residency.gone(1) == []
    assert residency.loaded(0) == [Grant(0, (0,))]
    clock.now = 10.0
    assert residency.advance() == [Drain(0)]
    assert leave(residency, 0) == [Load(3, "b")]


def test_fewer_slots_stop_no_load_that_has_one(clock):
    residency = hotel(clock, slots=3)
    settle(residency, "a")
    residency.place("b", 1)
    assert residency.resize(2) == []


def test_those_who_leave_need_no_slot_that_a_load_has(clock):
    residency = hotel(clock)
    settle(residency, "a")
    residency.place("b", 1)
    residency.release("a")
    assert residency.resize(1) == []


def test_more_slots_let_those_in_who_wait(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.place("b", 1)
    residency.place("c", 2)
    assert residency.resize(2) == [Load(1, "b")]
    assert residency.resize(3) == [Load(2, "c")]


def test_with_no_slots_at_all_whoever_asks_is_refused(clock):
    residency = hotel(clock)
    residency.resize(0)
    (refusal,) = residency.place("a", 1)
    assert isinstance(refusal, Refuse)


# how a checkpoint grows and shrinks


def busy(residency: Residency, clock: Clock, seconds: float, in_flight: int = 4) -> list[Command]:
    """Reports the same load on all that are ready, once a second, and lets time pass."""
    commands: list[Command] = []
    until = clock.now + seconds
    while True:
        for replica in list(residency.replicas.values()):
            if replica.state is ReplicaState.READY:
                residency.report(replica.id, last_used=clock.now, in_flight=in_flight)
        commands += residency.advance()
        if clock.now >= until:
            return commands
        clock.now += 1.0


def test_busy_for_a_while_it_gets_another_replica(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a")
    assert busy(residency, clock, 1.0) == []
    assert busy(residency, clock, 1.0) == [Load(1, "a")]


def test_less_than_busy_it_gets_none(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a")
    assert busy(residency, clock, 100.0, in_flight=3) == []


def test_it_gets_one_at_a_time_and_at_most_what_it_may_have(clock):
    residency = hotel(clock, slots=5)
    residency.describe("a", 0, 3)
    settle(residency, "a")
    assert busy(residency, clock, 20.0) == [Load(1, "a")]  # none more while one loads
    residency.loaded(1)
    assert busy(residency, clock, 20.0) == [Load(2, "a")]
    residency.loaded(2)
    assert busy(residency, clock, 20.0) == []


def test_the_measure_restarts_when_a_replica_more_is_there(clock):
    residency = hotel(clock, slots=5)
    residency.describe("a", 0, 3)
    settle(residency, "a")
    busy(residency, clock, 2.0)
    busy(residency, clock, 19.0)
    residency.loaded(1)
    for after, commands in ((0.0, []), (1.9, []), (0.1, [Load(2, "a")])):
        clock.now += after
        residency.report(0, last_used=clock.now, in_flight=9)  # not spread over both yet
        assert residency.advance() == commands


def test_a_gap_in_the_load_restarts_the_measure(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a")
    assert busy(residency, clock, 1.0) == []
    assert busy(residency, clock, 0.0, in_flight=0) == []
    assert busy(residency, clock, 1.0) == []
    assert busy(residency, clock, 1.0) == [Load(1, "a")]


def test_the_load_is_measured_over_all_replicas(clock):
    residency = hotel(clock, slots=3)
    residency.describe("a", 0, 3)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    for second in range(10):
        clock.now = float(second)
        residency.report(0, last_used=clock.now, in_flight=7)
        residency.report(1, last_used=clock.now, in_flight=0)
        assert residency.advance() == []


def test_nobody_is_turned_out_for_growth(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a", "b")
    clock.now = 100.0
    assert busy(residency, clock, 10.0) == []
    assert states(residency) == {0: "ready", 1: "ready"}
    residency.gone(1)
    assert states(residency) == {0: "ready", 2: "loading"}  # now there is room


def test_a_wish_for_more_ends_with_the_load(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a", "b")
    busy(residency, clock, 10.0)
    busy(residency, clock, 0.0, in_flight=0)
    assert residency.gone(1) == []


def test_a_wish_for_more_than_it_may_have_meanwhile_is_not_granted(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a", "b")
    busy(residency, clock, 10.0)
    residency.describe("a", 0, 1)
    assert residency.gone(1) == []


def test_whoever_waits_comes_before_growth(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a", "b")
    busy(residency, clock, 3.0)
    residency.place("c", 1)
    assert residency.gone(1) == [Load(2, "c")]


def test_what_is_to_be_kept_comes_before_growth(clock):
    residency = hotel(clock, slots=2, capacity_bytes=100)
    residency.describe("a", 0, 2)
    settle(residency, "a", "b")
    busy(residency, clock, 3.0)
    residency.scale("z", 1)
    assert residency.gone(1) == [Load(2, "z")]


def test_a_replica_got_by_growth_may_be_turned_out(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a")
    busy(residency, clock, 2.0)
    residency.loaded(1)
    clock.now = 50.0
    assert residency.place("b", 1) == [Drain(1)]


def test_a_failed_load_ends_the_wish_for_more(clock):
    residency = hotel(clock)
    residency.describe("a", 0, 2)
    settle(residency, "a")
    busy(residency, clock, 2.0)
    assert residency.failed(1, RuntimeError()) == []
    clock.now = 100.0
    assert residency.advance() == []


def test_beyond_the_least_idle_ones_leave_after_a_while_and_the_last_stays(clock):
    residency = hotel(clock, slots=3)
    residency.scale("a", 3)
    for replica in range(3):
        residency.loaded(replica)
    residency.describe("a", 0, 3)
    residency.report(1, last_used=20.0, in_flight=0)
    clock.now = 59.0
    assert residency.advance() == []
    clock.now = 60.0
    assert residency.advance() == [Drain(0), Drain(2)]
    clock.now = 1000.0
    assert residency.advance() == []
    assert [replica.id for replica in residency.ready("a")] == [1]


def test_the_least_stay_however_idle(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    clock.now = 1000.0
    assert residency.advance() == []


def test_one_with_work_is_not_idle_however_long_it_takes(clock):
    residency = hotel(clock)
    residency.scale("a", 2)
    residency.loaded(0)
    residency.loaded(1)
    residency.describe("a", 0, 2)
    for replica in (0, 1):
        residency.report(replica, last_used=1.0, in_flight=1)
    clock.now = 1000.0
    assert residency.advance() == []
    residency.report(1, last_used=1.0, in_flight=0)
    assert residency.advance() == [Drain(1)]


# what comes about by itself


def test_a_death_frees_the_slot(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    residency.place("b", 1)
    assert residency.gone(0) == [Load(1, "b")]


def test_one_that_dies_while_it_loads_is_loaded_again_before_others_who_wait(clock):
    residency = hotel(clock, slots=1)
    residency.place("a", 1)
    residency.place("b", 2)
    assert residency.gone(0) == [Load(1, "a")]
    assert residency.loaded(1) == [Grant(1, (1,))]


def test_one_that_dies_while_it_loads_is_not_loaded_again_for_nobody(clock):
    residency = hotel(clock, slots=1)
    residency.place("a", 1)
    residency.abandon("a", 1)
    assert residency.gone(0) == []


def test_one_that_dies_while_it_drains_is_gone(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    clock.now = 20.0
    residency.place("b", 1)
    assert residency.gone(0) == [Load(1, "b")]
    assert residency.emptied(0) == []
    assert not residency.book.leaving


@pytest.mark.parametrize("late", ["loaded", "emptied", "gone", "evacuate"])
def test_news_of_one_that_is_gone_changes_nothing(clock, late):
    residency = hotel(clock)
    settle(residency, "a")
    residency.gone(0)
    epoch = residency.epoch
    assert getattr(residency, late)(0) == []
    assert residency.failed(0, RuntimeError()) == []
    residency.report(0, last_used=1.0, in_flight=1)
    assert residency.epoch == epoch


def test_a_load_ends_only_once(clock):
    residency = hotel(clock)
    settle(residency, "a")
    clock.now = 5.0
    assert residency.loaded(0, 70) == []
    assert residency.replicas[0].ready_at == 0.0


def test_adopted_ones_take_requests_and_ids_go_on_above_theirs(clock):
    residency = hotel(clock, slots=4)
    assert residency.adopt(7, "a", ReplicaState.READY, 30) == []
    assert residency.adopt(3, "b", ReplicaState.READY) == []
    assert residency.place("a", 1) == [Grant(1, (7,))]
    assert residency.place("c", 2) == [Load(8, "c")]
    assert residency.book.held_bytes == 30


def test_an_adopted_one_that_loads_is_granted_when_it_is_there(clock):
    residency = hotel(clock)
    residency.adopt(0, "a", ReplicaState.LOADING)
    assert residency.place("a", 1) == []
    assert residency.loaded(0) == [Grant(1, (0,))]


def test_an_adopted_one_that_drains_is_drained_again(clock):
    residency = hotel(clock, slots=1)
    assert residency.adopt(2, "a", ReplicaState.DRAINING) == [Drain(2)]
    assert residency.place("a", 1) == []
    assert leave(residency, 2) == [Load(3, "a")]


def test_an_adopted_one_has_just_arrived(clock):
    residency = hotel(clock, slots=1)
    clock.now = 100.0
    residency.adopt(0, "a", ReplicaState.READY)
    assert residency.place("b", 1) == []
    clock.now = 110.0
    assert residency.advance() == [Drain(0)]


def test_the_epoch_grows_with_every_change_of_who_is_ready(clock):
    residency = hotel(clock, slots=1)
    epochs = [residency.epoch]
    residency.adopt(0, "a", ReplicaState.READY)
    epochs.append(residency.epoch)
    clock.now = 20.0
    residency.place("b", 1)  # a drains
    epochs.append(residency.epoch)
    leave(residency, 0)
    epochs.append(residency.epoch)
    residency.loaded(1)
    epochs.append(residency.epoch)
    residency.gone(1)
    epochs.append(residency.epoch)
    assert epochs == sorted(set(epochs))


def test_the_epoch_stays_while_nobody_comes_or_goes(clock):
    residency = hotel(clock, slots=1)
    settle(residency, "a")
    epoch = residency.epoch
    residency.place("a", 1)
    residency.place("b", 2)
    residency.report(0, last_used=1.0, in_flight=1)
    residency.abandon("b", 2)
    residency.pin("a")
    residency.advance()
    assert residency.epoch == epoch


def test_names_and_replicas_of_nobody_are_empty(clock):
    residency = hotel(clock)
    residency.place("a", 1)
    assert residency.ready("a") == residency.ready("z") == []
    assert residency.book.ready_names() == []
