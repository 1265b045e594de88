"""The lifecycle itself, driven directly: who is called, in which order, and whose error the caller sees."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import laya
from laya.hooks import CallHooks, PredictContext, run_call, run_calls

Results = list[dict[str, Any]]
Log = list[str]

USAGE = {"input_tokens": 3, "output_tokens": 0}


def contexts(*names: str) -> list[PredictContext]:
    return [PredictContext(states=[name], questions={}) for name in names]


def name_of(ctx: PredictContext) -> str:
    return str(ctx.states[0])


def result(name: str) -> dict[str, Any]:
    return {"answers": {"q": name}, "usage": dict(USAGE)}


def answer(log: Log | None = None) -> Callable[[list[PredictContext]], Sequence[Results | BaseException]]:
    def body(waiting: list[PredictContext]) -> list[Results]:
        if log is not None:
            log.append("body " + " ".join(map(name_of, waiting)))
        return [[result(name_of(ctx))] for ctx in waiting]

    return body


def raising(error: BaseException) -> Callable[[list[PredictContext]], Sequence[Results | BaseException]]:
    def body(waiting: list[PredictContext]) -> list[Results]:
        raise error

    return body


class Watch:
    """Notes start, error and end of each context by name; does what it was told to at "event name"."""

    def __init__(self, log: Log, **acts: Callable[[PredictContext], Any]) -> None:
        self.log = log
        self.acts = acts

    def _note(self, event: str, ctx: PredictContext) -> None:
        self.log.append(f"{event} {name_of(ctx)}")
        for key in (event, f"{event}_{name_of(ctx)}"):
            if key in self.acts:
                self.acts[key](ctx)

    def on_predict_start(self, ctx: PredictContext) -> None:
        self._note("start", ctx)

    def on_predict_end(self, ctx: PredictContext) -> None:
        self._note("end", ctx)

    def on_error(self, ctx: PredictContext) -> None:
        self._note("error", ctx)


def fail(error: BaseException) -> Callable[[PredictContext], None]:
    def act(ctx: PredictContext) -> None:
        raise error

    return act


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and the contexts below it; stops where they run in a circle."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__context__
    return found


class TestSuccess:
    def test_starts_then_one_body_then_ends_in_reverse(self) -> None:
        log: Log = []
        calls = contexts("a", "b", "c")
        run_calls(calls, CallHooks((Watch(log),)), answer(log))
        assert log == ["start a", "start b", "start c", "body a b c", "end c", "end b", "end a"]
        assert [ctx.results for ctx in calls] == [[result("a")], [result("b")], [result("c")]]

    def test_what_is_set_when(self) -> None:
        seen: dict[str, tuple[Any, ...]] = {}

        def look(ctx: PredictContext) -> None:
            seen["start" if ctx.results is None else "end"] = (ctx.results, ctx.usage, ctx.elapsed_ms, ctx.error)

        ctx = PredictContext(states=["a", "b"], questions={}, started_at=time.perf_counter() - 2)
        run_call(ctx, CallHooks((Watch([], start=look, end=look),)), lambda ctx: [result("a"), result("b")])
        assert seen["start"] == (None, None, None, None)
        results, usage, elapsed_ms, error = seen["end"]
        assert (results, usage, error) == ([result("a"), result("b")], {"input_tokens": 6, "output_tokens": 0}, None)
        assert 2000 <= elapsed_ms < 2000 + 60_000

    def test_run_call_returns_what_the_end_hooks_left(self) -> None:
        ctx = contexts("a")[0]
        watch = Watch([], end=lambda ctx: setattr(ctx, "results", [{"mine": 1}]))
        assert run_call(ctx, CallHooks((watch,)), lambda ctx: [result("a")]) == [{"mine": 1}]

    def test_the_body_reads_what_the_start_hooks_left(self) -> None:
        watch = Watch([], start=lambda ctx: setattr(ctx, "states", ["rewritten"]))
        calls = contexts("a")
        run_calls(calls, CallHooks((watch,)), answer())
        assert calls[0].results == [result("rewritten")]

    def test_without_hooks(self) -> None:
        calls = contexts("a")
        run_calls(calls, CallHooks(), answer())
        assert calls[0].results == [result("a")]
        assert calls[0].usage == USAGE
        assert calls[0].elapsed_ms is not None

    def test_no_calls(self) -> None:
        run_calls([], CallHooks((Watch([]),)), lambda waiting: pytest.fail("the body ran"))

    def test_several_hooks_by_event_in_their_order(self) -> None:
        log: Log = []
        first, second = Watch(log), Watch(log)
        first._note = lambda event, ctx: log.append(f"1 {event}")  # type: ignore[method-assign]
        second._note = lambda event, ctx: log.append(f"2 {event}")  # type: ignore[method-assign]
        run_calls(contexts("a"), CallHooks((first, second)), answer())
        assert log == ["1 start", "2 start", "1 end", "2 end"]


class TestSkip:
    def test_a_skipped_call_needs_no_body(self) -> None:
        log: Log = []
        calls = contexts("a")
        given = {"answers": {"q": "cached"}, "usage": {"input_tokens": 9, "output_tokens": 1}}
        watch = Watch(log, start=lambda ctx: ctx.skip([given]))
        run_calls(calls, CallHooks((watch,)), lambda waiting: pytest.fail("the body ran"))
        assert log == ["start a", "end a"]
        assert calls[0].results == [given]
        assert calls[0].usage == {"input_tokens": 9, "output_tokens": 1}

    def test_the_others_share_the_body(self) -> None:
        log: Log = []
        calls = contexts("a", "b", "c")
        watch = Watch(log, start_b=lambda ctx: ctx.skip([result("cached")]))
        run_calls(calls, CallHooks((watch,)), answer(log))
        assert log == ["start a", "start b", "start c", "body a c", "end c", "end b", "end a"]
        assert [ctx.results for ctx in calls] == [[result("a")], [result("cached")], [result("c")]]

    def test_a_wrong_number_of_results_fails_in_the_hook(self) -> None:
        log: Log = []
        watch = Watch(log, start=lambda ctx: ctx.skip([result("x"), result("y")]))
        with pytest.raises(ValueError, match="skip"):
            run_calls(contexts("a"), CallHooks((watch,)), answer(log))
        assert log == ["start a", "error a", "end a"]


class TestComplete:
    def test_each_answered_context_before_its_end_hooks(self) -> None:
        log: Log = []
        calls = contexts("a", "b")
        watch = Watch(log, start_b=lambda ctx: ctx.skip([result("cached")]))
        run_calls(calls, CallHooks((watch,)), answer(log), complete=lambda ctx: log.append(f"complete {name_of(ctx)}"))
        assert log == ["start a", "start b", "body a", "complete a", "complete b", "end b", "end a"]

    def test_not_a_failed_one(self) -> None:
        log: Log = []
        calls = contexts("a", "b")
        run_calls(
            calls,
            CallHooks((Watch(log, start_a=fail(ValueError("a"))),)),
            answer(),
            isolate=True,
            complete=lambda ctx: log.append(f"complete {name_of(ctx)}"),
        )
        assert [entry for entry in log if entry.startswith("complete")] == ["complete b"]

    def test_its_own_failure_stays_with_its_context(self) -> None:
        log: Log = []
        calls = contexts("a", "b")
        error = KeyError("a")

        def complete(ctx: PredictContext) -> None:
            if name_of(ctx) == "a":
                raise error

        run_calls(calls, CallHooks((Watch(log),)), answer(), isolate=True, complete=complete)
        assert (calls[0].error, calls[1].error) == (error, None)
        assert log == ["start a", "start b", "end b", "error a", "end a"]


class TestVeto:
    def test_it_fails_the_call_before_the_body_and_still_ends_it(self) -> None:
        log: Log = []
        error = PermissionError("no")
        calls = contexts("a")
        with pytest.raises(PermissionError) as caught:
            run_calls(calls, CallHooks((Watch(log, start=fail(error)),)), answer(log))
        assert caught.value is error
        assert log == ["start a", "error a", "end a"]
        assert calls[0].error is error

    def test_hooks_after_the_one_that_vetoes_do_not_start_but_all_end(self) -> None:
        log: Log = []

        class After(Watch):
            def _note(self, event: str, ctx: PredictContext) -> None:
                super()._note(f"after:{event}", ctx)

        with pytest.raises(PermissionError):
            run_calls(contexts("a"), CallHooks((Watch(log, start=fail(PermissionError())), After(log))), answer(log))
        assert log == ["start a", "error a", "after:error a", "end a", "after:end a"]

    def test_of_several_calls_those_not_started_yet_never_start(self) -> None:
        log: Log = []
        error = PermissionError("b")
        calls = contexts("a", "b", "c")
        with pytest.raises(PermissionError):
            run_calls(calls, CallHooks((Watch(log, start_b=fail(error)),)), answer(log))
        assert log == ["start a", "start b", "error b", "end b", "error a", "end a"]
        assert [ctx.error for ctx in calls] == [error, error, None]


class TestFailure:
    def test_on_error_comes_before_the_end_and_knows_no_usage_or_time(self) -> None:
        seen: list[tuple[Any, ...]] = []

        def look(ctx: PredictContext) -> None:
            seen.append((ctx.error, ctx.results, ctx.usage, ctx.elapsed_ms is None))

        error = ValueError("real")
        with pytest.raises(ValueError, match="real") as caught:
            run_calls(contexts("a"), CallHooks((Watch([], error=look, end=look),)), raising(error))
        assert caught.value is error
        assert seen == [(error, None, None, True), (error, None, None, False)]

    def test_every_started_call_of_the_body_fails(self) -> None:
        log: Log = []
        error = ValueError("real")
        calls = contexts("a", "b")
        with pytest.raises(ValueError, match="real"):
            run_calls(calls, CallHooks((Watch(log),)), raising(error))
        assert log == ["start a", "start b", "error b", "end b", "error a", "end a"]
        assert [ctx.error for ctx in calls] == [error, error]

    def test_a_failure_that_the_body_returns_for_one_fails_all(self) -> None:
        error = ValueError("b alone")
        calls = contexts("a", "b")
        with pytest.raises(ValueError, match="b alone"):
            run_calls(calls, CallHooks(), lambda waiting: [[result("a")], error])
        assert [ctx.error for ctx in calls] == [error, error]
        assert [ctx.results for ctx in calls] == [None, None]

    def test_a_skipped_call_keeps_its_results_and_usage(self) -> None:
        calls = contexts("a", "b")
        watch = Watch([], start_a=lambda ctx: ctx.skip([result("cached")]))
        with pytest.raises(ValueError, match="real"):
            run_calls(calls, CallHooks((watch,)), raising(ValueError("real")))
        assert (calls[0].results, calls[0].usage) == ([result("cached")], USAGE)
        assert (calls[1].results, calls[1].usage) == (None, None)

    def test_results_that_cannot_be_summed_leave_no_call_without_its_end(self) -> None:
        log: Log = []
        calls = contexts("a", "b")
        watch = Watch(log, start_b=lambda ctx: ctx.skip([{"usage": {"input_tokens": "many"}}]))
        with pytest.raises(Exception):  # noqa: B017 which error is not the point
            run_calls(calls, CallHooks((watch,)), answer())
        assert [entry for entry in log if entry.startswith("end")] == ["end b", "end a"]


class TestHooksThatFailWhileReporting:
    def test_the_real_error_is_raised_and_they_hang_below_it_as_context(self) -> None:
        log: Log = []
        real, reporting, ending = ValueError("real"), RuntimeError("reporting"), KeyError("ending")
        with pytest.raises(ValueError, match="real") as caught:
            run_calls(contexts("a"), CallHooks((Watch(log, error=fail(reporting), end=fail(ending)),)), raising(real))
        assert caught.value is real
        assert chain(real) == [real, reporting, ending]
        assert log == ["start a", "error a", "end a"]

    def test_what_the_real_error_had_as_context_stays(self) -> None:
        cause, real, reporting = OSError("cause"), ValueError("real"), RuntimeError("reporting")
        real.__context__ = cause
        with pytest.raises(ValueError, match="real"):
            run_calls(contexts("a"), CallHooks((Watch([], error=fail(reporting)),)), raising(real))
        assert chain(real) == [real, cause, reporting]

    def test_a_hook_that_raises_the_real_error_again(self) -> None:
        real = ValueError("real")

        def again(ctx: PredictContext) -> None:
            assert ctx.error is not None
            raise ctx.error

        with pytest.raises(ValueError, match="real"):
            run_calls(contexts("a"), CallHooks((Watch([], error=again, end=again),)), raising(real))
        assert chain(real) == [real]

    @pytest.mark.timeout(5)
    def test_a_hook_that_fails_while_it_handles_the_real_error(self) -> None:
        """Its error has the real one as context already; a second such hook must not be looked for in a circle."""
        real, ending = ValueError("real"), KeyError("ending")

        def report(ctx: PredictContext) -> None:
            try:
                assert ctx.error is not None
                raise ctx.error
            except ValueError:
                raise RuntimeError("reporting")  # noqa: B904 the context is what is tested

        with pytest.raises(ValueError, match="real"):
            run_calls(contexts("a"), CallHooks((Watch([], error=report, end=fail(ending)),)), raising(real))

    def test_every_call_is_ended_all_the_same(self) -> None:
        log: Log = []
        watch = Watch(log, error=fail(RuntimeError()), end=fail(KeyError()))
        with pytest.raises(ValueError, match="real"):
            run_calls(contexts("a", "b"), CallHooks((watch,)), raising(ValueError("real")))
        assert log == ["start a", "start b", "error b", "end b", "error a", "end a"]

    def test_with_hooks_raise_off_they_warn(self) -> None:
        real = ValueError("real")
        watch = Watch([], error=fail(RuntimeError("reporting")), end=fail(KeyError("ending")))
        with pytest.warns(RuntimeWarning) as caught, pytest.raises(ValueError, match="real"):
            run_calls(contexts("a"), CallHooks((watch,), raise_errors=False), raising(real))
        assert len(caught) == 2
        assert chain(real) == [real]


class TestEndHooksThatFailOnSuccess:
    def test_they_do_raise(self) -> None:
        log: Log = []
        error = KeyError("ending")
        calls = contexts("a")
        with pytest.raises(KeyError) as caught:
            run_calls(calls, CallHooks((Watch(log, end=fail(error)),)), answer())
        assert caught.value is error
        assert log == ["start a", "end a"]

    def test_the_other_calls_end_first(self) -> None:
        log: Log = []
        calls = contexts("a", "b", "c")
        with pytest.raises(KeyError):
            run_calls(calls, CallHooks((Watch(log, end_c=fail(KeyError("c"))),)), answer())
        assert log == ["start a", "start b", "start c", "end c", "end b", "end a"]

    def test_with_hooks_raise_off_they_warn(self) -> None:
        calls = contexts("a")
        with pytest.warns(RuntimeWarning, match="KeyError"):
            run_calls(calls, CallHooks((Watch([], end=fail(KeyError("ending"))),), raise_errors=False), answer())
        assert calls[0].results == [result("a")]
        assert calls[0].error is None


class TestIsolate:
    def test_a_veto_stays_with_its_call(self) -> None:
        log: Log = []
        error = PermissionError("b")
        calls = contexts("a", "b", "c")
        run_calls(calls, CallHooks((Watch(log, start_b=fail(error)),)), answer(log), isolate=True)
        assert log == ["start a", "start b", "start c", "body a c", "end c", "error b", "end b", "end a"]
        assert [ctx.error for ctx in calls] == [None, error, None]
        assert [ctx.results for ctx in calls] == [[result("a")], None, [result("c")]]

    def test_a_failure_that_the_body_returns_stays_with_its_call(self) -> None:
        log: Log = []
        error = ValueError("a alone")
        calls = contexts("a", "b")
        run_calls(calls, CallHooks((Watch(log),)), lambda waiting: [error, [result("b")]], isolate=True)
        assert log == ["start a", "start b", "end b", "error a", "end a"]
        assert [(ctx.error, ctx.results) for ctx in calls] == [(error, None), (None, [result("b")])]

    def test_a_body_that_raises_fails_those_it_had_to_answer(self) -> None:
        error = ValueError("real")
        calls = contexts("a", "b", "c")
        watch = Watch([], start_b=lambda ctx: ctx.skip([result("cached")]))
        run_calls(calls, CallHooks((watch,)), raising(error), isolate=True)
        assert [ctx.error for ctx in calls] == [error, None, error]
        assert calls[1].results == [result("cached")]

    def test_an_end_hook_that_fails_stays_with_its_call(self) -> None:
        error = KeyError("b")
        calls = contexts("a", "b")
        run_calls(calls, CallHooks((Watch([], end_b=fail(error)),)), answer(), isolate=True)
        assert [ctx.error for ctx in calls] == [None, error]

    def test_hooks_that_fail_while_reporting_hide_nothing(self) -> None:
        real, reporting = ValueError("real"), RuntimeError("reporting")
        calls = contexts("a", "b")
        watch = Watch([], error=fail(reporting), end_a=fail(KeyError("ending")))
        run_calls(calls, CallHooks((watch,)), lambda waiting: [real, [result("b")]], isolate=True)
        assert [ctx.error for ctx in calls] == [real, None]

    @pytest.mark.parametrize("isolate", [True, False])
    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
    def test_an_interrupt_of_the_body_passes_and_every_call_is_ended(self, interrupt: BaseException, isolate: bool) -> None:
        log: Log = []
        calls = contexts("a", "b")
        with pytest.raises(type(interrupt)) as caught:
            run_calls(calls, CallHooks((Watch(log),)), raising(interrupt), isolate=isolate)
        assert caught.value is interrupt
        assert log == ["start a", "start b", "error b", "end b", "error a", "end a"]
        assert [ctx.error for ctx in calls] == [interrupt, interrupt]

    @pytest.mark.parametrize("isolate", [True, False])
    @pytest.mark.parametrize("event", ["start", "end", "error"])
    def test_an_interrupt_of_a_hook_passes(self, event: str, isolate: bool) -> None:
        body = raising(ValueError("real")) if event == "error" else answer()
        with pytest.raises(KeyboardInterrupt):
            run_calls(contexts("a"), CallHooks((Watch([], **{event: fail(KeyboardInterrupt())}),)), body, isolate=isolate)


class TestThreads:
    def test_hooks_take_turns_and_bodies_do_not(self) -> None:
        """With one lock for the hooks of both calls, the bodies still wait for each other, inside both calls at once."""
        hooks = CallHooks((Watch([]),), lock=threading.RLock())
        barrier = threading.Barrier(2, timeout=30)

        def body(waiting: list[PredictContext]) -> list[Results]:
            barrier.wait()
            return [[result(name_of(ctx))] for ctx in waiting]

        def call(name: str) -> Results | None:
            ctx = contexts(name)[0]
            run_calls([ctx], hooks, body)
            return ctx.results

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(call, "ab")) == [[result("a")], [result("b")]]

    def test_hooks_and_body_run_on_the_callers_thread_and_context(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        seen: list[str] = []
        watch = Watch([], start=lambda ctx: variable.set("from the start hook"), end=lambda ctx: seen.append(variable.get()))

        def body(waiting: list[PredictContext]) -> list[Results]:
            seen.append(variable.get())
            return answer()(waiting)  # type: ignore[return-value]

        contextvars.copy_context().run(run_calls, contexts("a"), CallHooks((watch,)), body)
        assert seen == ["from the start hook"] * 2


class TestWhatAHookLeaves:
    """A text where a list belongs would be read as a list of letters."""

    @pytest.mark.parametrize("wrong", ["a text", {"a": 1}, None, 7])
    def test_states_that_are_no_list_fail_the_call(self, wrong: Any, tiny: laya.Agent, make_hook: Any) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.states = wrong

        seen = make_hook(on_predict_start=rewrite)
        with pytest.raises(TypeError, match=r"a hook left ctx\.states as one \w+: it must be a list"):
            tiny.system_one("hello", {}, hooks=seen)
        assert seen.events == ["on_predict_start", "on_error", "on_predict_end"]

    @pytest.mark.parametrize("call", ["system_one", "predict_batch"])
    def test_results_that_are_no_list_are_not_returned(self, call: str, tiny: laya.Agent) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.results = {"answers": {}}  # type: ignore[assignment]

        with pytest.raises(TypeError, match=r"ctx\.results as one dict"):
            getattr(tiny, call)(["hello"], {}, on_predict_end=rewrite)
