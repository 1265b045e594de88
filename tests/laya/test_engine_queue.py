"""The engine's queue: how passes are formed out of what waits, and what becomes of a call whose pass or thread fails."""

from __future__ import annotations

import gc
import logging
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laya
from laya.deadlines import CancelledRequestError, DeadlineExceededError, cancellable, deadline
from laya.engine.lanes import Call
from laya.engine.packing import pack
from laya.engine.stats import PassReport
from laya.sequences import TokenSequence
from tests.laya.engines import FakeEngine, Gate, Waiting, marks, row, rows
from tests.patience import LONG, start


class Held:
    """An engine whose first pass, of the row 1, is held until `release`: whatever is asked meanwhile waits."""

    def __init__(self, token_budget: int = 1000) -> None:
        self.gate = Gate()
        self.engine = FakeEngine(token_budget, self.gate)
        self.waiting = Waiting(self.engine)
        self.first = start(lambda: marks(self.engine.score(rows(1))))
        assert self.gate.reached.wait(LONG)
        self.calls: list[Future[Any]] = []

    def ask(self, *wanted: int, length: int = 4, **options: Any) -> Future[Any]:
        """Lets a call wait in its own thread; calls stand in the queue in the order in which they were made."""
        call = start(lambda: marks(self.engine.score(rows(*wanted, length=length), **options)))
        self.calls.append(call)
        self.waiting.until(len(self.calls))
        return call

    def release(self) -> list[list[int]]:
        """Lets everything run and returns the passes after the first."""
        self.gate.opened.set()
        for call in self.calls:
            call.exception(LONG)
        assert self.first.result(LONG) == [1]
        return self.engine.passes[1:]


@pytest.fixture
def held() -> Held:
    return Held()


def failing_on(*bad: int) -> Callable[[list[int]], None]:
    """What fails each pass that holds one of these rows."""

    def fail(found: list[int]) -> None:
        for mark in found:
            if mark in bad:
                raise KeyError(mark)

    return fail


def marks_of(sequences: Sequence[TokenSequence]) -> list[int]:
    return [sequence.ids[0] for sequence in sequences]


class TestPasses:
    def test_calls_that_wait_become_one_pass(self, held: Held) -> None:
        for mark in range(2, 10):
            held.ask(mark)
        assert held.release() == [list(range(2, 10))]
        assert [call.result() for call in held.calls] == [[mark] for mark in range(2, 10)]

    @pytest.mark.parametrize("token_budget", [1, 12, 40, 1000])
    @pytest.mark.parametrize("options", [{}, {"max_rows": 2}, {"sort": False}, {"max_rows": 3, "sort": False}], ids=str)
    def test_a_call_alone_gets_the_passes_of_its_packing(self, token_budget: int, options: dict[str, Any]) -> None:
        engine = FakeEngine(token_budget)
        lengths = [3, 9, 4, 4, 9, 1, 12, 5]
        sequences = [row(mark, length) for mark, length in enumerate(lengths, 1)]
        assert marks(engine.score(sequences, **options)) == list(range(1, 9))
        assert engine.passes == [[index + 1 for index in batch] for batch in pack(lengths, token_budget, **options)]

    def test_no_rows(self) -> None:
        engine = FakeEngine()
        assert engine.score([]) == []
        assert engine.passes == []

    def test_each_row_has_as_many_logits_as_options(self) -> None:
        scores = FakeEngine().score([row(1, options=3), row(2, options=1), row(3, options=2)])
        assert [score.logits for score in scores] == [[1.0] * 3, [2.0], [3.0] * 2]

    @pytest.mark.parametrize("options", [{"max_rows": 4}, {"sort": False}], ids=str)
    def test_a_call_with_passes_of_its_own_is_joined_by_nobody(self, held: Held, options: dict[str, Any]) -> None:
        held.ask(2)
        held.ask(3, 4, **options)
        held.ask(5)
        assert held.release() == [[2, 5], [3, 4]]
        assert held.calls[1].result() == [3, 4]

    def test_rows_of_other_lengths_join_within_the_budget(self) -> None:
        held = Held(token_budget=16)
        held.ask(2, length=2)
        held.ask(3, 4, length=8)
        held.ask(5, length=5)
        assert held.release() == [[5, 2], [3, 4]]

    def test_the_budget_may_be_changed_while_rows_wait(self, held: Held) -> None:
        held.ask(2, 3, 4, 5)
        held.engine.token_budget = 8
        assert held.release() == [[2, 3], [4, 5]]


