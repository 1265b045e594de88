"""What a hook is: the six events, the protocol, the base class, and how arguments become one ordered list of hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from laya.hooks.context import PredictContext

PredictHook = Callable[[PredictContext], None]
"""The type of a plain callable given as ``on_predict_start=`` or ``on_predict_end=``."""

PredictHooks = Callable[[PredictContext], Any] | Sequence[Callable[[PredictContext], Any]] | None
"""What those two take: one or several. What a callable returns is ignored, unless it can be awaited: so coroutine functions fit too."""

HOOK_EVENTS = ("on_predict_start", "on_predict_end", "on_route", "on_load", "on_evict", "on_error")
"""The six event names: those of a prediction, those of a Router, and failure."""


class Hook(Protocol):
    """Any object with one or more of these methods; the ones that it lacks are skipped."""

    def on_predict_start(self, ctx: PredictContext) -> None:
        """Before inference: may rewrite states and questions, call ``ctx.skip``, or veto the call by raising."""

    def on_predict_end(self, ctx: PredictContext) -> None:
        """After inference, whether it succeeded or failed."""

    def on_route(self, ctx: PredictContext) -> None:
        """After a checkpoint has been chosen: may rewrite ``ctx.decision``."""

    def on_load(self, ctx: PredictContext) -> None:
        """After a checkpoint was built."""

    def on_evict(self, ctx: PredictContext) -> None:
        """After a checkpoint was dropped."""

    def on_error(self, ctx: PredictContext) -> None:
        """After a call failed, before its ``on_predict_end``."""


class BaseHook:
    """A hook whose six events do nothing: subclass it and override the ones you need."""

    def on_predict_start(self, ctx: PredictContext) -> None:
        """Does nothing."""

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Does nothing."""

    def on_route(self, ctx: PredictContext) -> None:
        """Does nothing."""

    def on_load(self, ctx: PredictContext) -> None:
        """Does nothing."""

    def on_evict(self, ctx: PredictContext) -> None:
        """Does nothing."""

    def on_error(self, ctx: PredictContext) -> None:
        """Does nothing."""


class _StartHook:
    def __init__(self, function: Callable[[PredictContext], Any]) -> None:
        self.on_predict_start = function


class _EndHook:
    def __init__(self, function: Callable[[PredictContext], Any]) -> None:
        self.on_predict_end = function


def as_sequence(value: Any) -> Sequence[Any]:
    """Returns ``value`` itself if it is a list or tuple, nothing for None, else a sequence of the one object."""
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def check_hook(hook: Any) -> None:
    """Refuses what cannot be a hook.

    Args:
        hook: One object given as ``hooks=``.

    Raises:
        TypeError: It is a class, has none of the six events, or has one that is not callable.
    """
    if isinstance(hook, type):
        raise TypeError(f"hooks= takes instances, not classes: pass {hook.__name__}() instead of {hook.__name__}")
    present = [event for event in HOOK_EVENTS if hasattr(hook, event)]
    if not present:
        if callable(hook):
            raise TypeError(
                f"hooks= does not take a plain callable ({hook!r}), because it does not say which event it is for: "
                "use on_predict_start= or on_predict_end="
            )
        raise TypeError(f"{hook!r} is not a hook: it has none of {', '.join(HOOK_EVENTS)}")
    for event in present:
        if not callable(getattr(hook, event)):
            raise TypeError(f"{hook!r} is not a hook: its {event} is not callable")


def normalise_hooks(
    hooks: Any = None,
    on_predict_start: PredictHooks = None,
    on_predict_end: PredictHooks = None,
) -> list[Any]:
    """Flattens the three hook arguments that every entry point takes into one ordered list.

    Args:
        hooks: One hook object or a sequence of them.
        on_predict_start: One callable or a sequence of them; each becomes a hook with that event alone.
        on_predict_end: The same for the end event.

    Returns:
        The hooks in the order given: objects first, then start callables, then end callables.

    Raises:
        TypeError: Something in there is not a hook; the message names it and the mend.
    """
    found = list(as_sequence(hooks))
    for hook in found:
        check_hook(hook)
    for name, functions, wrap in (("on_predict_start", on_predict_start, _StartHook), ("on_predict_end", on_predict_end, _EndHook)):
        for function in as_sequence(functions):
            if not callable(function):
                raise TypeError(f"{name}= takes a callable or a sequence of callables, not {function!r}")
            found.append(wrap(function))
    return found
