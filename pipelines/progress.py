"""Progress of a running job: counted by one small actor, shown by the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_REFRESH_S = 0.5
_PLAIN_LINE_S = 5.0
_WAITING = "the first answers are on their way"


class ProgressCounter:
    """Counts what the workers have done. Only for showing: a fragment that is retried counts twice here, and nowhere else."""

    def __init__(self) -> None:
        self._done = {"rows": 0, "errors": 0, "tokens": 0}

    def add(self, rows: int, errors: int, tokens: int) -> None:
        """Adds a chunk that has been answered."""
        self._done["rows"] += rows
        self._done["errors"] += errors
        self._done["tokens"] += tokens

    def read(self) -> dict[str, int]:
        """The counts so far."""
        return dict(self._done)


@contextmanager
def shown(counter: Any, done_rows: int, total_rows: int, console: Console) -> Iterator[None]:
    """Shows the counter's progress until the block ends: a bar on a terminal, else a line every few seconds.

    Args:
        counter: Handle of a ProgressCounter actor.
        done_rows: Rows that earlier runs have answered.
        total_rows: Rows of the whole input.
        console: Where to show it.
    """
    stop = threading.Event()
    show = _bar if console.is_terminal else _lines
    thread = threading.Thread(target=show, args=(counter, done_rows, total_rows, console, stop), name="laya-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _counts(counter: Any) -> dict[str, int]:
    try:
        counts: dict[str, int] = ray.get(counter.read.remote(), timeout=_REFRESH_S * 4)
    except RayError:
        return {"rows": 0, "errors": 0, "tokens": 0}
    return counts


def _bar(counter: Any, done_rows: int, total_rows: int, console: Console, stop: threading.Event) -> None:
    columns = (
        TextColumn("scoring"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("scoring", total=total_rows, completed=done_rows, detail=_WAITING)
        while not stop.wait(_REFRESH_S):
            counts = _counts(counter)
            if counts["rows"]:
                done = min(done_rows + counts["rows"], total_rows)
                progress.update(task, completed=done, detail=_detail(counts, time.monotonic() - started))


def _lines(counter: Any, done_rows: int, total_rows: int, console: Console, stop: threading.Event) -> None:
    started = time.monotonic()
    while not stop.wait(_PLAIN_LINE_S):
        counts = _counts(counter)
        detail = _detail(counts, time.monotonic() - started) if counts["rows"] else _WAITING
        console.print(f"scoring: {min(done_rows + counts['rows'], total_rows):,} of {total_rows:,} rows, {detail}")


def _detail(counts: dict[str, int], seconds: float) -> str:
    errors = f", {counts['errors']} errors" if counts["errors"] else ""
    return f"{counts['rows'] / seconds:.0f} rows/s, {counts['tokens'] / seconds:,.0f} tokens/s{errors}"