class TestTurns:
    """With a budget of one token every row is a pass of its own, so the passes show the order of the turns."""

    def test_a_small_call_does_not_stand_behind_a_giant_one(self) -> None:
        held = Held(token_budget=1)
        held.ask(*range(10, 20))
        held.ask(2)
        held.ask(3)
        assert held.release() == [[10], [2], [3], *([mark] for mark in range(11, 20))]

    def test_giants_take_turns(self) -> None:
        held = Held(token_budget=1)
        held.ask(10, 11, 12)
        held.ask(20, 21, 22, sort=False)
        assert held.release() == [[10], [20], [11], [21], [12], [22]]

    def test_no_stream_of_small_calls_keeps_a_giant_one_waiting(self) -> None:
        """Whenever a pass runs, a new call comes: there is always one that was never served."""
        held = Held(token_budget=1)
        marks_left = iter(range(2, 32))

        def another(_: list[int]) -> None:
            if (mark := next(marks_left, None)) is not None:
                before = held.engine.stats().waiting_calls
                held.calls.append(start(lambda: marks(held.engine.score(rows(mark)))))
                held.waiting.until(before + 1)

        held.ask(100, 101, 102)
        held.engine.act = another
        order = [batch[0] for batch in held.release()]
        for call in held.calls:
            call.result(LONG)
        assert order.index(102) <= 9


