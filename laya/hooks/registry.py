"""Where hooks are kept: on each runtime, and once for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from laya.hooks.call import CallHooks, served_requests
from laya.hooks.dispatch import HookTurn, check_timeout
from laya.hooks.protocol import PredictHooks, as_sequence, normalise_hooks

_defaults: list[Any] = []
_defaults_lock = threading.Lock()


def set_default_hooks(
    hooks: Any = None,
    on_predict_start: PredictHooks = None,
    on_predict_end: PredictHooks = None,
) -> None:
    """Replaces the process-wide hooks; takes the arguments of `normalise_hooks`. They run before all others, in every runtime."""
    fresh = normalise_hooks(hooks, on_predict_start, on_predict_end)
    with _defaults_lock:
        _defaults[:] = fresh


def add_default_hook(hook: Any) -> None:
    """Appends a hook, or a sequence of hooks, to the process-wide ones."""
    fresh = normalise_hooks(hook)
    with _defaults_lock:
        _defaults.extend(fresh)


def clear_default_hooks() -> None:
    """Removes all process-wide hooks."""
    with _defaults_lock:
        _defaults.clear()


def default_hooks() -> list[Any]:
    """Returns a copy of the list of process-wide hooks."""
    with _defaults_lock:
        return list(_defaults)


def compose_hooks(installed: Iterable[Any]) -> list[Any]:
    """Returns the process-wide hooks followed by those given."""
    return [*default_hooks(), *installed]


class HookRegistry:
    """The hooks installed on a runtime, and how they are run. Every runtime derives from it.

    Args:
        hooks: One hook object or a sequence of them.
        on_predict_start: One callable or a sequence of them, run before each call.
        on_predict_end: One callable or a sequence of them, run after each call.
        hooks_raise: Whether a hook's exception fails the call; else it becomes a RuntimeWarning.
        hooks_concurrent: False makes the hooks of concurrent calls take turns.
        hooks_timeout: Seconds that each hook call may take, or None.

    Raises:
        TypeError: Something given is not a hook.
        ValueError: The timeout is not a positive, finite number.
    """

    def __init__(
        self,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
    ) -> None:
        self._hooks = tuple(normalise_hooks(hooks, on_predict_start, on_predict_end))
        self._hooks_mutation = threading.Lock()
        self.hooks_raise = hooks_raise
        self.hooks_timeout = check_timeout(hooks_timeout)
        self._hooks_turn = None if hooks_concurrent else HookTurn()

    def __getstate__(self) -> dict[str, Any]:
        # Locks stay behind; whether hooks take turns travels.
        return {**self.__dict__, "_hooks_mutation": None, "_hooks_turn": self._hooks_turn is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hooks_mutation = threading.Lock()
        self._hooks_turn = HookTurn() if state["_hooks_turn"] else None

    @property
    def hooks(self) -> list[Any]:
        """A copy of the installed hooks, in order."""
        return list(self._hooks)

    def add_hook(self, hook: Any) -> Self:
        """Installs one hook object or a sequence of them after those already there; returns self."""
        fresh = normalise_hooks(hook)
        with self._hooks_mutation:
            self._hooks = (*self._hooks, *fresh)
        return self

    def remove_hook(self, hook: Any) -> bool:
        """Takes the last installation of this very object off; returns whether there was one."""
        with self._hooks_mutation:
            for index in reversed(range(len(self._hooks))):
                if self._hooks[index] is hook:
                    self._hooks = self._hooks[:index] + self._hooks[index + 1 :]
                    return True
        return False

    @contextmanager
    def hooks_installed(self, *hooks: Any) -> Iterator[Self]:
        """Installs hooks for a block; on exit exactly those are taken off again, whatever else was added meanwhile."""
        fresh = normalise_hooks([hook for group in hooks for hook in as_sequence(group)])
        self.add_hook(fresh)
        try:
            yield self
        finally:
            for hook in reversed(fresh):
                self.remove_hook(hook)

    def _call_hooks(
        self,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
    ) -> CallHooks:
        """A snapshot for one call: defaults, installed and per-call hooks; None means the instance's policy."""
        per_call = normalise_hooks(hooks, on_predict_start, on_predict_end)
        return CallHooks(
            hooks=(*(default_hooks() if served_requests() is None else ()), *self._hooks, *per_call),
            raise_errors=self.hooks_raise if hooks_raise is None else hooks_raise,
            lock=self._hooks_turn,
            timeout=self.hooks_timeout if hooks_timeout is None else check_timeout(hooks_timeout),
        )
