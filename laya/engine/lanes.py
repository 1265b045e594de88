"""What waits in an engine's queue: calls, and the passes planned for their rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from laya.deadlines import Limits
from laya.engine.batches import RowScore
from laya.engine.packing import pack
from laya.sequences import TokenSequence


@dataclass(eq=False, slots=True)
class Call:
    """One caller's rows, on their way to scores.

    Attributes:
        rows: The sequences.
        lane: Where they wait.
        limits: When they are of no use any more.
        turn: The last pass that served this call; for one that was never served, the last pass that had ended when it arrived.
        served: Whether some pass has served it.
        arrived: Seconds on the clock of `time.monotonic`.
        scores: One a row, None until it was scored.
        missing: Rows that have no score yet.
        waiting: Rows that stand in the lane; the rest of the missing ones are in the pass that runs.
        waiting_tokens: Tokens of these.
        error: What ended the call.
    """

    rows: Sequence[TokenSequence]
    lane: Lane
    limits: Limits
    turn: int = 0
    served: bool = False
    arrived: float = field(default_factory=time.monotonic)
    scores: list[RowScore | None] = field(init=False)
    missing: int = field(init=False)
    waiting: int = 0
    waiting_tokens: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.scores = [None] * len(self.rows)
        self.missing = len(self.rows)

    @property
    def done(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.missing == 0 or self.error is not None

    @property
    def running(self) -> bool:
        """Whether the pass that runs holds rows of it."""
        return self.missing > self.waiting

    def patience_s(self) -> float | None:
        """Seconds that it may sleep before somebody must look at its deadline."""
        left_s = None if self.running else self.limits.left_s()
        return None if left_s is None else min(left_s, threading.TIMEOUT_MAX)


class Row(NamedTuple):
    """One row of a call.

    Attributes:
        call: The call.
        at: Where the row stands in it.
    """

    call: Call
    at: int

    @property
    def sequence(self) -> TokenSequence:
        """The row itself."""
        return self.call.rows[self.at]


class Lane:
    """Rows that may share passes, and the plan of these.

    The plan is kept until rows come or go or the budget changes, so the rows of a call that is alone are packed once.

    Args:
        max_rows: Most rows of a pass, or None for no limit.
        sort: Whether rows of like length share a pass; False keeps the order given.
    """

    def __init__(self, max_rows: int | None = None, sort: bool = True) -> None:
        self._max_rows = max_rows
        self._sort = sort
        self._passes: list[list[Row]] = []
        self._budget: int | None = None  # what the plan was made for; None where there is none

    def add(self, rows: list[Row]) -> None:
        """Lets rows wait behind the others."""
        self._passes.append(rows)
        self._budget = None
        _count(rows, 1)

    def put_back(self, rows: list[Row]) -> None:
        """Lets rows wait again, before the others."""
        self._passes.insert(0, rows)
        self._budget = None
        _count(rows, 1)

    def remove(self, call: Call) -> None:
        """Forgets the rows of a call."""
        self._passes = [[row for row in batch if row.call is not call] for batch in self._passes]
        self._budget = None
        call.waiting = call.waiting_tokens = 0

    def take(self, call: Call, token_budget: int) -> list[Row]:
        """Takes the first pass that holds rows of a call, which must have some here."""
        if self._budget != token_budget:
            rows = list(chain.from_iterable(self._passes))
            plan = pack([len(row.sequence.ids) for row in rows], token_budget, self._max_rows, self._sort)
            self._passes = [[rows[index] for index in batch] for batch in plan]
            self._budget = token_budget
        at = next(at for at, batch in enumerate(self._passes) if any(row.call is call for row in batch))
        taken = self._passes.pop(at)
        _count(taken, -1)
        return taken


def _count(rows: list[Row], sign: int) -> None:
    for row in rows:
        row.call.waiting += sign
        row.call.waiting_tokens += sign * len(row.sequence.ids)