class TestFailedPasses:
    def test_it_fails_the_calls_whose_rows_were_in_it_and_no_others(self, held: Held) -> None:
        def fail(found: list[int]) -> None:
            if 2 in found:
                raise KeyError("two")

        held.engine.token_budget = 8
        held.ask(2, 9, 9)  # its third row is in no pass that fails, and leaves the queue all the same
        held.ask(3, length=2)
        held.engine.act = fail
        assert held.release() == [[2, 9], [3]]
        with pytest.raises(KeyError, match="two"):
            held.calls[0].result()
        assert held.calls[1].result() == [3]
        assert held.engine.stats().waiting_rows == 0
        assert marks(held.engine.score(rows(5))) == [5]

    def test_of_joined_calls_only_the_one_at_fault_fails(self, held: Held) -> None:
        for mark in (2, 3, 4):
            held.ask(mark)
        held.engine.act = failing_on(3)
        assert held.release() == [[2, 3, 4], [2], [3], [4]]
        assert [held.calls[0].result(), held.calls[2].result()] == [[2], [4]]
        with pytest.raises(KeyError, match="3"):
            held.calls[1].result()
        stats = held.engine.stats()
        assert (stats.passes, stats.rows, stats.waiting_calls) == (3, 3, 0)

    def test_a_call_that_fails_alone_is_not_run_again(self) -> None:
        engine = FakeEngine(act=failing_on(3))
        with pytest.raises(KeyError, match="3"):
            engine.score(rows(2, 3, 4))
        assert engine.passes == [[2, 3, 4]]
        assert marks(engine.score(rows(5))) == [5]

    def test_rows_that_were_in_no_pass_yet_are_run_too(self, held: Held) -> None:
        held.engine.token_budget = 8
        held.ask(2, 3)
        held.ask(4)
        held.ask(5, 6, 7)
        held.ask(8)
        held.engine.act = failing_on(4)
        assert held.release() == [[2, 3], [4, 5], [4], [5, 6], [8], [7]]
        assert [held.calls[at].result() for at in (0, 2, 3)] == [[2, 3], [5, 6, 7], [8]]

    def test_rows_that_have_scores_are_not_run_again(self, held: Held) -> None:
        held.engine.token_budget = 8
        held.ask(2, 3, 5)
        held.ask(4)
        held.engine.act = failing_on(4)
        assert held.release() == [[2, 3], [5, 4], [4], [5]]
        assert held.calls[0].result() == [2, 3, 5]

    def test_a_call_left_by_its_thread_is_not_run_again(self, held: Held) -> None:
        def leave(found: list[int]) -> None:
            if 3 in found:
                queue = held.engine._queue
                queue._leave(next(call for call in queue._calls if marks_of(call.rows) == [3]))
                raise KeyError(3)

        held.ask(2)
        held.ask(3)
        held.engine.act = leave
        assert held.release() == [[2, 3], [2]]
        assert held.calls[0].result() == [2]
        assert held.engine.stats().waiting_rows == 0

    def test_nothing_is_run_again_once_the_engine_is_closed(self, held: Held) -> None:
        def fail(_: list[int]) -> None:
            held.engine.close()
            raise KeyError

        held.ask(2)
        held.ask(3)
        held.engine.act = fail
        assert held.release() == [[2, 3]]
        for call in held.calls:
            with pytest.raises(RuntimeError, match="closed"):
                call.result()

    def test_a_call_that_goes_on_by_itself_may_be_split(self, held: Held) -> None:
        def fail(found: list[int]) -> None:
            if 5 in found:
                held.engine.room = 8
                raise KeyError

        held.ask(2, 3, 4)
        held.ask(5)
        held.engine.act = fail
        assert held.release() == [[2, 3, 4, 5], [2, 3, 4], [2], [5], [3], [4]]
        assert held.calls[0].result() == [2, 3, 4]
        assert isinstance(held.calls[1].exception(), KeyError)

    def test_each_call_has_an_error_of_its_own(self, held: Held) -> None:
        def fail(_: list[int]) -> None:
            raise laya.DeviceLostError("gone") from ValueError("why")

        held.ask(2)
        held.ask(3)
        held.engine.act = fail
        assert held.release() == [[2, 3]]
        errors = [call.exception() for call in held.calls]
        assert [(type(error), str(error)) for error in errors] == [(laya.DeviceLostError, "gone")] * 2
        assert [str(error.__cause__) for error in errors if error is not None] == ["why"] * 2
        assert errors[0] is not errors[1]

    def test_an_error_that_cannot_be_copied_is_told_all_the_same(self, held: Held) -> None:
        class OddError(laya.DeviceLostError):
            def __init__(self, one: int, two: int) -> None:
                super().__init__(f"{one} and {two}")

        def fail(_: list[int]) -> None:
            raise OddError(1, 2)

        held.ask(2)
        held.ask(3)
        held.engine.act = fail
        held.release()
        assert [str(call.exception()) for call in held.calls] == ["1 and 2"] * 2


class TestInterrupts:
    def test_of_the_thread_that_runs_a_pass(self, held: Held) -> None:
        """The others' rows of that pass wait again, its own do not."""
        interrupted: list[int] = []

        def interrupt(found: list[int]) -> None:
            if not interrupted:
                interrupted.extend(found)
                raise KeyboardInterrupt

        for mark in (2, 3, 4):
            held.ask(mark)
        held.engine.act = interrupt
        passes = held.release()
        stopped = [call for call in held.calls if call.exception() is not None]
        assert len(stopped) == 1
        assert isinstance(stopped[0].exception(), KeyboardInterrupt)
        lost = held.calls.index(stopped[0]) + 2
        assert passes == [[2, 3, 4], [mark for mark in (2, 3, 4) if mark != lost]]
        assert [call.result() for call in held.calls if call is not stopped[0]] == [[mark] for mark in (2, 3, 4) if mark != lost]
        assert marks(held.engine.score(rows(9))) == [9]

    def test_of_a_thread_that_waits(self, held: Held) -> None:
        condition = held.engine._queue._changed
        waits = condition.wait

        def interrupt(timeout: float | None = None) -> bool:
            condition.wait = waits  # type: ignore[method-assign]
            raise KeyboardInterrupt

        held.ask(2)
        condition.wait = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            held.engine.score(rows(3, 4))
        assert held.engine.stats().waiting_rows == 1
        assert held.release() == [[2]]


