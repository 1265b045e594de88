"""What waits in an engine's queue: calls, and the passes planned for their rows."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from laya.deadlines import Limits
from laya.engine.batches import RowScore
from laya.engine.packing import most_rows, pack
from laya.engine.stats import Tally
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

    @property
    def length(self) -> int:
        """Its tokens."""
        return len(self.call.rows[self.at].ids)


class Lane(ABC):
    """Rows that wait, and what passes they will be.

    Args:
        tally: Where waiting rows are counted.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def add(self, rows: list[Row]) -> None:
        """Lets rows wait behind the others."""
        self._place(rows, first=False)
        self._count_each(rows, 1)

    def put_back(self, rows: list[Row]) -> None:
        """Lets rows wait again, before the others."""
        self._place(rows, first=True)
        self._count_each(rows, 1)

    def remove(self, call: Call) -> None:
        """Forgets the rows of a call."""
        self._drop(call)
        self._count(call, -call.waiting, -call.waiting_tokens)

    def take(self, call: Call, token_budget: int) -> list[Row]:
        """Takes the first pass that holds rows of a call, which must have some here."""
        taken = self._cut(call, token_budget)
        self._count_each(taken, -1)
        return taken

    def _count_each(self, rows: list[Row], sign: int) -> None:
        for row in rows:
            self._count(row.call, sign, sign * row.length)

    def _count(self, call: Call, rows: int, tokens: int) -> None:
        waited = call.waiting > 0
        call.waiting += rows
        call.waiting_tokens += tokens
        self._tally.waiting_rows += rows
        self._tally.waiting_tokens += tokens
        self._tally.waiting_calls += (call.waiting > 0) - waited

    @abstractmethod
    def _place(self, rows: list[Row], first: bool) -> None: ...

    @abstractmethod
    def _drop(self, call: Call) -> None: ...

    @abstractmethod
    def _cut(self, call: Call, token_budget: int) -> list[Row]: ...


class OwnLane(Lane):
    """The rows of one call whose passes nobody joins.

    The plan is kept until rows come back or the budget changes, so they are packed once.

    Args:
        tally: Where waiting rows are counted.
        max_rows: Most rows of a pass, or None for no limit.
        sort: Whether rows of like length share a pass; False keeps the order given.
    """

    def __init__(self, tally: Tally, max_rows: int | None = None, sort: bool = True) -> None:
        super().__init__(tally)
        self._max_rows = max_rows
        self._sort = sort
        self._passes: deque[list[Row]] = deque()
        self._budget: int | None = None  # what the plan was made for; None where there is none

    def _place(self, rows: list[Row], first: bool) -> None:
        if first:
            self._passes.appendleft(rows)
        else:
            self._passes.append(rows)
        self._budget = None

    def _drop(self, call: Call) -> None:  # noqa: ARG002 there is but one
        self._passes.clear()

    def _cut(self, call: Call, token_budget: int) -> list[Row]:  # noqa: ARG002 there is but one
        if self._budget != token_budget:
            rows = [row for batch in self._passes for row in batch]
            plan = pack([row.length for row in rows], token_budget, self._max_rows, self._sort)
            self._passes = deque([rows[index] for index in batch] for batch in plan)
            self._budget = token_budget
        return self._passes.popleft()


class SharedLane(Lane):
    """The rows of all calls that may share passes: those that `pack` would make of them, longest rows first.

    Calls come and go between any two passes, so there is no plan that could be kept. Rows of one call and one length stand together as a
    run, and the next pass is found by counting along the runs: what it costs does not grow with the rows of a giant call.
    """

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._runs: dict[int, list[list[Row]]] = {}  # by length; the runs of one length in order of arrival

    def _place(self, rows: list[Row], first: bool) -> None:
        fresh: dict[tuple[int, Call], list[Row]] = {}
        for row in rows:
            fresh.setdefault((row.length, row.call), []).append(row)
        for (length, _), run in reversed(fresh.items()) if first else fresh.items():
            runs = self._runs.setdefault(length, [])
            runs.insert(0 if first else len(runs), run)

    def _drop(self, call: Call) -> None:
        self._keep(list(self._runs), lambda run: run[0].call is not call)

    def _cut(self, call: Call, token_budget: int) -> list[Row]:
        ordered = [(length, run) for length in sorted(self._runs, reverse=True) for run in self._runs[length]]
        first, skip = _begin(ordered, call, token_budget)
        most = most_rows(ordered[first][0], token_budget)
        taken: list[Row] = []
        touched: set[int] = set()
        for length, run in ordered[first:]:
            part = run[skip : skip + most - len(taken)]
            if not part:
                break
            del run[skip : skip + len(part)]
            taken += part
            touched.add(length)
            skip = 0
        self._keep(touched, bool)
        return taken

    def _keep(self, lengths: Iterable[int], wanted: Callable[[list[Row]], bool]) -> None:
        for length in lengths:
            if runs := [run for run in self._runs[length] if wanted(run)]:
                self._runs[length] = runs
            else:
                del self._runs[length]


def _begin(ordered: list[tuple[int, list[Row]]], call: Call, token_budget: int) -> tuple[int, int]:
    """Where the pass begins that holds the first row of a call: in which run, and how many rows into it."""
    first = skip = room = 0  # room: rows that the pass which began last still takes
    for at, (length, run) in enumerate(ordered):
        most = most_rows(length, token_budget)
        if room == 0:
            first, skip, room = at, 0, most
        if run[0].call is call:
            break
        if len(run) < room:
            room -= len(run)
        else:
            over = (len(run) - room) % most
            first, skip, room = at, len(run) - over, -over % most
    return first, skip
