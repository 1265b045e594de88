"""Deadlines and cancellation: what a caller says about when an answer is of no use to it any more.

    >>> with laya.deadline(2.0):
    ...     agent.predict(state, questions)

An engine reads them when a call arrives and drops what has lapsed before it forms a pass, so nothing is computed for nobody. They hold
for the calls of the block's own thread (and for what runs in a copy of its context), not for threads that the block starts.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


class DeadlineExceededError(TimeoutError):
    """A call's deadline passed before its turn came."""


class CancelledRequestError(RuntimeError):
    """A call was given up by its caller before its turn came."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When calls of a block are of no use any more.

    Attributes:
        ends_at: Their deadline on the clock of `time.monotonic`, in seconds; None where there is none.
        allowed_s: The seconds that the deadline gave, for messages.
        events: They are given up as soon as one of these is set.
    """

    ends_at: float | None = None
    allowed_s: float = math.inf
    events: tuple[threading.Event, ...] = ()

    def left_s(self) -> float | None:
        """Seconds until the deadline, 0 once it has passed; None where there is none."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    def lapse(self) -> DeadlineExceededError | CancelledRequestError | None:
        """The error of a call that is of no use any more, a new one each time; None while it is."""
        if any(event.is_set() for event in self.events):
            return CancelledRequestError("the call was given up before its turn came")
        if self.left_s() == 0.0:
            return DeadlineExceededError(
                f"the deadline of {self.allowed_s:g} s passed before the call's turn came: allow more time, or ask for less at once"
            )
        return None


_limits: ContextVar[Limits] = ContextVar("laya_limits", default=Limits())  # noqa: B039 frozen


def limits() -> Limits:
    """What holds for a call that arrives now."""
    return _limits.get()


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    outer = _limits.get()
    ends_at = time.monotonic() + seconds
    if outer.ends_at is not None and outer.ends_at <= ends_at:
        yield
        return
    token = _limits.set(replace(outer, ends_at=ends_at, allowed_s=float(seconds)))
    try:
        yield
    finally:
        _limits.reset(token)


@contextmanager
def _until(event: threading.Event) -> Iterator[None]:
    outer = _limits.get()
    token = _limits.set(replace(outer, events=(*outer.events, event)))
    try:
        yield
    finally:
        _limits.reset(token)


def deadline(seconds: float) -> AbstractContextManager[None]:
    """Gives the calls of a block so many seconds, counted from where the block begins; of nested deadlines the earlier one wins.

    A call that waits for its turn past the deadline fails with `DeadlineExceededError`. A pass that has begun is finished.

    Args:
        seconds: A positive, finite number.

    Raises:
        ValueError: It is not one.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"a deadline must be a positive, finite number of seconds, not {seconds!r}")
    return _within(seconds)


def remaining_s() -> float | None:
    """Seconds until the deadline of the block that this is called in, 0 once it has passed; None outside of any."""
    return _limits.get().left_s()


def cancellable(event: threading.Event) -> AbstractContextManager[None]:
    """Marks the calls of a block as given up once an event is set: one that still waits then fails with `CancelledRequestError`.

    It is noticed when the next pass is formed, since setting an event wakes nobody who waits for something else.

    Args:
        event: Set by whoever gives the calls up, from any thread.

    Raises:
        TypeError: It is no event.
    """
    if not callable(getattr(event, "is_set", None)):
        raise TypeError(f"cancellable takes a threading.Event, not {type(event).__name__}")
    return _until(event)
