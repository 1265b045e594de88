"""Hooks round ``predict``, which every Agent and every Router has: the order, the policies, and whose error the caller sees."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from laya import AsyncHook, BaseHook
from laya.hooks import (
    PredictContext,
    add_default_hook,
    clear_default_hooks,
    default_hooks,
    set_default_hooks,
)
from tests.conformance.support import (
    ENGLISH,
    ONE,
    QUESTIONS,
    REFUND,
    Act,
    Diary,
    all_at_once,
    failing,
    hook_on,
    loop_in_another_thread,
    supplied,
)
from tests.patience import LONG

Make = Callable[..., Any]

ANSWERED = ["on_predict_start", "on_predict_end"]
FAILED = ["on_predict_start", "on_error", "on_predict_end"]
BAD_QUESTIONS: dict[str, Any] = {"q": {"type": "bool", "instructions": "x"}}


def noting(order: list[str], name: str) -> Diary:
    """Writes its name and event into a list for all."""

    def note(event: str) -> Act:
        return lambda ctx: order.append(f"{name} {event}")

    return Diary(on_predict_start=note("start"), on_error=note("error"), on_predict_end=note("end"))


class TestOrder:
    def test_of_an_answered_call_start_then_end(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE, hooks=diary)
        assert diary.predict_events == ANSWERED

    @pytest.mark.parametrize(("state", "questions"), [(None, ONE), (ENGLISH, BAD_QUESTIONS)], ids=["state", "questions"])
    def test_of_a_failed_call_start_error_end(self, state: Any, questions: Any, runtime: Any) -> None:
        diary = Diary()
        with pytest.raises((TypeError, ValueError)):
            runtime.predict(state, questions, hooks=diary)
        assert diary.predict_events == FAILED

    def test_defaults_then_installed_then_per_call(self, make_runtime: Make) -> None:
        order: list[str] = []
        runtime = make_runtime(hooks=[noting(order, "installed"), noting(order, "installed too")])
        runtime.add_hook(noting(order, "added"))
        set_default_hooks(noting(order, "default"))
        add_default_hook(noting(order, "default too"))
        runtime.predict(ENGLISH, ONE, hooks=[noting(order, "call"), noting(order, "call too")])
        names = ["default", "default too", "installed", "installed too", "added", "call", "call too"]
        assert order == [f"{name} {event}" for event in ("start", "end") for name in names]

    def test_of_an_error_too(self, make_runtime: Make) -> None:
        order: list[str] = []
        runtime = make_runtime(hooks=noting(order, "installed"))
        set_default_hooks(noting(order, "default"))
        with pytest.raises(TypeError):
            runtime.predict(None, ONE, hooks=noting(order, "call"))
        assert order == [f"{name} {event}" for event in ("start", "error", "end") for name in ("default", "installed", "call")]

    def test_objects_then_start_callables_then_end_callables(self, make_runtime: Make) -> None:
        order: list[str] = []

        def note(name: str) -> Act:
            return lambda ctx: order.append(name)

        runtime = make_runtime(
            on_predict_end=[note("end 1"), note("end 2")],
            on_predict_start=[note("start 1"), note("start 2")],
            hooks=noting(order, "object"),
        )
        runtime.predict(ENGLISH, ONE, on_predict_start=note("call start"), on_predict_end=note("call end"))
        assert order == ["object start", "start 1", "start 2", "call start", "object end", "end 1", "end 2", "call end"]

    def test_hooks_of_a_call_are_gone_after_it(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE, hooks=diary)
        runtime.predict(ENGLISH, ONE)
        assert diary.predict_events == ANSWERED
        assert runtime.hooks == []

    def test_a_base_hook_with_one_event_of_its_own(self, make_runtime: Make) -> None:
        class Audit(BaseHook):
            seen: list[str]

            def on_predict_end(self, ctx: PredictContext) -> None:
                super().on_predict_end(ctx)
                self.seen.append(ctx.run_id)

        audit = Audit()
        audit.seen = []
        make_runtime(hooks=audit).predict(ENGLISH, ONE)
        assert len(audit.seen) == 1

    def test_system_one_is_the_same_call(self, runtime: Any) -> None:
        diary = Diary()
        assert runtime.system_one(ENGLISH, ONE, hooks=diary) == runtime.predict(ENGLISH, ONE)
        assert diary.predict_events == ANSWERED


class TestDefaults:
    def test_are_read_at_each_call_of_a_runtime_that_was_there_before(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE)
        add_default_hook(diary)
        runtime.predict(ENGLISH, ONE)
        assert diary.predict_events == ANSWERED
        clear_default_hooks()
        runtime.predict(ENGLISH, ONE)
        assert diary.predict_events == ANSWERED

    def test_fire_once_a_call_also_where_calls_are_made_of_calls(self, runtime: Any) -> None:
        diary = Diary()
        add_default_hook(diary)
        runtime.predict(ENGLISH, ONE)
        assert len({id(note.ctx) for note in diary.notes}) == 1

    def test_are_not_installed(self, runtime: Any) -> None:
        diary = Diary()
        set_default_hooks(diary)
        assert (runtime.hooks, default_hooks()) == ([], [diary])

    def test_set_takes_callables(self, runtime: Any) -> None:
        seen: list[PredictContext] = []
        set_default_hooks(on_predict_start=seen.append, on_predict_end=[seen.append, seen.append])
        runtime.predict(ENGLISH, ONE)
        assert len(seen) == 3


class TestContext:
    def test_is_one_for_the_whole_call_and_another_for_the_next(self, runtime: Any) -> None:
        diaries = [Diary(), Diary(), Diary()]
        for _ in range(2):
            runtime.predict(ENGLISH, ONE, hooks=diaries)
        contexts = {id(note.ctx): note.ctx for diary in diaries for note in diary.notes}
        assert len(contexts) == 2
        first, second = contexts.values()
        assert first != second
        assert len({first, second}) == 2

    def test_run_ids(self, runtime: Any) -> None:
        diary = Diary()
        for _ in range(3):
            runtime.predict(ENGLISH, ONE, hooks=diary)
        run_ids = {note.fields["run_id"] for note in diary.notes}
        assert len(run_ids) == 3
        assert all(len(run_id) == 32 and int(run_id, 16) >= 0 for run_id in run_ids)

    def test_one_state_and_the_questions_as_given(self, runtime: Any) -> None:
        diary = Diary()
        state = {"body": ENGLISH, "n": 7}
        runtime.predict(state, QUESTIONS, hooks=diary)
        fields = diary.the("on_predict_start").fields
        assert (fields["states"], fields["questions"]) == ([state], QUESTIONS)

    def test_budgets_of_the_call(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE, hooks=diary)
        runtime.predict(ENGLISH, ONE, hooks=diary, max_len=128, head_max_len=64)
        found = [(note.fields["max_len"], note.fields["head_max_len"]) for note in diary.of("on_predict_start")]
        assert found == [(None, None), (128, 64)]

    def test_results_at_the_end_are_those_returned(self, runtime: Any) -> None:
        diary = Diary()
        result = runtime.predict(ENGLISH, ONE, hooks=diary)
        assert diary.the("on_predict_end").fields["results"] == [result]

    def test_it_serves_no_other_request(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE, hooks=diary)
        assert {note.fields["request_ids"] for note in diary.notes} == {None}

    def test_hooks_of_one_call_see_that_call_alone(self, runtime: Any) -> None:
        def asking(index: int) -> Callable[[], bool]:
            def work() -> bool:
                diary = Diary()
                result = runtime.predict(f"state {index}", ONE, hooks=diary)
                start, end = diary.the("on_predict_start"), diary.the("on_predict_end")
                return start.ctx is end.ctx and start.fields["states"] == [f"state {index}"] and end.fields["results"] == [result]

            return work

        assert all(outcome.result(LONG) for outcome in all_at_once([asking(index) for index in range(8)]))


class TestTiming:
    def test_usage_and_time_are_there_at_the_end_and_not_before(self, runtime: Any) -> None:
        diary = Diary()
        result = runtime.predict(ENGLISH, QUESTIONS, hooks=diary)
        first, last = diary.the("on_predict_start").fields, diary.the("on_predict_end").fields
        assert (first["usage"], first["elapsed_ms"]) == (None, None)
        assert last["usage"] == {"input_tokens": result["usage"]["input_tokens"], "output_tokens": 0}
        assert last["usage"]["input_tokens"] > 0

    def test_elapsed_ms_runs_from_the_start_of_the_call_to_its_end_hooks(self, runtime: Any) -> None:
        times: list[float] = []
        diary = Diary(
            on_predict_start=lambda ctx: times.append(time.perf_counter()), on_predict_end=lambda ctx: times.append(time.perf_counter())
        )
        before = time.perf_counter()
        runtime.predict(ENGLISH, QUESTIONS, hooks=diary)
        fields = diary.the("on_predict_end").fields
        assert before <= fields["started_at"] <= times[0]
        assert fields["elapsed_ms"] <= (times[1] - fields["started_at"]) * 1000
        # What comes after the start hook is in it, the forward pass above all.
        assert fields["elapsed_ms"] >= (times[1] - times[0]) * 1000 * 0.5

    def test_at_an_error_neither_is_known_yet_and_at_its_end_the_time_is(self, runtime: Any) -> None:
        diary = Diary()
        with pytest.raises(TypeError) as caught:
            runtime.predict(None, ONE, hooks=diary)
        error, end = diary.the("on_error").fields, diary.the("on_predict_end").fields
        assert [error[name] for name in ("error", "elapsed_ms", "usage", "results")] == [caught.value, None, None, None]
        assert [end[name] for name in ("error", "usage", "results")] == [caught.value, None, None]
        assert end["elapsed_ms"] > 0

    def test_what_a_skipped_call_was_given_stays_known_when_it_fails_later(self, runtime: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        late = hook_on("on_predict_start", failing(PermissionError("late")))
        with pytest.raises(PermissionError, match="late"):
            runtime.predict(ENGLISH, ONE, hooks=[diary, late])
        error, end = diary.the("on_error").fields, diary.the("on_predict_end").fields
        assert (error["usage"], error["elapsed_ms"]) == (None, None)
        assert end["results"][0]["answers"] == supplied()["answers"]
        assert end["usage"] == supplied()["usage"]


class TestMutation:
    def test_states_rewritten_at_the_start_are_what_is_read(self, runtime: Any) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.states[0] = "the invoice was paid"

        plain = runtime.predict(ENGLISH, ONE)
        found = runtime.predict(ENGLISH, ONE, on_predict_start=rewrite)
        assert found["answers"] == runtime.predict("the invoice was paid", ONE)["answers"]
        assert found["answers"] != plain["answers"]

    def test_questions_rewritten_at_the_start_are_what_is_asked(self, runtime: Any) -> None:
        asked = {"team": QUESTIONS["team"]}
        found = runtime.predict(ENGLISH, ONE, on_predict_start=lambda ctx: setattr(ctx, "questions", asked))
        assert found["answers"] == runtime.predict(ENGLISH, asked)["answers"]

    def test_budgets_set_at_the_start_are_those_of_the_call(self, runtime: Any) -> None:
        def narrow(ctx: PredictContext) -> None:
            ctx.max_len, ctx.head_max_len = 100, 64

        state = "late " * 300
        found = runtime.predict(state, ONE, on_predict_start=narrow)
        assert found["usage"]["input_tokens"] == 100
        assert found == runtime.predict(state, ONE, max_len=100, head_max_len=64)

    def test_results_rewritten_at_the_end_are_what_is_returned(self, runtime: Any) -> None:
        def audit(ctx: PredictContext) -> None:
            assert ctx.results is not None
            ctx.results[0]["audit"] = ctx.run_id

        def replace(ctx: PredictContext) -> None:
            ctx.results = [{**(ctx.results or [{}])[0], "again": True}]

        found = runtime.predict(ENGLISH, ONE, on_predict_end=[audit, replace])
        assert len(found["audit"]) == 32
        assert found["again"] is True

    def test_a_later_hook_sees_what_an_earlier_one_did(self, runtime: Any) -> None:
        diary = Diary()
        first = hook_on("on_predict_start", lambda ctx: ctx.states.__setitem__(0, "rewritten"))
        runtime.predict(ENGLISH, ONE, hooks=[first, diary])
        assert diary.the("on_predict_start").fields["states"] == ["rewritten"]

    def test_the_callers_own_objects_are_left_alone(self, runtime: Any) -> None:
        state = {"body": ENGLISH}
        questions = {"refund": dict(REFUND)}
        runtime.predict(state, questions, on_predict_start=lambda ctx: setattr(ctx, "states", ["other"]))
        assert (state, questions) == ({"body": ENGLISH}, ONE)


class TestSkip:
    def test_answers_in_place_of_the_model_and_ends(self, runtime: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        found = runtime.predict(ENGLISH, QUESTIONS, hooks=diary)
        assert {key: found[key] for key in supplied()} == supplied()
        assert diary.predict_events == ANSWERED
        end = diary.the("on_predict_end").fields
        assert end["results"] == [found]
        assert end["usage"] == supplied()["usage"]
        assert end["error"] is None

    def test_needs_no_state_or_questions_that_a_model_could_read(self, runtime: Any) -> None:
        found = runtime.predict(None, BAD_QUESTIONS, on_predict_start=lambda ctx: ctx.skip([supplied()]))
        assert found["answers"] == supplied()["answers"]

    def test_the_hooks_after_it_start_too(self, runtime: Any) -> None:
        diary = Diary()
        runtime.predict(ENGLISH, ONE, hooks=[hook_on("on_predict_start", lambda ctx: ctx.skip([supplied()])), diary])
        assert diary.predict_events == ANSWERED
        assert diary.the("on_predict_start").fields["results"] == [supplied()]

    def test_the_hooks_own_result_is_left_alone(self, runtime: Any) -> None:
        given = supplied()
        runtime.predict(ENGLISH, ONE, on_predict_start=lambda ctx: ctx.skip([given]))
        assert given == supplied()

    @pytest.mark.parametrize(
        ("results", "error"), [([], ValueError), ([supplied()] * 2, ValueError), (supplied(), TypeError), (["text"], TypeError)], ids=str
    )
    def test_with_what_is_no_result_of_the_call_fails_in_the_hook(self, results: Any, error: type[Exception], runtime: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip(results))
        with pytest.raises(error, match="skip"):
            runtime.predict(ENGLISH, ONE, hooks=diary)
        assert diary.predict_events == FAILED

    def test_a_result_without_usage_counts_nothing(self, runtime: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([{"answers": {}}]))
        runtime.predict(ENGLISH, ONE, hooks=diary)
        assert diary.the("on_predict_end").fields["usage"] == {"input_tokens": 0, "output_tokens": 0}


class TestVeto:
    def test_by_raising_at_the_start(self, runtime: Any) -> None:
        error = PermissionError("not this one")
        diary = Diary(on_predict_start=failing(error))
        with pytest.raises(PermissionError) as caught:
            runtime.predict(ENGLISH, ONE, hooks=diary)
        assert caught.value is error
        assert diary.predict_events == FAILED
        assert diary.the("on_predict_end").fields["error"] is error
        assert diary.the("on_predict_end").fields["results"] is None

    def test_hooks_after_it_do_not_start_but_are_told_and_ended(self, runtime: Any) -> None:
        before, after = Diary(), Diary()
        with pytest.raises(PermissionError):
            runtime.predict(ENGLISH, ONE, hooks=[before, hook_on("on_predict_start", failing(PermissionError())), after])
        assert before.predict_events == FAILED
        assert after.predict_events == FAILED[1:]


POLICIES = [(True, None, True), (True, False, False), (False, None, False), (False, True, True)]


class TestHooksRaise:
    @pytest.mark.parametrize(("instance", "call", "raises"), POLICIES)
    def test_of_the_call_comes_before_that_of_the_instance(
        self, instance: bool, call: bool | None, raises: bool, make_runtime: Make
    ) -> None:
        runtime = make_runtime(hooks_raise=instance, on_predict_start=failing(LookupError("broken hook")))
        if raises:
            with pytest.raises(LookupError, match="broken hook"):
                runtime.predict(ENGLISH, ONE, hooks_raise=call)
        else:
            with pytest.warns(RuntimeWarning, match="on_predict_start.*LookupError.*broken hook"):
                found = runtime.predict(ENGLISH, ONE, hooks_raise=call)
            assert list(found["answers"]) == ["refund"]

    @pytest.mark.parametrize("event", ["on_predict_start", "on_predict_end"])
    def test_off_the_other_hooks_get_their_turn(self, event: str, runtime: Any) -> None:
        diary = Diary()
        with pytest.warns(RuntimeWarning, match=f"{event}.*KeyError"):
            runtime.predict(ENGLISH, ONE, hooks=[hook_on(event, failing(KeyError("x"))), diary], hooks_raise=False)
        assert diary.predict_events == ANSWERED


class TestHooksTimeout:
    @pytest.mark.parametrize(("instance", "call"), [(None, 0.05), (0.05, None), (LONG, 0.05)])
    @pytest.mark.parametrize("event", ["on_predict_start", "on_predict_end"])
    def test_a_hook_that_overruns_is_a_timeout_error(
        self, event: str, instance: float | None, call: float | None, make_runtime: Make
    ) -> None:
        release = threading.Event()
        runtime = make_runtime(hooks_timeout=instance)
        try:
            with pytest.raises(TimeoutError, match=event):
                runtime.predict(ENGLISH, ONE, hooks=hook_on(event, lambda ctx: release.wait(LONG)), hooks_timeout=call)
        finally:
            release.set()

    def test_of_the_call_may_be_longer(self, make_runtime: Make) -> None:
        runtime = make_runtime(hooks_timeout=0.001)
        release = threading.Event()
        threading.Timer(0.05, release.set).start()
        found = runtime.predict(ENGLISH, ONE, on_predict_start=lambda ctx: release.wait(LONG), hooks_timeout=LONG)
        assert list(found["answers"]) == ["refund"]

    def test_overrunning_with_hooks_raise_off_is_a_warning(self, runtime: Any) -> None:
        release = threading.Event()
        try:
            with pytest.warns(RuntimeWarning, match="TimeoutError"):
                found = runtime.predict(
                    ENGLISH, ONE, on_predict_start=lambda ctx: release.wait(LONG), hooks_timeout=0.05, hooks_raise=False
                )
        finally:
            release.set()
        assert list(found["answers"]) == ["refund"]

    def test_what_a_hook_within_its_time_does_counts(self, runtime: Any) -> None:
        tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
        seen: list[str] = []

        def begin(ctx: PredictContext) -> None:
            seen.append(tenant.get())
            ctx.skip([supplied()])

        token = tenant.set("the caller")
        try:
            found = runtime.predict(ENGLISH, ONE, on_predict_start=begin, hooks_timeout=LONG)
        finally:
            tenant.reset(token)
        assert (seen, found["answers"]) == (["the caller"], supplied()["answers"])

    def test_what_a_hook_within_its_time_raises_comes_through(self, runtime: Any) -> None:
        error = PermissionError("no")
        with pytest.raises(PermissionError) as caught:
            runtime.predict(ENGLISH, ONE, on_predict_start=failing(error), hooks_timeout=LONG)
        assert caught.value is error

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, False, "1"])
    def test_is_positive_and_finite(self, timeout: Any, make_runtime: Make, runtime: Any) -> None:
        with pytest.raises(ValueError, match="hooks_timeout"):
            make_runtime(hooks_timeout=timeout)
        diary = Diary()
        with pytest.raises(ValueError, match="hooks_timeout"):
            runtime.predict(ENGLISH, ONE, hooks=diary, hooks_timeout=timeout)
        assert diary.events == []


def meeting(runtime: Any, patience: float) -> list[bool]:
    """Calls on two threads whose start hooks wait for each other; whether each met the other."""
    barrier = threading.Barrier(2, timeout=patience)
    met: list[bool] = []

    def begin(ctx: PredictContext) -> None:
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            met.append(False)
        else:
            met.append(True)

    def ask() -> Any:
        return runtime.predict(ENGLISH, ONE, on_predict_start=begin)

    for outcome in all_at_once([ask, ask]):
        assert list(outcome.result(LONG)["answers"]) == ["refund"]
    return met


class TestHooksConcurrent:
    def test_by_default_hooks_of_two_calls_overlap(self, runtime: Any) -> None:
        assert meeting(runtime, LONG) == [True, True]

    def test_otherwise_they_take_turns(self, make_runtime: Make) -> None:
        assert meeting(make_runtime(hooks_concurrent=False), 0.2) == [False, False]

    @pytest.mark.parametrize("timeout", [None, LONG])
    def test_a_hook_may_call_the_same_runtime_again(self, timeout: float | None, make_runtime: Make) -> None:
        runtime = make_runtime(hooks_concurrent=False)
        inner: list[Any] = []

        def again(ctx: PredictContext) -> None:
            if ctx.states == ["outer"]:
                inner.append(runtime.predict("inner", ONE, on_predict_start=again, hooks_timeout=timeout))

        (outcome,) = all_at_once([lambda: runtime.predict("outer", ONE, on_predict_start=again, hooks_timeout=timeout)])
        assert list(outcome.result(LONG)["answers"]) == ["refund"]
        assert [list(found["answers"]) for found in inner] == [["refund"]]


def contexts_of(error: BaseException) -> list[BaseException]:
    """The errors below one, as __context__ chains them."""
    found: list[BaseException] = []
    link = error.__context__
    while link is not None and link not in found:
        found.append(link)
        link = link.__context__
    return found


class TestErrors:
    def test_hooks_that_fail_while_they_report_hide_nothing(self, runtime: Any) -> None:
        reporting, ending = RuntimeError("telemetry is down"), KeyError("still down")
        diary = Diary(on_error=failing(reporting), on_predict_end=failing(ending))
        with pytest.raises(TypeError, match="None") as caught:
            runtime.predict(None, ONE, hooks=diary)
        assert diary.predict_events == FAILED
        assert [note.fields["error"] for note in diary.notes if note.event in FAILED[1:]] == [caught.value] * 2
        assert {reporting, ending} <= set(contexts_of(caught.value))

    def test_with_hooks_raise_off_they_warn(self, runtime: Any) -> None:
        diary = Diary(on_error=failing(RuntimeError("telemetry is down")), on_predict_end=failing(KeyError("still down")))
        with pytest.warns(RuntimeWarning) as warned, pytest.raises(TypeError, match="None"):
            runtime.predict(None, ONE, hooks=diary, hooks_raise=False)
        assert [str(each.message).split(" failed in ")[1].split(":")[0] for each in warned] == ["on_error", "on_predict_end"]
        assert diary.predict_events == FAILED

    def test_a_veto_is_a_real_error_too(self, runtime: Any) -> None:
        veto = PermissionError("no")
        diary = Diary(on_predict_start=failing(veto), on_error=failing(RuntimeError()), on_predict_end=failing(KeyError()))
        with pytest.raises(PermissionError) as caught:
            runtime.predict(ENGLISH, ONE, hooks=diary)
        assert caught.value is veto

    def test_the_other_hooks_are_told_and_ended_all_the_same(self, runtime: Any) -> None:
        broken = Diary(on_error=failing(RuntimeError()), on_predict_end=failing(KeyError()))
        diary = Diary()
        with pytest.raises(TypeError):
            runtime.predict(None, ONE, hooks=[broken, diary])
        assert diary.predict_events == FAILED

    def test_an_end_hook_that_fails_on_success_raises_after_the_others_ended(self, runtime: Any) -> None:
        error = KeyError("end")
        broken, diary = Diary(on_predict_end=failing(error)), Diary()
        with pytest.raises(KeyError) as caught:
            runtime.predict(ENGLISH, ONE, hooks=[broken, diary])
        assert caught.value is error
        assert broken.predict_events == diary.predict_events == ANSWERED


class TestRegistry:
    def test_add_hook_takes_one_or_several_and_returns_the_runtime(self, runtime: Any) -> None:
        first, second, third = Diary(), Diary(), Diary()
        assert runtime.add_hook(first).add_hook([second, third]) is runtime
        assert runtime.hooks == [first, second, third]
        runtime.predict(ENGLISH, ONE)
        assert [diary.predict_events for diary in (first, second, third)] == [ANSWERED] * 3

    def test_remove_hook_goes_by_identity_and_tells_whether_it_was_there(self, runtime: Any) -> None:
        kept, taken = Diary(), Diary()
        runtime.add_hook([kept, taken])
        assert runtime.remove_hook(taken) is True
        assert runtime.remove_hook(taken) is False
        assert runtime.remove_hook(Diary()) is False
        runtime.predict(ENGLISH, ONE)
        assert (kept.predict_events, taken.predict_events) == (ANSWERED, [])

    def test_hooks_of_the_construction_can_be_removed(self, make_runtime: Make) -> None:
        diary = Diary()
        runtime = make_runtime(hooks=[diary])
        assert runtime.hooks == [diary]
        assert runtime.remove_hook(diary) is True
        runtime.predict(ENGLISH, ONE)
        assert diary.predict_events == []

    def test_a_call_in_flight_is_not_disturbed(self, runtime: Any) -> None:
        late = Diary()

        def swap(ctx: PredictContext) -> None:
            runtime.add_hook(late)
            assert runtime.remove_hook(early)

        early = Diary(on_predict_start=swap)
        runtime.add_hook(early)
        runtime.predict(ENGLISH, ONE)
        assert (early.predict_events, late.predict_events) == (ANSWERED, [])
        runtime.predict(ENGLISH, ONE)
        assert (early.predict_events, late.predict_events) == (ANSWERED, ANSWERED)

    def test_hooks_installed_are_there_for_a_block(self, runtime: Any) -> None:
        first, second, before = Diary(), Diary(), Diary()
        runtime.add_hook(before)
        with runtime.hooks_installed(first, [second]) as inside:
            assert inside is runtime
            assert runtime.hooks == [before, first, second]
            runtime.predict(ENGLISH, ONE)
        assert runtime.hooks == [before]
        runtime.predict(ENGLISH, ONE)
        assert first.predict_events == second.predict_events == ANSWERED

    def test_also_where_the_block_raises(self, runtime: Any) -> None:
        with pytest.raises(KeyError), runtime.hooks_installed(Diary()):
            raise KeyError
        assert runtime.hooks == []

    def test_blocks_that_overlap_take_off_their_own(self, runtime: Any) -> None:
        first, second = Diary(), Diary()
        one, two = runtime.hooks_installed(first), runtime.hooks_installed(second)
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        assert runtime.hooks == [second]
        runtime.predict(ENGLISH, ONE)
        two.__exit__(None, None, None)
        assert runtime.hooks == []
        assert (first.predict_events, second.predict_events) == ([], ANSWERED)

    def test_a_hook_added_inside_a_block_stays(self, runtime: Any) -> None:
        added = Diary()
        with runtime.hooks_installed(Diary()):
            runtime.add_hook(added)
        assert runtime.hooks == [added]

    def test_the_list_is_a_copy(self, runtime: Any) -> None:
        runtime.add_hook(Diary())
        runtime.hooks.clear()
        assert len(runtime.hooks) == 1


class NoEvent:
    on_prediction = print


class NotCallable:
    on_predict_end = "log"


# A class in place of an instance, an object with none of the six events, an event that is not callable, a plain callable.
NO_HOOKS = [BaseHook, NoEvent(), NotCallable(), print, "text", [BaseHook(), NoEvent()]]
NO_CALLABLES = ["text", 7, [print, None]]


class TestValidation:
    @pytest.mark.parametrize("bad", NO_HOOKS, ids=["class", "no event", "not callable", "callable", "text", "one of two"])
    def test_of_hooks_at_construction_and_at_the_call(self, bad: Any, make_runtime: Make, runtime: Any) -> None:
        with pytest.raises(TypeError):
            make_runtime(hooks=bad)
        with pytest.raises(TypeError):
            runtime.add_hook(bad)
        diary = Diary()
        runtime.add_hook(diary)
        with pytest.raises(TypeError):
            runtime.predict(ENGLISH, ONE, hooks=bad)
        assert diary.events == []

    @pytest.mark.parametrize("name", ["on_predict_start", "on_predict_end"])
    @pytest.mark.parametrize("bad", NO_CALLABLES, ids=["text", "number", "one of two"])
    def test_of_callables_at_construction_and_at_the_call(self, name: str, bad: Any, make_runtime: Make, runtime: Any) -> None:
        with pytest.raises(TypeError, match=name):
            make_runtime(**{name: bad})
        diary = Diary()
        runtime.add_hook(diary)
        with pytest.raises(TypeError, match=name):
            runtime.predict(ENGLISH, ONE, **{name: bad})
        assert diary.events == []


class Remote:
    """Events that are coroutines, and one that is not; notes the loop that each ran on."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    async def on_predict_start(self, ctx: PredictContext) -> None:
        await asyncio.sleep(0)
        self.ran.append(("start", asyncio.get_running_loop()))

    async def on_predict_end(self, ctx: PredictContext) -> None:
        await asyncio.sleep(0)
        self.ran.append(("end", asyncio.get_running_loop()))

    def on_error(self, ctx: PredictContext) -> None:
        self.ran.append(("error", None))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.ran]


