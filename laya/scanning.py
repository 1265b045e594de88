"""Long states, cut: what one agent scores window by window, or hands out to be scored by several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from laya.rows import EncodedState
from laya.windows import Window


@dataclass(frozen=True, slots=True)
class Scan:
    """A long state, cut.

    Attributes:
        ids: Its tokens.
        windows: Its windows.
    """

    ids: Sequence[int]
    windows: list[Window]

    @property
    def encoded(self) -> list[EncodedState]:
        """The tokens of each window."""
        return [EncodedState(self.ids[part.token_start : part.token_end], keep_end=False) for part in self.windows]

    def shared(self) -> SharedScan:
        """The same as it travels."""
        spans = np.array([(part.token_start, part.token_end) for part in self.windows], dtype=np.int64)
        return SharedScan(np.array(self.ids, dtype=np.int32), spans)


@dataclass(frozen=True, slots=True)
class SharedScan:
    """A long state, cut, as it travels between processes: a document of millions of tokens is two arrays.

    Attributes:
        ids: Token ids of all of the state. Shape (tokens,).
        spans: For each window its first token and the one after its last. Shape (windows, 2).
    """

    ids: np.ndarray
    spans: np.ndarray

    def windows(self) -> list[Window]:
        """The windows, without their texts, which only hooks see."""
        return [Window(int(start), int(end), "") for start, end in self.spans]

    def slices(self, size: int) -> Iterator[list[np.ndarray]]:
        """The tokens of the windows, so many windows at a time."""
        for first in range(0, len(self.spans), size):
            yield [self.ids[start:end] for start, end in self.spans[first : first + size]]
