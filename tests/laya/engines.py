"""An engine without a network, whose logits say which row they belong to, and threads that call it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from laya.engine.base import BatchingEngine
from laya.engine.batches import RowScore
from laya.sequences import TokenSequence
from tests.patience import LONG

PAD = 0


def row(mark: int, length: int = 4, options: int = 1) -> TokenSequence:
    """A row that is known by its mark, a positive number."""
    return TokenSequence([mark] * length, list(range(options)), 0)


def rows(*marks: int, length: int = 4) -> list[TokenSequence]:
    """Rows of one length."""
    return [row(mark, length) for mark in marks]


def marks(scores: Sequence[RowScore]) -> list[int]:
    """The marks of the rows that scores belong to."""
    return [int(score.logits[0]) for score in scores]


class FakeEngine(BatchingEngine):
    """Notes each pass; scores a row with its mark, once an option.

    Attributes:
        passes: The marks of the rows of each pass that was begun.
        act: Called with those of a pass before it gives scores: to wait, or to fail.
        room: Padded tokens that its memory holds, or None.
        frees: How often memory was asked back.
    """

    def __init__(self, token_budget: int = 1000, act: Callable[[list[int]], object] | None = None, room: int | None = None) -> None:
        super().__init__(PAD, token_budget)
        self.passes: list[list[int]] = []
        self.act = act
        self.room = room
        self.frees = 0
        self.lost: type[Exception] | None = None
        self._alone = threading.Lock()

    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        assert self._alone.acquire(blocking=False), "two passes at once"
        try:
            found = [row.ids[0] for row in rows]
            self.passes.append(found)
            wanted = self.computed_tokens([len(row.ids) for row in rows])
            if self.room is not None and wanted > self.room:
                raise MemoryError(f"{wanted} tokens asked for, {self.room} there")
            if self.act is not None:
                self.act(found)
            return [[float(row.ids[0])] * len(row.markers) for row in rows], [mark / 1000 for mark in found]
        finally:
            self._alone.release()

    def _device_lost(self, error: Exception) -> bool:
        return self.lost is not None and isinstance(error, self.lost)

    def _free_memory(self) -> None:
        self.frees += 1


class Gate:
    """Lets the first pass that comes begin, and holds it until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _: list[int]) -> None:
        """Holds the pass that asks."""
        self.reached.set()
        assert self.opened.wait(LONG)


class Waiting:
    """Tells when so many calls wait in an engine's queue, by what the queue itself says when a call begins to wait."""

    def __init__(self, engine: BatchingEngine) -> None:
        self._engine = engine
        self._more = threading.Semaphore(0)
        condition = engine._queue._changed
        wait = condition.wait

        def noted(timeout: float | None = None) -> bool:
            self._more.release()
            return wait(timeout)

        condition.wait = noted  # type: ignore[method-assign]

    def until(self, calls: int) -> None:
        """Waits until so many calls wait."""
        while self._engine.stats().waiting_calls < calls:
            assert self._more.acquire(timeout=LONG), f"{self._engine.stats().waiting_calls} of {calls} calls wait"
