"""Waiting in tests: for the thing itself, on threads that cannot hang a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

LONG = 60.0
"""Seconds after which whatever has not happened never will, on a busy machine too."""


def until(holds: Callable[[], T], what: str, limit_s: float = LONG) -> T:
    """Waits until something holds, and returns what that was.

    Args:
        holds: Looks whether it does.
        what: Its name, for the error.
        limit_s: Seconds to wait at most.

    Raises:
        TimeoutError: It never did.
    """
    ends_at = time.monotonic() + limit_s
    while not (found := holds()):
        if time.monotonic() > ends_at:
            raise TimeoutError(f"after {limit_s:.0f} s still not: {what}")
        threading.Event().wait(0.02)
    return found


def start(work: Callable[[], T]) -> Future[T]:
    """Runs work on a thread of its own, which no test has to wait for."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome
