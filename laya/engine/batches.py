"""Rows as arrays, and what comes back for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