class TestDropped:
    def test_a_call_given_up_is_dropped_before_a_pass_is_formed(self, held: Held) -> None:
        event = threading.Event()

        def give_up() -> Any:
            with cancellable(event):
                return held.engine.score(rows(2))

        held.calls.append(start(give_up))
        held.waiting.until(1)
        held.ask(3)
        event.set()
        assert held.release() == [[3]]
        with pytest.raises(CancelledRequestError):
            held.calls[0].result()
        stats = held.engine.stats()
        assert (stats.cancelled, stats.expired, stats.waiting_calls) == (1, 0, 0)

    def test_a_deadline_is_kept_while_another_pass_runs(self, held: Held) -> None:
        with pytest.raises(DeadlineExceededError, match=r"0\.01 s"), deadline(0.01):
            held.engine.score(rows(2))
        assert not held.first.done()
        held.ask(3)
        assert held.release() == [[3]]
        stats = held.engine.stats()
        assert (stats.cancelled, stats.expired) == (0, 1)

    def test_a_pass_that_has_begun_is_finished(self) -> None:
        event = threading.Event()
        engine = FakeEngine(act=lambda _: event.set())
        with cancellable(event):
            assert marks(engine.score(rows(2))) == [2]
        engine = FakeEngine(token_budget=1, act=lambda _: event.set())
        event.clear()
        with pytest.raises(CancelledRequestError), cancellable(event):
            engine.score(rows(2, 3))
        assert engine.passes == [[2]]

    @pytest.mark.parametrize("seconds", [1e6, 1e12, 1e300])
    def test_a_deadline_past_all_clocks(self, held: Held, seconds: float) -> None:
        def patient() -> Any:
            with deadline(seconds):
                return marks(held.engine.score(rows(2)))

        held.calls.append(start(patient))
        held.waiting.until(1)
        held.release()
        assert held.calls[0].result() == [2]


class TestClose:
    def test_calls_that_wait_fail_and_the_pass_that_runs_is_finished(self, held: Held) -> None:
        held.ask(2)
        held.ask(3, max_rows=1)
        held.engine.close()
        for call in held.calls:
            with pytest.raises(RuntimeError, match="closed"):
                call.result(LONG)
        assert held.release() == []
        with pytest.raises(RuntimeError, match="closed"):
            held.engine.score(rows(4))

    def test_a_call_whose_later_rows_wait(self) -> None:
        engine = FakeEngine(token_budget=1)
        engine.act = lambda _: engine.close()
        with pytest.raises(RuntimeError, match="closed"):
            engine.score(rows(2, 3))
        assert engine.passes == [[2]]

    def test_nothing_holds_an_engine_that_nobody_holds(self) -> None:
        """Else a checkpoint that a Router drops would keep its memory until the collector comes by."""
        engine = FakeEngine()
        engine.observer = lambda _: None
        engine.score(rows(1, 2))
        known = weakref.ref(engine)
        gc.disable()
        try:
            del engine
            assert known() is None
        finally:
            gc.enable()

    def test_nothing_holds_the_error_of_a_call(self) -> None:
        class ShortError(Exception):
            """One that a weak reference can point at."""

        def fail(_: list[int]) -> None:
            raise ShortError

        engine = FakeEngine(act=fail)
        gc.disable()
        try:
            with pytest.raises(ShortError) as caught:
                engine.score(rows(1))
            known = weakref.ref(caught.value)
            del caught
            assert known() is None
        finally:
            gc.enable()


