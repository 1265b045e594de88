"""How the rows of a forward pass lie in memory, and what attention is there.

The network is written once, over tokens: a linear layer or a norm does not care which row a token belongs to. What does care - attention,
positions, what is added to a whole row or read at one place of it - asks the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor

_BLOCKS_FROM = 4
"""Rows of more than so many windows are computed block by block where attention slides; below, a mask over the whole row costs less."""


class Layout(Protocol):
    """Where the tokens of a pass lie. Shapes write N for the token dimensions: [B, L] padded, [T] packed.

    Attributes:
        positions: Each token's place in its row, from 0; broadcasts to N.
    """

    positions: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> Tensor:
        """Attention within each row.

        Args:
            query: [N, H, D].
            key: [N, H, D].
            value: [N, H, D].
            window: Tokens further apart than this do not see each other; None for no limit.

        Returns:
            [N, H, D].
        """

    def attend_from(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention from some places of each row to the whole row.

        Args:
            query: [B, P, H, D].
            key: [N, H, D].
            value: [N, H, D].

        Returns:
            [B, P, H, D].
        """

    def spread(self, rows: Tensor) -> Tensor:
        """What broadcasts to [N, d], out of [B, d] for each row."""

    def read(self, hidden: Tensor, places: Tensor) -> Tensor:
        """[B, P, d]: what stands at the places [B, P] of each row of [N, d]."""


class Padded:
    """Rows of one length, short ones filled up: [B, L].

    Args:
        length: Tokens of a row, filling counted.
        mask: [B, L], 1 where a token stands; None if nothing is filled.
        device: Where the tensors are.
    """

    def __init__(self, length: int, mask: Tensor | None, device: torch.device) -> None:
        self.mask = mask
        self.positions = torch.arange(length, device=device)
        self._keys = None if mask is None else mask.bool()[:, None, None, :]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> Tensor:
        """Attention within each row; see `Layout`."""
        return _attention(query, key, value, self._keys if window is None else self._banded(window))

    def attend_from(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention from some places of each row; see `Layout`."""
        return _attention(query, key, value, self._keys)

    def spread(self, rows: Tensor) -> Tensor:
        """[B, 1, d]; see `Layout`."""
        return rows[:, None]

    def read(self, hidden: Tensor, places: Tensor) -> Tensor:
        """What stands at places of each row; see `Layout`."""
        return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))

    def _banded(self, window: int) -> Tensor:
        band = (self.positions[:, None] - self.positions).abs() <= window
        return band if self._keys is None else band & self._keys


class Packed:
    """Rows one behind the other, nothing filled: [T]. Neighbours of one length are attended to together.

    Args:
        lengths: Tokens of each row.
        device: Where the tensors are.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        sizes = torch.tensor(lengths)
        starts = sizes.cumsum(0) - sizes
        self.total = int(sizes.sum())
        self.positions = (torch.arange(self.total) - starts.repeat_interleave(sizes)).to(device)
        self._sizes = sizes.to(device)
        self._starts = starts.to(device)
        self._lengths = lengths
        self._masks: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        """(rows, length) of neighbours of one length, in order."""
        return [(len(list(run)), length) for length, run in groupby(self._lengths)]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> Tensor:
        """Attention within each row; see `Layout`."""
        heads = query.shape[1:]
        parts, at = [], 0
        for rows, length in self._runs:
            here = slice(at, at + rows * length)
            at = here.stop
            q, k, v = (part[here].view(rows, length, *heads) for part in (query, key, value))
            if window is None or length <= window + 1:
                found = _attention(q, k, v)
            elif length <= _BLOCKS_FROM * window:
                found = _attention(q, k, v, self._band(length, window, query))
            else:
                found = _blockwise(q, k, v, window, self._band(-length, window, query))
            parts.append(found.reshape(rows * length, *heads))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def attend_from(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention from some places of each row; see `Layout`."""
        parts, row, at = [], 0, 0
        for rows, length in self._runs:
            k, v = (part[at : at + rows * length].view(rows, length, *part.shape[1:]) for part in (key, value))
            parts.append(_attention(query[row : row + rows], k, v))
            row, at = row + rows, at + rows * length
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def spread(self, rows: Tensor) -> Tensor:
        """[T, d]; see `Layout`."""
        return rows.repeat_interleave(self._sizes, 0, output_size=self.total)

    def read(self, hidden: Tensor, places: Tensor) -> Tensor:
        """What stands at places of each row; see `Layout`."""
        return hidden[self._starts[:, None] + places]

    def _band(self, length: int, window: int, like: Tensor) -> Tensor:
        """What is added to scores so that attention slides, kept for the other layers; a negative length asks for that of blocks."""
        mask = self._masks.get((length, window))
        if mask is None:
            seen = _band_of(length, window) if length > 0 else _band_of_blocks(-length, window)
            mask = torch.zeros(seen.shape, dtype=like.dtype).masked_fill_(~seen, float("-inf")).to(like.device)
            self._masks[length, window] = mask
        return mask


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """[B, P, H, D] of [B, P, H, D] and [B, L, H, D]."""
    return F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask).transpose(1, 2)


def _band_of(length: int, window: int) -> Tensor:
    places = torch.arange(length)
    return (places[:, None] - places).abs() <= window


def _band_of_blocks(length: int, window: int) -> Tensor:
    """[blocks, 1, window, 3 * window]: which keys a block's queries see; those before the row and behind it they do not."""
    blocks = -(-length // window)
    queries = torch.arange(blocks * window).view(blocks, window, 1)
    keys = (torch.arange(3 * window) - window) + torch.arange(blocks)[:, None, None] * window
    near = (queries - keys).abs() <= window
    # A query behind the row has nothing to see; it sees its neighbourhood, so that its numbers stay numbers, and is thrown away.
    return (near & (((keys >= 0) & (keys < length)) | (queries >= length)))[:, None]


def _blockwise(query: Tensor, key: Tensor, value: Tensor, window: int, mask: Tensor) -> Tensor:
    """Attention where a block of as many tokens as the window is wide sees itself and its neighbours; nothing else is computed."""
    rows, length, heads, width = query.shape
    blocks = -(-length // window)
    behind = blocks * window - length
    query = F.pad(query, (0, 0, 0, 0, 0, behind)).view(rows * blocks, window, heads, width)

    def around(x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, 0, window, window + behind)).unfold(1, 3 * window, window)
        return x.permute(0, 1, 4, 2, 3).reshape(rows * blocks, 3 * window, heads, width)

    found = _attention(query, around(key), around(value), mask.repeat(rows, 1, 1, 1) if rows > 1 else mask)
    return found.reshape(rows, blocks * window, heads, width)[:, :length]
