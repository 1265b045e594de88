"""An engine's numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassReport:
    """One forward pass that gave scores.

    Attributes:
        rows: Rows of the pass.
        calls: Calls that these belong to.
        tokens: Tokens of the rows.
        padded_tokens: Tokens that the pass computed, padding counted: rows x longest row where rows are padded.
        forward_s: Seconds from the rows to their scores.
        queue_s: Seconds that the row that waited longest had waited when the pass began, counted from its call's arrival.
    """

    rows: int
    calls: int
    tokens: int
    padded_tokens: int
    forward_s: float
    queue_s: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine has done since it was made, and what waits for it now.

    Attributes:
        passes: Forward passes that gave scores.
        rows: Rows of these.
        tokens: Tokens of these rows.
        padded_tokens: The same with padding.
        forward_s: Seconds that these passes took.
        queue_s: Seconds waited, summed over the rows: each waits from its call's arrival to the beginning of the pass that scored it.
            ``queue_s / rows`` is the mean wait of a row.
        cancelled: Calls dropped because their callers had given them up.
        expired: Calls dropped because their deadlines had passed.
        memory_splits: Passes that did not fit into memory and were split.
        token_budget: Most padded tokens of a pass; lower than it was if a pass had to be split.
        waiting_rows: Rows that wait now; those of the pass that runs are not counted.
        waiting_tokens: Tokens of these.
        waiting_calls: Calls of these.
    """

    passes: int
    rows: int
    tokens: int
    padded_tokens: int
    forward_s: float
    queue_s: float
    cancelled: int
    expired: int
    memory_splits: int
    token_budget: int
    waiting_rows: int
    waiting_tokens: int
    waiting_calls: int


@dataclass(slots=True)
class Tally:
    """What `EngineStats` gives, as it changes."""

    passes: int = 0
    rows: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    forward_s: float = 0.0
    queue_s: float = 0.0
    cancelled: int = 0
    expired: int = 0
    memory_splits: int = 0
    waiting_rows: int = 0
    waiting_tokens: int = 0
    waiting_calls: int = 0
