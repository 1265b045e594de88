"""Deadlines and cancellation: what a block says of its calls. What an engine makes of it is in test_engine_queue.py."""

from __future__ import annotations

import math
import pickle
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import laya
from laya.deadlines import CancelledRequestError, DeadlineExceededError, Limits, cancellable, deadline, limits, remaining_s

REFUND = {"refund": {"type": "noul", "instructions": "The writer wants money back"}}
SOON = 1e-9  # seconds that have passed before anything can be asked


def cancelled() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class TestDeadline:
    def test_there_is_none_outside(self) -> None:
        assert remaining_s() is None
        with deadline(60):
            pass
        assert remaining_s() is None
        assert limits() == Limits()

    def test_it_is_counted_from_where_the_block_begins(self) -> None:
        within = deadline(60)
        with within:
            left = remaining_s()
            assert left is not None
            assert 59 < left <= 60
            later = remaining_s()
            assert later is not None
            assert later <= left

    def test_it_never_goes_below_nothing(self) -> None:
        with deadline(SOON):
            assert remaining_s() == 0.0

    @pytest.mark.parametrize(("outer", "inner"), [(60, 3600), (3600, 60)])
    def test_of_nested_ones_the_earlier_wins(self, outer: float, inner: float) -> None:
        with deadline(outer):
            with deadline(inner):
                left = remaining_s()
                assert left is not None
                assert left <= 60
            again = remaining_s()
            assert again is not None
            assert (again > 60) == (outer > 60)

    def test_an_error_ends_the_block_too(self) -> None:
        with pytest.raises(KeyError), deadline(60):
            raise KeyError
        assert remaining_s() is None

    @pytest.mark.parametrize("seconds", [0, -1, math.inf, -math.inf, math.nan, True, "2", None])
    def test_what_is_no_number_of_seconds(self, seconds: Any) -> None:
        with pytest.raises(ValueError, match="positive, finite"):
            deadline(seconds)

    def test_it_holds_for_its_own_thread_alone(self) -> None:
        found: list[float | None] = []
        thread = threading.Thread(target=lambda: found.append(remaining_s()))
        with deadline(60):
            thread.start()
            thread.join()
        assert found == [None]


class TestCancellable:
    def test_any_of_nested_events_counts(self) -> None:
        outer, inner = threading.Event(), threading.Event()
        with cancellable(outer):
            with cancellable(inner), deadline(60):
                assert limits().lapse() is None
                outer.set()
                assert isinstance(limits().lapse(), CancelledRequestError)
            assert limits().events == (outer,)
        assert limits() == Limits()

    def test_being_given_up_comes_before_being_late(self) -> None:
        with deadline(SOON):
            assert isinstance(limits().lapse(), DeadlineExceededError)
            with cancellable(cancelled()):
                assert isinstance(limits().lapse(), CancelledRequestError)

    @pytest.mark.parametrize("event", [None, True, lambda: True])
    def test_what_is_no_event(self, event: Any) -> None:
        with pytest.raises(TypeError, match="Event"):
            cancellable(event)


@pytest.mark.parametrize("error", [DeadlineExceededError("late"), CancelledRequestError("given up")])
def test_errors_cross_processes(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.args) == (type(error), error.args)


@pytest.mark.parametrize("how", ["deadline", "cancellable"])
class TestCallsThatAreOfNoUseAnyMore:
    """They fail before anything is computed, whatever the agent, and are counted."""

    def check(self, agent: Any, ask: Any, how: str) -> None:
        before = agent.stats()
        with ExitStack() as stack:
            stack.enter_context(laya.deadline(SOON) if how == "deadline" else cancellable(cancelled()))
            with pytest.raises(DeadlineExceededError if how == "deadline" else CancelledRequestError):
                ask()
        after = agent.stats()
        assert after.passes == before.passes
        gained = (after.expired - before.expired, after.cancelled - before.cancelled)
        assert gained == ((1, 0) if how == "deadline" else (0, 1))
        assert ask()

    def test_an_agents(self, tiny: laya.Agent, how: str) -> None:
        self.check(tiny, lambda: tiny.predict("hello", REFUND), how)
        self.check(tiny, lambda: tiny.predict_batch(["hello"] * 3, REFUND, batch_size=1), how)

    def test_an_onnx_agents(self, tiny_onnx: Path, quiet_folder: Path, how: str) -> None:
        agent = laya.ONNXAgent(str(quiet_folder), str(tiny_onnx), device="cpu")
        self.check(agent, lambda: agent.predict("hello", REFUND), how)

    def test_a_routers(self, quiet_folder: Path, how: str) -> None:
        agent = laya.Agent(str(quiet_folder), device="cpu")
        router = laya.Router()
        router.attach("english", agent)
        self.check(agent, lambda: router.predict("hello", REFUND, lang="en"), how)

    def test_each_request_of_a_batch_says_so(self, quiet_folder: Path, how: str) -> None:
        router = laya.Router()
        router.attach("english", laya.Agent(str(quiet_folder), device="cpu"))
        requests = [{"state": "hello", "questions": REFUND, "lang": "en"}] * 2
        with laya.deadline(SOON) if how == "deadline" else cancellable(cancelled()):
            outcomes = router.predict_batch(requests, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DeadlineExceededError if how == "deadline" else CancelledRequestError] * 2
