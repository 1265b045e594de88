"""What an engine is: sequences in, logits out."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from laya.engine.packing import pack
from laya.sequences import TokenSequence

CPU_TOKEN_BUDGET = 2048
"""Padded tokens of a pass on a CPU: enough to keep the cores busy, little enough that activations stay in cache."""
GPU_TOKEN_BUDGET = 65536
"""Padded tokens of a pass on a GPU."""


@dataclass(frozen=True, slots=True)
class RowScore:
    """What the model says of one row.

    Attributes:
        logits: One a slot, in slot order.
        act_probability: How likely it is right to act on the top option.
    """

    logits: list[float]
    act_probability: float


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rows as arrays of one length.

    Attributes:
        ids: [B, L] token ids, padded at the end.
        mask: [B, L] 1 where a token stands; None if nothing is padded.
        type_ids: [B].
        markers: [B, K] marker positions, 0 where a row has fewer options.
        marker_mask: [B, K] True where there is an option.
    """

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.int64] | None
    type_ids: npt.NDArray[np.int64]
    markers: npt.NDArray[np.int64]
    marker_mask: npt.NDArray[np.bool_]


class Engine(Protocol):
    """Runs a checkpoint's network on one device."""

    def score(self, rows: Sequence[TokenSequence], max_rows: int | None = None, sort: bool = True) -> list[RowScore]:
        """Scores rows and returns one RowScore each, in order.

        Args:
            rows: The sequences.
            max_rows: Most rows of one forward pass; None leaves it to the engine's token budget.
            sort: Whether rows of like length may share a pass; False keeps them in order.
        """

    def describe(self) -> dict[str, str]:
        """Device, precision and kind of the engine."""

    def close(self) -> None:
        """Frees the device's memory; the engine cannot be used afterwards."""


class BatchingEngine(ABC):
    """Cuts rows into padded batches under a token budget; what runs a batch is the derived engine's business.

    Args:
        pad_id: Token id that fills short rows.
        token_budget: Padded tokens of one forward pass.
    """

    def __init__(self, pad_id: int, token_budget: int) -> None:
        self.token_budget = token_budget
        self._pad_id = pad_id
        # One pass at a time: two would share the cores (or the GPU) and double the memory, and gain nothing.
        self._turn = threading.Lock()

    def score(self, rows: Sequence[TokenSequence], max_rows: int | None = None, sort: bool = True) -> list[RowScore]:
        """Scores rows and returns one RowScore each, in order; see `Engine`."""
        scores: list[RowScore | None] = [None] * len(rows)
        for batch in pack([len(row.ids) for row in rows], self.token_budget, max_rows, sort):
            padded = pad_batch([rows[index] for index in batch], self._pad_id)
            with self._turn:
                logits, act = self._run(padded)
            for index, row_logits, row_act in zip(batch, logits, act, strict=True):
                scores[index] = RowScore(row_logits[: len(rows[index].markers)], row_act)
        return [score for score in scores if score is not None]

    @abstractmethod
    def _run(self, batch: PaddedBatch) -> tuple[list[list[float]], list[float]]:
        """One forward pass: logits [B, K] and act probabilities [B]."""


def pad_batch(rows: Sequence[TokenSequence], pad_id: int) -> PaddedBatch:
    """Lays rows out as arrays."""
    length = max(len(row.ids) for row in rows)
    options = max(len(row.markers) for row in rows)
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    markers = np.zeros((len(rows), options), dtype=np.int64)
    marker_mask = np.zeros((len(rows), options), dtype=np.bool_)
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        mask[index, : len(row.ids)] = 1
        markers[index, : len(row.markers)] = row.markers
        marker_mask[index, : len(row.markers)] = True
    type_ids = np.array([row.type_id for row in rows], dtype=np.int64)
    return PaddedBatch(ids, None if mask.all() else mask, type_ids, markers, marker_mask)


def closed() -> RuntimeError:
    """What a call of an engine that was closed ends in."""
    return RuntimeError("this agent was closed, or a Router has unloaded it: load it again")
