"""What an engine is: sequences in, logits out."""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from laya.engine.batches import RowScore
from laya.engine.errors import DeviceLostError, OutOfMemoryError, closed, first_line
from laya.engine.queue import PassQueue
from laya.engine.stats import EngineStats, PassReport
from laya.sequences import TokenSequence

__all__ = ["CPU_TOKEN_BUDGET", "GPU_TOKEN_BUDGET", "BatchingEngine", "Engine", "Observer", "RowScore", "closed"]

CPU_TOKEN_BUDGET = 2048
"""Padded tokens of a pass on a CPU: enough to keep the cores busy, little enough that activations stay in cache."""
GPU_TOKEN_BUDGET = 65536
"""Padded tokens of a pass on a GPU."""

WARM_UP_TOKENS = 16
"""Tokens of the short row that warms an engine up."""

Observer = Callable[[PassReport], None]
"""Is told of each pass that gave scores, on the thread that ran it; that of two passes may overlap."""

_log = logging.getLogger("laya.engine")


class Engine(Protocol):
    """Runs a checkpoint's network on one device.

    Attributes:
        observer: Called after each pass; one that raises is logged and does no harm. None for nobody.
        size_bytes: What the network's weights hold; 0 where that is not known.
    """

    observer: Observer | None
    size_bytes: int

    def score(self, rows: Sequence[TokenSequence], max_rows: int | None = None, sort: bool = True) -> list[RowScore]:
        """Scores rows and returns one RowScore each, in order; calls from several threads share forward passes.

        Args:
            rows: The sequences.
            max_rows: Most rows of one forward pass; None leaves it to the engine's token budget. With it, no other call's rows join.
            sort: Whether rows of like length may share a pass; False keeps them in order, and other calls' rows out.

        Raises:
            laya.OutOfMemoryError: One of the rows does not fit into the device's memory alone.
            laya.DeviceLostError: The device is of no use to this process any more.
            laya.DeadlineExceededError: The deadline of the block passed before the call's turn came; see `laya.deadline`.
            laya.deadlines.CancelledRequestError: The call was given up before its turn came; see `laya.deadlines.cancellable`.
            RuntimeError: The engine was closed.
        """

    def stats(self) -> EngineStats:
        """What the engine has done and what waits for it."""

    def warm_up(self, length: int) -> None:
        """Runs what a first call would otherwise pay for; on a GPU also a full pass, so that trouble with memory shows now.

        Args:
            length: Tokens of the longest row that will come.
        """

    def describe(self) -> dict[str, str]:
        """Device, precision and kind of the engine."""

    def close(self) -> None:
        """Frees the device's memory; the engine cannot be used afterwards, and calls that wait for it fail."""


class BatchingEngine(ABC):
    """Cuts rows into batches under a token budget; what runs a batch is the derived engine's business.

    A batch that does not fit into memory is split, and the budget lowered for all that comes after it.

    Args:
        pad_id: Token id that fills short rows.
        token_budget: Padded tokens of one forward pass.
    """

    def __init__(self, pad_id: int, token_budget: int) -> None:
        self.observer: Observer | None = None
        self.size_bytes = 0
        self._pad_id = pad_id
        self._queue = PassQueue(token_budget)

    @property
    def token_budget(self) -> int:
        """Padded tokens of one forward pass. One row always goes, however long."""
        return self._queue.token_budget

    @token_budget.setter
    def token_budget(self, tokens: int) -> None:
        self._queue.token_budget = tokens

    def score(self, rows: Sequence[TokenSequence], max_rows: int | None = None, sort: bool = True) -> list[RowScore]:
        """Scores rows and returns one RowScore each, in order; see `Engine`."""
        return self._queue.score(rows, max_rows, sort, self)

    def forward(self, rows: Sequence[TokenSequence]) -> list[RowScore]:
        """Scores rows in one pass; for the queue, which lets one in at a time.

        Raises:
            laya.OutOfMemoryError: They do not fit into memory together.
            laya.DeviceLostError: The device is of no use any more; every later call fails with the same.
        """
        try:
            logits, act = self._run(rows)
        except Exception as error:
            if not self._out_of_memory(error):
                self._check_device(error)
                raise
            reason = first_line(error)
            _let_go(error)
        else:
            return [RowScore(found[: len(row.markers)], share) for row, found, share in zip(rows, logits, act, strict=True)]
        # Only here, where the error is gone, does nothing hold the tensors of the pass any more.
        self._free_memory()
        longest = max(len(row.ids) for row in rows)
        raise OutOfMemoryError(
            f"a row of {longest} tokens does not fit into the memory of {self._place()} ({reason}): "
            "give a smaller max_len, free memory there, or take another device"
        )

    def report(self, report: PassReport) -> None:
        """Tells the observer of a pass."""
        observer = self.observer
        if observer is None:
            return
        try:
            observer(report)
        except Exception:
            _log.exception("the observer of an engine failed; the pass that it was told of is not affected")

    def stats(self) -> EngineStats:
        """What the engine has done and what waits for it."""
        return self._queue.stats()

    def warm_up(self, length: int) -> None:
        """One pass over a short row, and on a GPU one of the whole token budget; see `Engine`."""
        self.score([self._blank(min(length, WARM_UP_TOKENS))])
        if self._place() != "cpu":
            self.score([self._blank(length)] * max(1, self.token_budget // length))

    def close(self) -> None:
        """Ends the calls that wait; derived engines free their memory too."""
        self._queue.shut(closed)

    def _blank(self, length: int) -> TokenSequence:
        return TokenSequence([self._pad_id] * length, [0], 0)

    def _check_device(self, error: Exception) -> None:
        """Raises DeviceLostError from an error that says so."""
        if self._device_lost(error):
            lost = f"{self._place()} is lost to this process ({first_line(error)}): start the process again"
            self._queue.shut(partial(DeviceLostError, lost))
            raise DeviceLostError(lost) from error

    @abstractmethod
    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        """One forward pass: logits [B, K], K being the most options of a row, and act probabilities [B]."""

    def computed_tokens(self, lengths: Sequence[int]) -> int:
        """Tokens that a pass over rows of these lengths computes, padding counted."""
        return len(lengths) * max(lengths)

    def _place(self) -> str:
        """The device's name: "cpu", or that of a GPU."""
        return "cpu"

    def _out_of_memory(self, error: Exception) -> bool:
        """Whether an error of a pass says that it did not fit into memory."""
        return isinstance(error, MemoryError)

    def _device_lost(self, error: Exception) -> bool:  # noqa: ARG002 for derived engines
        """Whether an error of a pass, other than one of memory, says that no later one can succeed."""
        return False

    def _free_memory(self) -> None:  # noqa: B027 an engine may have nothing to give
        """Gives back what the device's allocator keeps for later."""


def _let_go(error: BaseException) -> None:
    """Empties the frames that an error and those it came from hold: what stands in a circle would outlive the error."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not known for known in chain):
        chain.append(link)
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
