"""What waits in an engine's queue: whatever comes and goes, the passes are those that packing all of it anew would give."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laya.deadlines import Limits
from laya.engine.lanes import Call, Lane, OwnLane, Row, SharedLane
from laya.engine.packing import pack
from laya.engine.stats import Tally
from laya.sequences import TokenSequence
from tests.laya.engines import row


class Packed:
    """What a shared lane has to do, done by packing every row that waits for every pass."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def take(self, call: Call, token_budget: int) -> list[Row]:
        plan = [[self.rows[index] for index in batch] for batch in pack([waiting.length for waiting in self.rows], token_budget)]
        at = next(at for at, batch in enumerate(plan) if any(waiting.call is call for waiting in batch))
        taken = plan.pop(at)
        self.rows = [waiting for batch in plan for waiting in batch]
        return taken


def enter(lane: Lane, lengths: list[int]) -> tuple[Call, list[Row]]:
    call = Call([row(1, length) for length in lengths], lane, Limits())
    waiting = [Row(call, at) for at in range(len(lengths))]
    lane.add(waiting)
    return call, waiting


def counted(tally: Tally) -> tuple[int, int, int]:
    return tally.waiting_calls, tally.waiting_rows, tally.waiting_tokens


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "take", "take", "put back", "remove"]),
        st.lists(st.integers(1, 60), min_size=1, max_size=15) | st.integers(1, 40).map(lambda rows: [3] * rows),
        st.integers(0, 99),
        st.integers(1, 90) | st.integers(6, 30),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=200)
@given(steps=STEPS)
@example(steps=[("add", [3] * 10, 0, 1), ("add", [3], 0, 1), ("take", [1], 1, 12)])
def test_shared_passes_are_those_of_packing_all_that_waits(steps: list[tuple[str, list[int], int, int]]) -> None:
    tally = Tally()
    lane, packed = SharedLane(tally), Packed()
    taken: list[Row] = []
    for what, lengths, pick, token_budget in steps:
        calls = list(dict.fromkeys(waiting.call for waiting in packed.rows))
        if what == "add":
            packed.rows += enter(lane, lengths)[1]
        elif what == "put back":
            lane.put_back(taken)
            packed.rows[:0] = taken
            taken = []
        elif calls and what == "take":
            call = calls[pick % len(calls)]
            taken = lane.take(call, token_budget)
            assert taken == packed.take(call, token_budget)
        elif calls:
            call = calls[pick % len(calls)]
            lane.remove(call)
            packed.rows = [waiting for waiting in packed.rows if waiting.call is not call]
        waiting_rows = Counter(waiting.call for waiting in packed.rows)
        assert counted(tally) == (len(waiting_rows), len(packed.rows), sum(waiting.length for waiting in packed.rows))
        assert all(call.waiting == rows for call, rows in waiting_rows.items())


class Counting(list[TokenSequence]):
    """Rows that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("lengths", [[40], range(20, 60)], ids=["one length", "many lengths"])
def test_what_a_pass_costs_does_not_grow_with_the_rows_that_wait(lengths: Any) -> None:
    lane = SharedLane(Tally())
    giant = Counting(row(1, length) for length in lengths for _ in range(1000))
    call = Call(giant, lane, Limits())
    lane.add([Row(call, at) for at in range(len(giant))])
    for length in (20, 40, 60):
        small, waiting = enter(lane, [length])
        giant.looks = 0
        taken = lane.take(small, 120)
        assert waiting[0] in taken
        assert giant.looks <= len(taken)


class TestOwnLane:
    @pytest.mark.parametrize("sort", [True, False])
    def test_rows_that_come_back_come_first(self, sort: bool) -> None:
        tally = Tally()
        lane = OwnLane(tally, max_rows=2, sort=sort)
        call, waiting = enter(lane, [4] * 5)
        taken = lane.take(call, 100)
        assert taken == waiting[:2]
        assert counted(tally) == (1, 3, 12)
        lane.put_back(taken)
        assert lane.take(call, 4) == waiting[:1]
        lane.put_back(waiting[:1])
        assert lane.take(call, 100) == waiting[:2]
        lane.put_back(waiting[1:2])
        assert lane.take(call, 100) == waiting[1:3]
        lane.remove(call)
        assert counted(tally) == (0, 0, 0)
        lane.add(waiting[4:])
        assert lane.take(call, 100) == waiting[4:]
