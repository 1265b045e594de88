"""The lifecycle of a call: start, body, error, end. Every runtime runs its calls through `run_calls`, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from laya.hooks.context import PredictContext, aggregate_usage
from laya.hooks.dispatch import dispatch

Results = list[dict[str, Any]]
Body = Callable[[list[PredictContext]], Sequence[Results | BaseException]]
"""Answers contexts: for each of them its results (one a state), or what failed it alone. Raising fails them all."""


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
            dispatch(self.hooks, event, ctx, raise_errors=self.raise_errors, lock=self.lock, timeout=self.timeout)


def run_call(ctx: PredictContext, hooks: CallHooks, body: Callable[[PredictContext], Results]) -> Results:
    """Runs the lifecycle of one call and returns its results."""
    run_calls([ctx], hooks, lambda contexts: [body(contexts[0])])
    return ctx.results or []


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
        if complete is not None:
            for ctx in started:
                if ctx.error is None:
                    complete(ctx)
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
        _fire_after(error, "on_error", ctx, hooks)
    ctx.elapsed_ms = (time.perf_counter() - ctx.started_at) * 1000
    ctx.usage = None if ctx.results is None else aggregate_usage(ctx.results)
    if error is not None:
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
        last = error
        while last.__context__ is not None and last.__context__ is not raised:
            last = last.__context__
        if last is not raised:
            last.__context__ = raised
