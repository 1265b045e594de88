"""Rows of any length become micro-batches under a token budget."""

from __future__ import annotations

from collections.abc import Sequence


def most_rows(longest: int, token_budget: int, max_rows: int | None = None) -> int:
    """Most rows of a batch whose longest row has so many tokens; at least one."""
    most = max(1, token_budget // max(1, longest))
    return most if max_rows is None else min(most, max_rows)


def pack(lengths: Sequence[int], token_budget: int, max_rows: int | None = None, sort: bool = True) -> list[list[int]]:
    """Cuts rows into batches whose padded size stays within the budget.

    Longest first: the first batch needs the most memory, so a run that will not fit fails at once, and rows of like length
    share a batch, so little is padding.

    Args:
        lengths: Tokens of each row.
        token_budget: Most tokens of a batch, padding counted: rows x longest row. One row always fits.
        max_rows: Most rows of a batch, or None for no limit.
        sort: False keeps the rows in the order given.

    Returns:
        Lists of row indices; each row stands in exactly one.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True) if sort else range(len(lengths))
    batches: list[list[int]] = []
    longest = 0
    for row in order:
        batch = batches[-1] if batches else None
        longest = max(longest, lengths[row])
        if batch is None or len(batch) >= most_rows(longest, token_budget, max_rows):
            batches.append([row])
            longest = lengths[row]
        else:
            batch.append(row)
    return batches