class TestNumbers:
    def test_of_passes(self, held: Held) -> None:
        assert held.engine.stats().passes == 0
        held.ask(2, 3)
        held.ask(4, length=6)
        stats = held.engine.stats()
        assert (stats.waiting_calls, stats.waiting_rows, stats.waiting_tokens) == (2, 3, 14)
        held.release()
        stats = held.engine.stats()
        assert (stats.passes, stats.rows, stats.tokens, stats.padded_tokens) == (2, 4, 18, 22)
        assert (stats.waiting_calls, stats.waiting_rows, stats.waiting_tokens) == (0, 0, 0)
        assert (stats.cancelled, stats.expired, stats.memory_splits, stats.token_budget) == (0, 0, 0, 1000)
        assert stats.forward_s > 0
        assert stats.queue_s > 0

    def test_are_told_while_a_pass_is_formed(self, held: Held) -> None:
        held.ask(2, 3)
        with held.engine._queue._changed:
            stats = start(held.engine.stats).result(LONG)
        assert (stats.waiting_calls, stats.waiting_rows) == (1, 2)

    def test_are_those_of_one_moment(self, held: Held) -> None:
        """A pass is taken out of what waits row by row."""
        told: list[int] = []
        lane = held.engine._queue._shared
        count = lane._count

        def noted(call: Call, rows: int, tokens: int) -> None:
            count(call, rows, tokens)
            told.append(held.engine.stats().waiting_rows)

        held.ask(2, 3, 4)
        lane._count = noted  # type: ignore[method-assign]
        held.release()
        assert told == [3, 3, 3]
        assert held.engine.stats().waiting_rows == 0

    def test_the_budget_is_told_as_it_is(self) -> None:
        engine = FakeEngine(token_budget=8)
        engine.token_budget = 12
        assert engine.stats().token_budget == 12

    def test_waits_are_summed_over_rows(self) -> None:
        engine = FakeEngine()
        reports: list[PassReport] = []
        engine.observer = reports.append
        engine.score(rows(1, 2, 3, 4))
        assert math.isclose(engine.stats().queue_s, 4 * reports[0].queue_s)

    def test_an_observer_is_told_of_each_pass(self, held: Held) -> None:
        reports: list[PassReport] = []
        held.engine.observer = reports.append
        held.ask(2, 3)
        held.ask(4, length=6)
        held.engine.token_budget = 12
        held.release()
        assert [(report.rows, report.calls, report.tokens, report.padded_tokens) for report in reports[1:]] in (
            [(2, 2, 10, 12), (1, 1, 4, 4)],
            [(1, 1, 4, 4), (2, 2, 10, 12)],
        )
        stats = held.engine.stats()
        assert sum(report.rows for report in reports) == stats.rows
        assert math.isclose(sum(report.forward_s for report in reports), stats.forward_s)
        assert all(report.queue_s >= 0 for report in reports)

    def test_an_observer_that_fails_harms_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: PassReport) -> None:
            raise LookupError("no such place")

        engine = FakeEngine(token_budget=4)
        engine.observer = fail
        with caplog.at_level(logging.ERROR, "laya.engine"):
            assert marks(engine.score(rows(1, 2))) == [1, 2]
        assert [record.name for record in caplog.records] == ["laya.engine"] * 2
        assert "no such place" in caplog.text

    def test_an_observer_may_ask_the_engine(self) -> None:
        engine = FakeEngine()

        def ask(_: PassReport) -> None:
            engine.observer = None
            assert marks(engine.score(rows(7))) == [7]

        engine.observer = ask
        assert marks(engine.score(rows(1))) == [1]
        assert engine.passes == [[1], [7]]

    def test_an_agent_passes_them_on(self, tiny: laya.Agent) -> None:
        reports: list[PassReport] = []
        before = tiny.stats()
        tiny.observe(reports.append)
        try:
            tiny.predict("hello", {"refund": {"type": "noul", "instructions": "The writer wants money back"}})
        finally:
            tiny.observe(None)
        tiny.predict("hello", {"refund": {"type": "noul", "instructions": "The writer wants money back"}})
        assert [report.rows for report in reports] == [1]
        assert tiny.stats().passes == before.passes + 2


