"""Calling one event on a list of hooks: raise policy, lock, timeout, and coroutines run from sync code."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import math
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from laya.hooks.context import PredictContext
from laya.hooks.protocol import HOOK_EVENTS, check_hook

# A start or route hook may veto the call, so the first error stops the rest. The others only watch: each of them gets its turn
# (a span that was opened must be closed), and the first error is raised after the last one.
_VETO_EVENTS = frozenset({"on_predict_start", "on_route"})


def check_timeout(timeout: float | None) -> float | None:
    """Returns a hook timeout as it is.

    Args:
        timeout: Seconds, or None for no limit.

    Raises:
        ValueError: It is neither None nor a positive, finite number.
    """
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not math.isfinite(timeout) or timeout <= 0
    ):
        raise ValueError(f"hooks_timeout must be a positive, finite number of seconds or None, not {timeout!r}")
    return timeout


def dispatch(
    hooks: Iterable[Any],
    event: str,
    ctx: PredictContext,
    *,
    raise_errors: bool = True,
    lock: AbstractContextManager[Any] | None = None,
    timeout: float | None = None,
) -> None:
    """Calls one event on every hook that has it.

    Args:
        hooks: Hooks in order.
        event: One of HOOK_EVENTS.
        ctx: The context they get.
        raise_errors: False turns a hook's exception into a RuntimeWarning and goes on.
        lock: Held round each hook call, so that hooks of several threads take turns.
        timeout: Seconds that each hook may take. With one, a hook runs on a helper thread in a copy of the caller's context
            variables; one that overruns is left behind there.

    Raises:
        TimeoutError: A hook overran.
        Exception: Whatever a hook raised, if ``raise_errors``.
    """
    first: Exception | None = None
    for hook in hooks:
        try:
            method = getattr(hook, event, None)
            if method is None:
                continue
            if timeout is not None:
                _call_within(method, ctx, lock, timeout, event)
            elif lock is not None:
                with lock:
                    _call(method, ctx)
            else:
                _call(method, ctx)
        except Exception as error:
            if not raise_errors:
                warnings.warn(f"hook {hook!r} failed in {event}: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
            elif event in _VETO_EVENTS:
                raise
            elif first is None:
                first = error
            else:
                error.__context__ = None
                first.add_note(f"a later hook failed too, {hook!r}: {type(error).__name__}: {error}")
    if first is not None:
        raise first


@dataclass(slots=True, eq=False)
class _Holder:
    turn: HookTurn
    depth: int = 1


_holders: contextvars.ContextVar[tuple[_Holder, ...]] = contextvars.ContextVar("laya_hook_turns", default=())


class HookTurn:
    """A re-entrant lock that belongs to a call, not to a thread: with a timeout, hooks within hooks run on threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def _held(self) -> _Holder | None:
        return next((holder for holder in _holders.get() if holder.turn is self and holder.depth > 0), None)

    def locked(self) -> bool:
        """Whether some call holds it now."""
        return self._lock.locked()

    def __enter__(self) -> None:
        holder = self._held()
        if holder is not None:
            holder.depth += 1
            return
        self._lock.acquire()
        _holders.set((*(holder for holder in _holders.get() if holder.depth > 0), _Holder(self)))

    def __exit__(self, *_: object) -> None:
        holder = self._held()
        assert holder is not None
        holder.depth -= 1
        if not holder.depth:
            self._lock.release()


def _call(method: Callable[[PredictContext], Any], ctx: PredictContext) -> None:
    outcome = method(ctx)
    if outcome is not None and inspect.isawaitable(outcome):
        run_coroutine_sync(outcome)


def _call_within(
    method: Callable[[PredictContext], Any], ctx: PredictContext, lock: AbstractContextManager[Any] | None, timeout: float, event: str
) -> None:
    """Runs a hook on a helper thread; the lock is taken there, so that a hook may call back in under it."""
    done = threading.Event()
    failure: list[BaseException] = []
    variables = contextvars.copy_context()
    variables.run(_caller_loop.set, _own_loop())  # to the hook, the helper thread is its caller's

    def call() -> None:
        with lock or nullcontext():
            _call(method, ctx)

    def run() -> None:
        try:
            variables.run(call)
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name=f"laya-hook-{event}", daemon=True).start()
    if not done.wait(timeout):
        raise TimeoutError(f"hook {method!r} took longer than hooks_timeout={timeout} seconds in {event}")
    if failure:
        raise failure.pop()


@functools.lru_cache(maxsize=1)
def _background_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="laya-hooks-loop", daemon=True).start()
    return loop


_caller_loop: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar("laya_hooks_caller_loop", default=None)
_in_background: contextvars.ContextVar[bool] = contextvars.ContextVar("laya_hooks_in_background", default=False)


async def _finish(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        # It would go through the calling thread as if that were cancelled, past every other hook.
        raise RuntimeError("the coroutine of a hook was cancelled") from error


async def _finish_in_background(awaitable: Awaitable[Any]) -> Any:
    _in_background.set(True)
    return await _finish(awaitable)


def _own_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that the calling thread runs, or the thread that waits for it."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        loop = _caller_loop.get()
        return loop if loop is not None and loop.is_running() else None


def run_coroutine_sync(coro: Awaitable[Any], loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """Runs an awaitable to completion from sync code and returns its value.

    Args:
        coro: A coroutine or another awaitable.
        loop: A running event loop of another thread to run it on. Without one it runs by ``asyncio.run`` where the calling
            thread has no running loop, else on a background loop, since blocking the thread's own loop would never end.

    Raises:
        ValueError: ``loop`` is not running, or is the calling thread's own.
    """
    own = _own_loop()
    if loop is None and own is None:
        return asyncio.run(_finish(coro))
    if loop is not None and (not loop.is_running() or loop is own):
        if inspect.iscoroutine(coro):
            coro.close()
        reason = "is the calling thread's own and would wait for itself" if loop is own else "is not running"
        raise ValueError(f"cannot run a hook on the loop given: it {reason}; pass a loop that runs in another thread")
    if loop is not None:
        return asyncio.run_coroutine_threadsafe(_finish(coro), loop).result()
    if _in_background.get():
        # The background loop waits for the coroutine that asks; another one there would never get its turn.
        with ThreadPoolExecutor(1) as one:
            return one.submit(contextvars.copy_context().run, asyncio.run, _finish(coro)).result()
    return asyncio.run_coroutine_threadsafe(_finish_in_background(coro), _background_loop()).result()


class AsyncHook:
    """Makes a hook whose events are coroutines usable from sync calls.

    Args:
        hook: An object with one or more of the six events, ``async def`` or plain.
        loop: A running event loop of another thread to run the coroutines on; see `run_coroutine_sync`.

    Raises:
        TypeError: ``hook`` is not a hook.
    """

    def __init__(self, hook: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        check_hook(hook)
        self.hook = hook
        self.loop = loop
        for event in HOOK_EVENTS:
            method = getattr(hook, event, None)
            if method is not None:
                setattr(self, event, functools.partial(self._run, method))

    def _run(self, method: Callable[[PredictContext], Any], ctx: PredictContext) -> None:
        outcome = method(ctx)
        if inspect.isawaitable(outcome):
            run_coroutine_sync(cast("Coroutine[Any, Any, Any]", outcome), self.loop)
