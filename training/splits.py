"""What belongs to training, to calibration and to the test: packages by a hash, lists of sentences by position."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, TypeVar

Split = Literal["train", "calib", "test"]
SPLITS: tuple[Split, ...] = ("train", "calib", "test")

CALIB_PERCENT = 6
TEST_PERCENT = 14

Item = TypeVar("Item")


def split_of(key: str) -> Split:
    """Returns the split of a key, the same on every machine and in every run.

    Args:
        key: What must stay together, such as the name of a source package.
    """
    place = int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    if place < CALIB_PERCENT:
        return "calib"
    return "test" if place < CALIB_PERCENT + TEST_PERCENT else "train"


def share(sentences: Sequence[Item], split: Split) -> Sequence[Item]:
    """Returns the part of a list that a split may use: the last quarter is kept from training.

    Calibration and test share that quarter, because the lists are too short to be cut in three.
    """
    kept_back = max(1, len(sentences) // 4)
    return sentences[:-kept_back] if split == "train" else sentences[-kept_back:]