class OnAGpu(FakeEngine):
    """Says that it runs on a GPU."""

    def _place(self) -> str:
        return "cuda:0"


class TestWarmUp:
    def test_on_a_cpu_one_short_row(self) -> None:
        engine = FakeEngine()
        engine.warm_up(256)
        assert [len(batch) for batch in engine.passes] == [1]
        assert engine.stats().padded_tokens < 256

    def test_on_a_gpu_the_whole_budget_too(self) -> None:
        engine = OnAGpu(token_budget=1000)
        engine.warm_up(100)
        assert [len(batch) for batch in engine.passes] == [1, 10]
        assert engine.stats().memory_splits == 0

    def test_trouble_with_memory_shows_then(self) -> None:
        engine = OnAGpu(token_budget=1000, room=300)
        engine.warm_up(100)
        assert engine.token_budget == 250
        assert engine.stats().memory_splits == 2

    def test_an_agents(self, tiny: laya.Agent) -> None:
        before = tiny.stats().passes
        tiny.warm_up()
        assert tiny.stats().passes == before + 1


CALLS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 30), max_size=12),
        st.sampled_from([{}, {}, {"max_rows": 3}, {"sort": False}, {"max_rows": 2, "sort": False}]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(calls=CALLS, token_budget=st.integers(1, 200), room=st.none() | st.integers(30, 200), threads=st.integers(1, 4))
def test_everyone_gets_the_scores_of_their_own_rows(
    calls: list[tuple[list[int], dict[str, Any]]], token_budget: int, room: int | None, threads: int
) -> None:
    """Whoever calls whenever, however often a pass does not fit into memory."""
    engine = FakeEngine(token_budget, room=room)
    begin = threading.Barrier(threads, timeout=LONG)

    def work(thread: int) -> list[tuple[list[int], list[int]]]:
        begin.wait()
        outcomes = []
        for number, (lengths, options) in enumerate(calls[thread::threads]):
            wanted = [1 + thread * 1000 + number * 100 + index for index in range(len(lengths))]
            found = engine.score([row(mark, length) for mark, length in zip(wanted, lengths, strict=True)], **options)
            outcomes.append((marks(found), wanted))
        return outcomes

    for worker in [start(partial(work, thread)) for thread in range(threads)]:
        for found, wanted in worker.result(LONG):
            assert found == wanted
    stats = engine.stats()
    assert stats.rows == sum(len(lengths) for lengths, _ in calls)
    assert stats.waiting_calls == 0
    assert len(engine.passes) == stats.passes + stats.memory_splits
    assert stats.memory_splits == engine.frees


@settings(max_examples=30)
@given(calls=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6), min_size=2, max_size=8), data=st.data())
def test_only_calls_with_a_bad_row_fail(calls: list[list[int]], data: st.DataObject) -> None:
    wanted = [[100 * number + index for index in range(len(lengths))] for number, lengths in enumerate(calls, 1)]
    bad = data.draw(st.sets(st.sampled_from([mark for of_call in wanted for mark in of_call]), max_size=3))
    held = Held(token_budget=data.draw(st.integers(1, 200)))
    for number, (lengths, of_call) in enumerate(zip(calls, wanted, strict=True), 1):
        sequences = [row(mark, length) for mark, length in zip(of_call, lengths, strict=True)]
        held.calls.append(start(partial(held.engine.score, sequences)))
        held.waiting.until(number)
    held.engine.act = failing_on(*bad)
    held.release()
    for call, of_call in zip(held.calls, wanted, strict=True):
        if bad.intersection(of_call):
            assert isinstance(call.exception(), KeyError)
        else:
            assert marks(call.result()) == of_call
    assert held.engine.stats().waiting_rows == 0