class TestAsync:
    def test_coroutines_of_an_async_hook_finish_before_the_call_goes_on(self, make_runtime: Make) -> None:
        remote = Remote()
        make_runtime(hooks=[AsyncHook(remote)]).predict(ENGLISH, ONE)
        assert remote.events == ["start", "end"]

    def test_its_plain_events_run_as_ever(self, runtime: Any) -> None:
        remote = Remote()
        with pytest.raises(TypeError):
            runtime.predict(None, ONE, hooks=AsyncHook(remote))
        assert remote.events == ["start", "error", "end"]

    def test_from_inside_a_running_loop_they_run_on_another(self, runtime: Any) -> None:
        remote = Remote()

        async def serve() -> Any:
            return runtime.predict(ENGLISH, ONE, hooks=AsyncHook(remote)), asyncio.get_running_loop()

        found, own = asyncio.run(serve())
        assert list(found["answers"]) == ["refund"]
        assert remote.events == ["start", "end"]
        assert own not in [ran_on for _, ran_on in remote.ran]

    def test_on_the_loop_that_was_asked_for(self, runtime: Any) -> None:
        remote = Remote()
        with loop_in_another_thread() as loop:
            runtime.predict(ENGLISH, ONE, hooks=AsyncHook(remote, loop=loop))
        assert [ran_on for _, ran_on in remote.ran] == [loop, loop]

    def test_a_loop_that_does_not_run_is_refused(self, runtime: Any) -> None:
        stopped = asyncio.new_event_loop()
        remote = Remote()
        with pytest.raises(ValueError, match="not running"):
            runtime.predict(ENGLISH, ONE, hooks=AsyncHook(remote, loop=stopped))
        stopped.close()
        assert "start" not in remote.events

    def test_the_callers_own_loop_is_refused(self, runtime: Any) -> None:
        remote = Remote()

        async def serve() -> None:
            with pytest.raises(ValueError, match="own"):
                runtime.predict(ENGLISH, ONE, hooks=AsyncHook(remote, loop=asyncio.get_running_loop()))

        asyncio.run(serve())
        assert "start" not in remote.events

    def test_plain_coroutine_functions(self, runtime: Any) -> None:
        seen: list[str] = []

        async def begin(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append("start")

        async def end(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append("end")

        async def serve() -> Any:
            return runtime.predict(ENGLISH, ONE, on_predict_start=[begin, begin], on_predict_end=end)

        runtime.predict(ENGLISH, ONE, on_predict_start=[begin, begin], on_predict_end=end)
        asyncio.run(serve())
        assert seen == ["start", "start", "end"] * 2

    def test_a_coroutine_may_skip_and_veto(self, runtime: Any) -> None:
        async def skip(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            ctx.skip([supplied()])

        async def veto(ctx: PredictContext) -> None:
            raise PermissionError("no")

        assert runtime.predict(ENGLISH, ONE, on_predict_start=skip)["answers"] == supplied()["answers"]
        with pytest.raises(PermissionError, match="no"):
            runtime.predict(ENGLISH, ONE, on_predict_start=veto)

    def test_one_that_overruns_is_a_timeout_error(self, runtime: Any) -> None:
        with loop_in_another_thread() as loop:
            release = asyncio.Event()

            async def never(ctx: PredictContext) -> None:
                await release.wait()

            slow = AsyncHook(hook_on("on_predict_start", never), loop=loop)
            with pytest.raises(TimeoutError):
                runtime.predict(ENGLISH, ONE, hooks=slow, hooks_timeout=0.05)
            loop.call_soon_threadsafe(release.set)
