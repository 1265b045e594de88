"""One event on a list of hooks: raise policy, lock, timeout, and coroutines in sync code."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import laya
from laya.hooks import AsyncHook, BaseHook, PredictContext, dispatch, normalise_hooks, run_coroutine_sync

QUESTIONS = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}
VETO = ["on_predict_start", "on_route"]
WATCH = ["on_predict_end", "on_load", "on_evict", "on_error"]
LONG = 30.0  # seconds that a test waits for what should come at once, before it fails


def context() -> PredictContext:
    return PredictContext(states=["s"], questions={})


def hook(event: str, action: Callable[[PredictContext], Any]) -> Any:
    return type("Hook", (), {event: lambda self, ctx: action(ctx)})()


def failing(error: BaseException) -> Callable[[PredictContext], None]:
    def fail(ctx: PredictContext) -> None:
        raise error

    return fail


class TestCalls:
    def test_every_hook_that_has_the_event_in_order_with_the_context(self) -> None:
        seen: list[tuple[str, PredictContext]] = []
        ctx = context()
        hooks = [
            hook("on_load", lambda ctx: seen.append(("a", ctx))),
            hook("on_evict", lambda ctx: pytest.fail("another event")),
            hook("on_load", lambda ctx: seen.append(("b", ctx))),
        ]
        dispatch(hooks, "on_load", ctx)
        assert seen == [("a", ctx), ("b", ctx)]

    def test_what_normalise_hooks_made(self) -> None:
        seen: list[PredictContext] = []
        ctx = context()
        dispatch(normalise_hooks(on_predict_start=[seen.append, seen.append]), "on_predict_start", ctx)
        assert seen == [ctx, ctx]

    def test_no_hooks(self) -> None:
        dispatch([], "on_load", context())

    def test_an_event_that_is_none_is_not_there(self) -> None:
        class Half(BaseHook):
            on_load = None  # type: ignore[assignment]

        dispatch([Half()], "on_load", context())


class TestErrors:
    @pytest.mark.parametrize("event", VETO)
    def test_a_veto_stops_the_hooks_after_it(self, event: str) -> None:
        error = PermissionError("no")
        with pytest.raises(PermissionError) as caught:
            dispatch([hook(event, failing(error)), hook(event, lambda ctx: pytest.fail("went on"))], event, context())
        assert caught.value is error

    @pytest.mark.parametrize("event", WATCH)
    def test_where_hooks_only_watch_each_gets_its_turn_and_the_first_error_is_raised(self, event: str) -> None:
        seen: list[str] = []
        first, second = ValueError("first"), KeyError("second")
        hooks = [
            hook(event, failing(first)),
            hook(event, lambda ctx: seen.append("between")),
            hook(event, failing(second)),
            hook(event, lambda ctx: seen.append("last")),
        ]
        with pytest.raises(ValueError, match="first") as caught:
            dispatch(hooks, event, context())
        assert caught.value is first
        assert seen == ["between", "last"]
        assert "second" in "".join(first.__notes__)

    @pytest.mark.parametrize("event", VETO + WATCH)
    def test_without_raising_each_error_is_a_warning(self, event: str) -> None:
        seen: list[PredictContext] = []
        ctx = context()
        hooks = [hook(event, failing(ValueError("one"))), hook(event, failing(KeyError("two"))), hook(event, seen.append)]
        with pytest.warns(RuntimeWarning) as caught:
            dispatch(hooks, event, ctx, raise_errors=False)
        assert seen == [ctx]
        messages = [str(warning.message) for warning in caught]
        assert len(messages) == 2
        assert all(event in message for message in messages)
        assert "ValueError: one" in messages[0]
        assert "KeyError" in messages[1]

    @pytest.mark.parametrize("raise_errors", [True, False])
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
    def test_an_interrupt_always_passes(self, error: BaseException, raise_errors: bool) -> None:
        with pytest.raises(type(error)):
            dispatch([hook("on_predict_end", failing(error))], "on_predict_end", context(), raise_errors=raise_errors)


class Turns:
    """A lock that notes when it is held."""

    def __init__(self) -> None:
        self.held = 0
        self.taken = 0

    def __enter__(self) -> None:
        self.held += 1
        self.taken += 1

    def __exit__(self, *error: object) -> None:
        self.held -= 1


class TestLock:
    @pytest.mark.parametrize("timeout", [None, LONG])
    def test_it_is_held_round_each_hook_and_not_between(self, timeout: float | None) -> None:
        turns, held = Turns(), []
        hooks = [hook("on_load", lambda ctx: held.append((turns.held, turns.taken))) for _ in range(3)]
        dispatch(hooks, "on_load", context(), lock=turns, timeout=timeout)
        assert held == [(1, 1), (1, 2), (1, 3)]
        assert turns.held == 0

    @pytest.mark.parametrize("timeout", [None, LONG])
    def test_it_is_released_by_a_hook_that_fails(self, timeout: float | None) -> None:
        turns = Turns()
        with pytest.raises(ValueError, match="x"):
            dispatch([hook("on_load", failing(ValueError("x")))], "on_load", context(), lock=turns, timeout=timeout)
        assert (turns.held, turns.taken) == (0, 1)


def meet(agent: laya.Agent, barrier: threading.Barrier) -> list[bool]:
    """Calls the agent on two threads whose start hooks wait for each other; tells whether each met the other."""
    met: list[bool] = []

    def start(ctx: PredictContext) -> None:
        try:
            barrier.wait()
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda state: agent.system_one(state, QUESTIONS, on_predict_start=start), ["a", "b"]))
    return met


@pytest.fixture(scope="module")
def taking_turns(quiet_folder: Path) -> laya.Agent:
    return laya.load(str(quiet_folder), device="cpu", hooks_concurrent=False)


class TestHooksConcurrent:
    def test_by_default_hooks_of_two_calls_overlap(self, tiny: laya.Agent) -> None:
        assert meet(tiny, threading.Barrier(2, timeout=LONG)) == [True, True]

    def test_otherwise_they_take_turns(self, taking_turns: laya.Agent) -> None:
        assert meet(taking_turns, threading.Barrier(2, timeout=0.2)) == [False, False]

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("timeout", [None, 2.0])
    def test_a_hook_may_call_the_agent_again(self, timeout: float | None, taking_turns: laya.Agent) -> None:
        inner: list[Any] = []

        def start(ctx: PredictContext) -> None:
            if ctx.states == ["outer"]:
                inner.append(ctx.agent.system_one("inner", QUESTIONS, on_predict_start=start, hooks_timeout=timeout))

        result = taking_turns.system_one("outer", QUESTIONS, on_predict_start=start, hooks_timeout=timeout)
        assert [list(found["answers"]) for found in (*inner, result)] == [["refund"], ["refund"]]


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class TestTimeout:
    def test_a_hook_that_overruns_is_a_timeout_error(self) -> None:
        release = threading.Event()
        try:
            with pytest.raises(TimeoutError, match=r"0\.05.*on_load"):
                dispatch([hook("on_load", lambda ctx: release.wait(LONG))], "on_load", context(), timeout=0.05)
        finally:
            release.set()

    @pytest.mark.parametrize("event", ["on_predict_start", "on_predict_end"])
    def test_it_is_an_error_like_any_other(self, event: str) -> None:
        release = threading.Event()
        seen: list[PredictContext] = []
        ctx = context()
        try:
            with pytest.warns(RuntimeWarning, match="TimeoutError"):
                dispatch(
                    [hook(event, lambda ctx: release.wait(LONG)), hook(event, seen.append)], event, ctx, raise_errors=False, timeout=0.05
                )
        finally:
            release.set()
        assert seen == [ctx]

    def test_it_is_counted_for_each_hook_alone(self) -> None:
        threads: list[int] = []
        dispatch([hook("on_load", lambda ctx: threads.append(threading.get_ident()))] * 3, "on_load", context(), timeout=LONG)
        assert len(threads) == 3
        assert threading.get_ident() not in threads

    def test_without_one_the_hook_runs_on_the_calling_thread(self) -> None:
        threads: list[int] = []
        dispatch([hook("on_load", lambda ctx: threads.append(threading.get_ident()))], "on_load", context())
        assert threads == [threading.get_ident()]

    def test_what_the_hook_raises_comes_through(self) -> None:
        error = ValueError("from the hook")
        with pytest.raises(ValueError, match="from the hook") as caught:
            dispatch([hook("on_load", failing(error))], "on_load", context(), timeout=LONG)
        assert caught.value is error

    def test_the_hook_sees_a_copy_of_the_callers_context_variables(self) -> None:
        seen: list[str] = []

        def read_and_write(ctx: PredictContext) -> None:
            seen.append(TENANT.get())
            TENANT.set("the hook")

        token = TENANT.set("the caller")
        try:
            dispatch([hook("on_load", read_and_write)], "on_load", context(), timeout=LONG)
            assert seen == ["the caller"]
            assert TENANT.get() == "the caller"
        finally:
            TENANT.reset(token)

    def test_a_call_passes_its_own_on(self, tiny: laya.Agent, make_hook: Any) -> None:
        release = threading.Event()
        watching = make_hook()
        try:
            with pytest.raises(TimeoutError):
                tiny.system_one("x", QUESTIONS, hooks=watching, on_predict_start=lambda ctx: release.wait(LONG), hooks_timeout=0.05)
        finally:
            release.set()
        assert watching.events == ["on_predict_start", "on_error", "on_predict_end"]
        assert isinstance(watching.seen[-1][1].error, TimeoutError)

    def test_the_instances_counts_where_the_call_has_none(self, quiet_folder: Any) -> None:
        release = threading.Event()
        agent = laya.load(str(quiet_folder), device="cpu", hooks_timeout=0.05)
        try:
            with pytest.raises(TimeoutError):
                agent.system_one("x", QUESTIONS, on_predict_start=lambda ctx: release.wait(LONG))
            quick: list[Any] = []
            agent.system_one("x", QUESTIONS, on_predict_start=quick.append, hooks_timeout=LONG)
            assert len(quick) == 1
        finally:
            release.set()


async def others_are_done() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)


@contextmanager
def loop_in_another_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(others_are_done(), loop).result(LONG)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LONG)
        loop.close()


async def where() -> tuple[asyncio.AbstractEventLoop, int]:
    await asyncio.sleep(0)
    return asyncio.get_running_loop(), threading.get_ident()


class Await:
    """Something that can be awaited and is no coroutine."""

    def __await__(self) -> Generator[None, None, int]:
        yield
        return 7


class TestRunCoroutineSync:
    def test_without_a_loop_it_runs_on_this_thread(self) -> None:
        _, thread = run_coroutine_sync(where())
        assert thread == threading.get_ident()

    def test_inside_a_running_loop_it_runs_on_another_one(self) -> None:
        async def caller() -> None:
            loop, thread = run_coroutine_sync(where())
            assert loop is not asyncio.get_running_loop()
            assert thread != threading.get_ident()

        asyncio.run(caller())

    def test_the_background_loop_is_one_for_all(self) -> None:
        async def caller() -> asyncio.AbstractEventLoop:
            loop: asyncio.AbstractEventLoop = run_coroutine_sync(where())[0]
            return loop

        assert asyncio.run(caller()) is asyncio.run(caller())

    def test_on_the_loop_that_was_asked_for(self) -> None:
        async def caller(wanted: asyncio.AbstractEventLoop) -> None:
            assert run_coroutine_sync(where(), wanted)[0] is wanted

        with loop_in_another_thread() as loop:
            assert run_coroutine_sync(where(), loop)[0] is loop
            asyncio.run(caller(loop))

    def test_any_awaitable(self) -> None:
        async def caller() -> Any:
            return run_coroutine_sync(Await())

        assert run_coroutine_sync(Await()) == 7
        assert asyncio.run(caller()) == 7

    def test_its_exception_comes_through(self) -> None:
        async def fail() -> None:
            raise KeyError("inside")

        async def caller() -> None:
            run_coroutine_sync(fail())

        with pytest.raises(KeyError, match="inside"):
            run_coroutine_sync(fail())
        with pytest.raises(KeyError, match="inside"):
            asyncio.run(caller())

    def test_a_loop_that_does_not_run_is_refused(self) -> None:
        stopped = asyncio.new_event_loop()
        with pytest.raises(ValueError, match="not running"):
            run_coroutine_sync(where(), stopped)
        stopped.close()
        with pytest.raises(ValueError, match="not running"):
            run_coroutine_sync(where(), stopped)

    def test_the_callers_own_loop_is_refused(self) -> None:
        async def caller() -> None:
            with pytest.raises(ValueError, match="own"):
                run_coroutine_sync(where(), asyncio.get_running_loop())

        asyncio.run(caller())

    @pytest.mark.parametrize("depth", [1, 2, 4])
    def test_coroutines_that_run_others_from_sync_code(self, depth: int) -> None:
        """In a process of its own, because a background loop that waits for itself never comes back."""
        script = f"""
