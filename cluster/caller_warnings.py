"""Warnings of calls that an actor serves, kept for their callers to hear."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

_warned: ContextVar[list[Warning] | None] = ContextVar("laya_warned", default=None)
_show_here = warnings.showwarning


def hear_for_callers() -> None:
    """From now on each warning of this process goes to the caller whose call it belongs to; whoever that is decides what becomes of it."""
    warnings.showwarning = _show
    warnings.simplefilter("always", RuntimeWarning)


@contextmanager
def heard_by_caller(warned: list[Warning]) -> Iterator[None]:
    """Collects the warnings of a block."""
    token = _warned.set(warned)
    try:
        yield
    finally:
        _warned.reset(token)


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    warned = _warned.get()
    if warned is None:
        _show_here(message, category, filename, lineno, file, line)
    else:
        warned.append(message if isinstance(message, Warning) else category(message))
