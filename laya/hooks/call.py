"""The lifecycle of a call: start, body, error, end. Every runtime runs its calls through `run_calls`, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from laya.hooks.context import PredictContext, aggregate_usage
from laya.hooks.dispatch import dispatch

Results = list[dict[str, Any]]
Body = Callable[[list[PredictContext]], Sequence[Results | BaseException]]
"""Answers contexts: for each of them its results (one a state), or what failed it alone. Raising fails them all."""


_served: ContextVar[tuple[str, ...] | None] = ContextVar("laya_served_requests", default=None)


@contextmanager
def _serving(run_ids: tuple[str, ...] | None) -> Iterator[None]:
    token = _served.set(run_ids)
    try:
        yield
    finally:
        _served.reset(token)


def serving(run_ids: Iterable[str]) -> AbstractContextManager[None]:
    """Marks the calls of a block as parts of outer calls, whose process-wide hooks have fired already.

    A Router wraps its agents' calls in it, so that a default hook sees each request once; hooks installed on an agent still fire
    there, with the requests named in ``ctx.request_ids``.
    """
    return _serving(tuple(run_ids))


def served_requests() -> list[str] | None:
    """The run ids given to `serving`, or None outside of it."""
    run_ids = _served.get()
    return None if run_ids is None else list(run_ids)


@dataclass(frozen=True, slots=True)
class CallHooks:
    """The hooks of one call and how they are run: defaults, then installed, then per call."""

    hooks: tuple[Any, ...] = ()
    raise_errors: bool = True
    lock: AbstractContextManager[Any] | None = None
    timeout: float | None = None

    def fire(self, event: str, ctx: PredictContext) -> None:
        """Calls one event on every hook that has it; see `dispatch`."""
        if self.hooks:
            with _serving(None):  # a call that a hook makes is its own, and serves none of these requests
                dispatch(self.hooks, event, ctx, raise_errors=self.raise_errors, lock=self.lock, timeout=self.timeout)


def results_of(ctx: PredictContext) -> Results:
    """The results of a call that has ended, at least one.

    Raises:
        TypeError: A hook left something that is no list.
        ValueError: A hook left none.
    """
    if not ctx.results:
        raise ValueError("no result is left to return: a hook emptied ctx.states or ctx.results")
    return _listed("results", ctx.results)


def _listed(name: str, value: list[Any]) -> list[Any]:
    """What a hook left in a field that holds a list, as it is: a text in its place would be taken for a list of letters."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"a hook left ctx.{name} as one {type(value).__name__}: it must be a list, [value] for a single one")
    return value


def run_call(
    ctx: PredictContext,
    hooks: CallHooks,
    body: Callable[[PredictContext], Results],
    *,
    complete: Callable[[PredictContext], None] | None = None,
) -> Results:
    """Runs the lifecycle of one call and returns its results; see `run_calls`."""
    run_calls([ctx], hooks, lambda contexts: [body(contexts[0])], complete=complete)
    return _listed("results", ctx.results or [])


def run_calls(
    contexts: Sequence[PredictContext],
    hooks: CallHooks,
    body: Body,
    *,
    isolate: bool = False,
    complete: Callable[[PredictContext], None] | None = None,
) -> None:
    """Runs the lifecycle of calls that are answered together.

    Start hooks fire context by context; the contexts that no hook answered share the body; ends fire in reverse start order.
    On return every context holds its results.

    Args:
        contexts: The calls, in order.
        hooks: Their hooks.
        body: Answers the contexts that are left; see `Body`.
        isolate: True keeps a failure to the context that it belongs to, as ``ctx.error``. False fails every started one and raises.
        complete: Called on each answered context, also one that a hook answered, before its end hooks see it.

    Raises:
        BaseException: What a start hook, the body or (on the success path) an end hook raised, unless ``isolate``.
    """
    started: list[PredictContext] = []
    failure: BaseException | None = None
    try:
        for ctx in contexts:
            started.append(ctx)
            _start(ctx, hooks, isolate)
        _answer([ctx for ctx in started if ctx.results is None and ctx.error is None], body, isolate)
        for ctx in started:
            if ctx.error is None:
                _complete(ctx, complete, isolate)
    except BaseException as error:
        failure = error
        for ctx in started:
            ctx.error = error
    for ctx in reversed(started):
        ended = _close(ctx, hooks)
        if not isolate:
            failure = failure or ended
    if failure is not None:
        try:
            raise failure
        finally:
            del failure


def _start(ctx: PredictContext, hooks: CallHooks, isolate: bool) -> None:
    try:
        hooks.fire("on_predict_start", ctx)
        _listed("states", ctx.states)
    except Exception as error:
        if not isolate:
            raise
        ctx.error = error


def _complete(ctx: PredictContext, complete: Callable[[PredictContext], None] | None, isolate: bool) -> None:
    try:
        if complete is not None:
            complete(ctx)
        ctx.usage = aggregate_usage(ctx.results or [])  # fails where what a hook has supplied is no result
    except Exception as error:
        if not isolate:
            raise
        ctx.error = error


def _answer(contexts: list[PredictContext], body: Body, isolate: bool) -> None:
    if not contexts:
        return
    try:
        outcomes = body(contexts)
    except Exception as error:
        if not isolate:
            raise
        outcomes = [error] * len(contexts)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isolate:
            raise outcome
    for ctx, outcome in zip(contexts, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            ctx.error = outcome
        else:
            ctx.results = outcome


def _close(ctx: PredictContext, hooks: CallHooks) -> BaseException | None:
    """Ends one started call. Returns what its caller must see; on failure that is the real error, never a hook's."""
    error = ctx.error
    if error is not None:
        ctx.usage = None
        _fire_after(error, "on_error", ctx, hooks)
    ctx.elapsed_ms = (time.perf_counter() - ctx.started_at) * 1000
    if error is not None:
        with suppress(Exception):  # what failed the call may be that its results cannot be counted
            ctx.usage = None if ctx.results is None else aggregate_usage(ctx.results)
        _fire_after(error, "on_predict_end", ctx, hooks)
        return error
    try:
        hooks.fire("on_predict_end", ctx)
    except Exception as raised:
        ctx.error = raised
        return raised
    return None


def _fire_after(error: BaseException, event: str, ctx: PredictContext, hooks: CallHooks) -> None:
    """Fires a closing event of a failed call; a hook that fails is chained below the real error as its context."""
    try:
        hooks.fire(event, ctx)
    except Exception as raised:
        _chain(error, raised)


def _chain(error: BaseException, raised: BaseException) -> None:
    """Hangs a later error at the end of an earlier one's contexts, without ever closing a circle."""
    known = [error]
    while (last := known[-1].__context__) is not None:
        known.append(last)
    if any(raised is link for link in known):
        return
    link = raised
    while link.__context__ is not None:
        if any(link.__context__ is earlier for earlier in known):
            link.__context__ = None
        else:
            link = link.__context__
    known[-1].__context__ = raised