import asyncio, os, threading
from laya.hooks import run_coroutine_sync

async def nested(depth): return run_coroutine_sync(nested(depth - 1)) if depth else "done"
async def caller(): return run_coroutine_sync(nested({depth}))

found = []
thread = threading.Thread(target=lambda: found.append(asyncio.run(caller())), daemon=True)
thread.start()
thread.join(3)
print(found, flush=True)
os._exit(0)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == "['done']", done.stderr


class Remote:
    """A hook of coroutines and one plain event, noting the loop that each ran on."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    async def on_predict_start(self, ctx: PredictContext) -> None:
        await asyncio.sleep(0)
        self.seen.append(("start", asyncio.get_running_loop()))

    async def on_predict_end(self, ctx: PredictContext) -> None:
        await asyncio.sleep(0)
        self.seen.append(("end", asyncio.get_running_loop()))

    def on_error(self, ctx: PredictContext) -> None:
        self.seen.append(("error", None))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.seen]


class TestAsyncHook:
    def test_its_coroutines_finish_before_the_call_goes_on(self, tiny: laya.Agent) -> None:
        remote = Remote()
        tiny.system_one("x", QUESTIONS, hooks=AsyncHook(remote))
        assert remote.events == ["start", "end"]

    def test_a_plain_event_runs_as_ever(self, tiny: laya.Agent) -> None:
        remote = Remote()
        with pytest.raises(TypeError):
            tiny.system_one(None, QUESTIONS, hooks=AsyncHook(remote))
        assert remote.events == ["start", "error", "end"]

    def test_from_inside_a_running_loop(self, tiny: laya.Agent) -> None:
        remote = Remote()

        async def serve() -> dict[str, Any]:
            return tiny.system_one("x", QUESTIONS, hooks=AsyncHook(remote))

        assert list(asyncio.run(serve())["answers"]) == ["refund"]
        assert remote.events == ["start", "end"]

    def test_on_a_loop_of_its_own(self, tiny: laya.Agent) -> None:
        remote = Remote()
        with loop_in_another_thread() as loop:
            tiny.system_one("x", QUESTIONS, hooks=AsyncHook(remote, loop=loop))
        assert [ran_on for _, ran_on in remote.seen] == [loop, loop]

    def test_loops_that_would_block_for_ever_are_refused(self, tiny: laya.Agent) -> None:
        stopped = asyncio.new_event_loop()
        with pytest.raises(ValueError, match="not running"):
            tiny.system_one("x", QUESTIONS, hooks=AsyncHook(Remote(), loop=stopped))
        stopped.close()

        async def serve() -> None:
            with pytest.raises(ValueError, match="own"):
                tiny.system_one("x", QUESTIONS, hooks=AsyncHook(Remote(), loop=asyncio.get_running_loop()))

        asyncio.run(serve())

    def test_only_the_events_of_the_hook_inside_are_there(self) -> None:
        inside = hook("on_load", lambda ctx: None)
        found = AsyncHook(inside)
        assert [event for event in ("on_load", "on_evict", "on_predict_start") if hasattr(found, event)] == ["on_load"]

    @pytest.mark.parametrize("inside", [Remote, object(), print], ids=["class", "object", "callable"])
    def test_what_is_no_hook_is_refused(self, inside: Any) -> None:
        with pytest.raises(TypeError):
            AsyncHook(inside)

    def test_with_a_timeout(self) -> None:
        remote = Remote()
        dispatch([AsyncHook(remote)], "on_predict_start", context(), timeout=LONG)
        assert remote.events == ["start"]

        async def never(ctx: PredictContext) -> None:
            await release.wait()

        with loop_in_another_thread() as loop:
            release = asyncio.Event()
            slow = hook("on_load", never)
            with pytest.raises(TimeoutError):
                dispatch([AsyncHook(slow, loop=loop)], "on_load", context(), timeout=0.05)
            loop.call_soon_threadsafe(release.set)


class TestPlainCoroutineFunctions:
    def test_as_start_and_end_callables(self, tiny: laya.Agent) -> None:
        seen: list[tuple[str, int]] = []

        async def start(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append(("start", len(ctx.states)))

        async def end(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append(("end", len(ctx.results or [])))

        tiny.system_one("x", QUESTIONS, on_predict_start=start, on_predict_end=[end, end])
        assert seen == [("start", 1), ("end", 1), ("end", 1)]

    def test_a_coroutine_may_veto(self, tiny: laya.Agent) -> None:
        async def veto(ctx: PredictContext) -> None:
            raise PermissionError("no")

        with pytest.raises(PermissionError, match="no"):
            tiny.system_one("x", QUESTIONS, on_predict_start=veto)

    def test_the_context_variables_of_the_caller_reach_it(self) -> None:
        seen: list[str] = []

        async def read(ctx: PredictContext) -> None:
            seen.append(TENANT.get())

        async def caller() -> None:
            dispatch([hook("on_load", read)], "on_load", context())

        token = TENANT.set("the caller")
        try:
            dispatch([hook("on_load", read)], "on_load", context())
            dispatch([hook("on_load", read)], "on_load", context(), timeout=LONG)
            asyncio.run(caller())
        finally:
            TENANT.reset(token)
        assert seen == ["the caller"] * 3


class TestLoopsUnderATimeout:
    """With a timeout a hook runs on a helper thread, and that thread is its caller's: the rules of loops are the same."""

    def test_the_callers_own_loop_is_refused_at_once(self) -> None:
        async def caller() -> None:
            hook = AsyncHook(Coroutine(), loop=asyncio.get_running_loop())
            with pytest.raises(ValueError, match="the calling thread's own"):
                dispatch([hook], "on_predict_start", PredictContext(states=[], questions={}), timeout=60)

        asyncio.run(caller())

    def test_under_a_running_loop_all_share_the_background_loop(self) -> None:
        loops = []

        async def note(ctx: PredictContext) -> None:
            loops.append(asyncio.get_running_loop())

        async def caller() -> None:
            for timeout in (None, 60):
                dispatch(normalise_hooks(on_predict_start=note), "on_predict_start", PredictContext([], {}), timeout=timeout)

        asyncio.run(caller())
        assert loops[0] is loops[1]


