"""Rows of any length become micro-batches under a token budget."""

from __future__ import annotations

from collections.abc import Sequence


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
        full = batch is None or longest * (len(batch) + 1) > token_budget or (max_rows is not None and len(batch) >= max_rows)
        if batch is None or full:
            batches.append([row])
            longest = lengths[row]
        else:
            batch.append(row)
    return batches
