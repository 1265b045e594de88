"""Rows as arrays, and what comes back for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from laya.sequences import TokenSequence


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
class Batch:
    """Rows as arrays.

    Attributes:
        ids: [B, L] token ids, padded at the end; or [T], one row behind the other.
        mask: [B, L] 1 where a token stands; None if nothing is padded.
        lengths: Tokens of each row.
        type_ids: [B].
        markers: [B, K] marker positions in their row, 0 where it has fewer options.
        marker_mask: [B, K] True where there is an option.
    """

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.int64] | None
    lengths: list[int]
    type_ids: npt.NDArray[np.int64]
    markers: npt.NDArray[np.int64]
    marker_mask: npt.NDArray[np.bool_]


def pad_batch(rows: Sequence[TokenSequence], pad_id: int) -> Batch:
    """Lays rows out side by side, short ones padded."""
    lengths = [len(row.ids) for row in rows]
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = _joined(rows)
    return Batch(ids, None if mask.all() else mask.astype(np.int64), lengths, *_options(rows))


def pack_batch(rows: Sequence[TokenSequence]) -> Batch:
    """Lays rows out one behind the other."""
    return Batch(_joined(rows), None, [len(row.ids) for row in rows], *_options(rows))


def _joined(rows: Sequence[TokenSequence]) -> npt.NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(row.ids for row in rows), dtype=np.int64)


def _options(rows: Sequence[TokenSequence]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    counts = np.array([len(row.markers) for row in rows])
    marker_mask = np.arange(counts.max()) < counts[:, None]
    markers = np.zeros(marker_mask.shape, dtype=np.int64)
    markers[marker_mask] = np.fromiter(chain.from_iterable(row.markers for row in rows), dtype=np.int64)
    return np.array([row.type_id for row in rows], dtype=np.int64), markers, marker_mask