class Coroutine:
    async def on_predict_start(self, ctx: PredictContext) -> None:
        """Does nothing, later."""


class TestACoroutineThatIsCancelled:
    @pytest.mark.parametrize("inside_a_loop", [False, True])
    def test_is_an_error_of_its_hook_and_every_call_is_ended(self, inside_a_loop: bool, tiny: laya.Agent) -> None:
        ended = []

        async def cancel(ctx: PredictContext) -> None:
            ended.append(ctx.states[0])
            if ctx.states == ["c"]:
                raise asyncio.CancelledError

        router = laya.Router()
        router.attach("english", tiny)
        requests = [{"state": state, "questions": {}, "model": "english"} for state in "abc"]

        async def caller() -> list[object]:
            return router.predict_batch(requests, on_predict_end=cancel, return_exceptions=True)

        found = asyncio.run(caller()) if inside_a_loop else router.predict_batch(requests, on_predict_end=cancel, return_exceptions=True)
        assert ended == ["c", "b", "a"]
        assert [type(result) for result in found] == [dict, dict, RuntimeError]


def test_an_event_that_cannot_be_looked_up_is_a_failure_of_its_hook() -> None:
    class Lazy:
        ready = True

        @property
        def on_predict_start(self) -> object:
            if not self.ready:
                raise RuntimeError("gone")
            return print

    hook = Lazy()
    hooks = normalise_hooks(hook)
    hook.ready = False
    with pytest.warns(RuntimeWarning, match="RuntimeError: gone"):
        dispatch(hooks, "on_predict_start", PredictContext([], {}), raise_errors=False)
