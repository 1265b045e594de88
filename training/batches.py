"""Examples as batches of few distinct shapes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor

from laya.engine.batches import pad_batch
from training.examples import Example

LENGTH_STEP = 16
OPTION_SLOTS = 16


class Batch(NamedTuple):
    """What the model takes, and the targets."""

    ids: Tensor
    mask: Tensor
    type_ids: Tensor
    markers: Tensor
    marker_mask: Tensor
    targets: Tensor


def plan_batches(lengths: Sequence[int], rng: random.Random, tokens: int, step: int = LENGTH_STEP) -> list[tuple[int, list[int]]]:
    """Groups examples of like length, so that a batch has `tokens // length` rows and a length that is a multiple of `step`.

    The matrix kernels are built once for each shape, so few shapes make a step twice as fast. A group's last batch is
    filled up with examples of the same group, or left out when it would be less than half full.

    Args:
        lengths: Tokens of each example.
        rng: Source of randomness.
        tokens: Padded tokens of a batch.
        step: The lengths are rounded up to a multiple of this.

    Returns:
        (length, indices of the examples) of each batch, in random order.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        groups[-(-length // step) * step].append(index)
    planned: list[tuple[int, list[int]]] = []
    for length, members in groups.items():
        rng.shuffle(members)
        size = max(1, tokens // length)
        for start in range(0, len(members), size):
            if len(members) - start < size // 2:
                continue
            filled = members[start : start + size] + rng.sample(members, min(len(members), size))
            planned.append((length, filled[:size]))
    rng.shuffle(planned)
    return planned


def training_batches(examples: Sequence[Example], rng: random.Random, tokens: int, pad_id: int) -> Iterator[Batch]:
    """Yields the batches of one epoch in random order."""
    for length, members in plan_batches([len(example) for example in examples], rng, tokens):
        yield collate([examples[index] for index in members], pad_id, length)


def collate(examples: Sequence[Example], pad_id: int, length: int | None = None) -> Batch:
    """Pads examples to one shape.

    Args:
        examples: The rows of the batch.
        pad_id: Token that fills the rows up.
        length: Pad to this length and to OPTION_SLOTS options; to the longest row and the most options when None.
    """
    padded = pad_batch([example.sequence for example in examples], pad_id)
    ids, type_ids, markers, marker_mask = (torch.from_numpy(a) for a in (padded.ids, padded.type_ids, padded.markers, padded.marker_mask))
    mask = torch.ones_like(ids) if padded.mask is None else torch.from_numpy(padded.mask)
    if length is not None:
        missing, free = length - ids.shape[1], OPTION_SLOTS - markers.shape[1]
        if missing < 0 or free < 0:
            raise ValueError(f"a row has {ids.shape[1]} tokens and {markers.shape[1]} options; at most {length} and {OPTION_SLOTS} fit")
        ids, mask = F.pad(ids, (0, missing), value=pad_id), F.pad(mask, (0, missing))
        markers, marker_mask = F.pad(markers, (0, free)), F.pad(marker_mask, (0, free))
    return Batch(ids, mask, type_ids, markers, marker_mask, torch.tensor([example.target for example in examples]))
