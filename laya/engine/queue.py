"""The engine's queue: when the device is free, a pass is formed out of whatever waits."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Protocol

from laya.deadlines import CancelledRequestError, limits
from laya.engine.batches import RowScore
from laya.engine.errors import DeviceLostError, OutOfMemoryError
from laya.engine.lanes import Call, Lane, OwnLane, Row, SharedLane
from laya.engine.stats import EngineStats, PassReport, Tally
from laya.sequences import TokenSequence


class Device(Protocol):
    """What runs the passes."""

    def forward(self, rows: Sequence[TokenSequence]) -> list[RowScore]:
        """Scores rows in one pass. `OutOfMemoryError` says that they did not fit."""

    def computed_tokens(self, lengths: Sequence[int]) -> int:
        """Tokens that a pass over rows of these lengths computes, padding counted."""

    def report(self, report: PassReport) -> None:
        """Is told of each pass that gave scores."""


class PassQueue:
    """Where the calls of several threads meet.

    No thread of its own: whichever waiting caller finds the device free forms one pass out of all rows that wait and runs it, for itself
    and for others; a caller whose rows are scored goes at once. One pass at a time: two would share the cores (or the GPU) and double the
    memory, and gain nothing.

    The next pass is one that holds rows of the call whose last turn is longest past, a new call's turn being when it arrived. So a small
    call does not stand behind all passes of a giant one, and no stream of small ones keeps a giant one waiting.

    Args:
        token_budget: Padded tokens of one pass.
    """

    def __init__(self, token_budget: int) -> None:
        self.token_budget = token_budget
        self._changed = threading.Condition()
        self._calls: dict[Call, None] = {}  # those that are not done, in order of arrival
        self._leader: Call | None = None  # the call whose thread runs a pass
        self._pass: list[Row] = []
        self._turn = 0
        self._tally = Tally()
        self._told = Tally()  # the tally as it was when the lock was last given back
        self._shared = SharedLane(self._tally)
        self._shut: Callable[[], Exception] | None = None

    def score(self, rows: Sequence[TokenSequence], max_rows: int | None, sort: bool, device: Device) -> list[RowScore]:
        """Scores rows, in passes with other calls' rows; one with ``max_rows``, or not to be sorted, has passes of its own.

        Args:
            rows: The sequences.
            max_rows: Most rows of a pass, or None for no limit.
            sort: Whether rows of like length share a pass.
            device: What runs a pass; the same for all calls. It is not kept, so that an engine and its queue make no circle: an engine
                that nobody holds any more frees its memory at once.

        Raises:
            laya.DeadlineExceededError: The deadline passed before the call's turn came.
            laya.deadlines.CancelledRequestError: The call was given up before its turn came.
            laya.DeviceLostError: A pass with rows of this call lost the device.
            Exception: What a pass with rows of this call and of no other failed with, or what the queue was shut with.
        """
        call = Call(rows, self._shared if max_rows is None and sort else OwnLane(self._tally, max_rows, sort), limits())
        try:
            self._enter(call)
            while self._lead(call):
                self._run(device)
        except BaseException:
            self._leave(call)
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:  # an error holds this frame, which must not hold the error
                call.error = None
                del call
        return [score for score in call.scores if score is not None]

    def shut(self, reason: Callable[[], Exception]) -> None:
        """Ends calls whose rows wait, and every later one, with an error made by ``reason``. A pass that runs is finished."""
        with self._locked():
            self._shut = reason
            for call in list(self._calls):
                if call.waiting:
                    self._settle(call, reason())
            self._changed.notify_all()

    def stats(self) -> EngineStats:
        """What was done so far and what waits; see `EngineStats`. Waits for no lock: it is asked on event loops."""
        return EngineStats(**asdict(self._told), token_budget=self.token_budget)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._changed:
            try:
                yield
            finally:
                self._told = replace(self._tally)

    def _enter(self, call: Call) -> None:
        with self._locked():
            if self._drop_lapsed([call]) or call.done:
                return
            if self._shut is not None:
                call.error = self._shut()
                return
            call.turn = self._turn
            self._calls[call] = None
            call.lane.add([Row(call, at) for at in range(len(call.rows))])

    def _lead(self, call: Call) -> bool:
        """Waits until a call is done, which gives False, or until the device is free: then a pass is ready for this thread to run."""
        with self._locked():
            while True:
                self._drop_lapsed(list(self._calls) if self._leader is None else [call])
                if call.done:
                    return False
                if self._leader is None:
                    chosen = min(self._calls, key=lambda waiting: (waiting.turn, waiting.served))
                    self._leader = call
                    self._pass = chosen.lane.take(chosen, self.token_budget)
                    return True
                self._changed.wait(call.patience_s())

    def _run(self, device: Device) -> None:
        """Runs the pass that is ready, and gives scores or the error to the calls whose rows it held."""
        batch = self._pass
        lengths = [len(row.sequence.ids) for row in batch]
        calls = len({row.call for row in batch})
        begun = time.monotonic()
        try:
            scores = device.forward([row.sequence for row in batch])
        except OutOfMemoryError as error:
            if len(batch) > 1:
                self._split(len(batch) * max(lengths), max(lengths))
            else:
                self._fail(error)
            return
        except Exception as error:
            if calls > 1 and not isinstance(error, DeviceLostError):
                self._part()
            else:
                self._fail(error)
            return
        waits = [begun - row.call.arrived for row in batch]
        report = PassReport(len(batch), calls, sum(lengths), device.computed_tokens(lengths), time.monotonic() - begun, max(waits))
        with self._locked():
            self._deliver(scores)
            self._count(report, sum(waits))
            self._release()
        device.report(report)

    def _deliver(self, scores: list[RowScore]) -> None:
        self._turn += 1
        for row, score in zip(self._pass, scores, strict=True):
            call = row.call
            call.turn, call.served = self._turn, True
            call.scores[row.at] = score
            call.missing -= 1
            if call.missing == 0:
                self._calls.pop(call, None)

    def _count(self, report: PassReport, queue_s: float) -> None:
        tally = self._tally
        tally.passes += 1
        tally.rows += report.rows
        tally.tokens += report.tokens
        tally.padded_tokens += report.padded_tokens
        tally.forward_s += report.forward_s
        tally.queue_s += queue_s

    def _split(self, padded: int, longest: int) -> None:
        """Lets the rows of a pass that did not fit into memory wait again, for passes of half its size."""
        with self._locked():
            self.token_budget = min(self.token_budget, max(longest, padded // 2))
            self._tally.memory_splits += 1
            self._put_back()
            self._release()

    def _part(self) -> None:
        """Lets the calls of a pass that failed go on each by itself, so that only the one at fault ends."""
        with self._locked():
            for call in {row.call: None for row in self._pass}:
                if not call.done:
                    call.lane.remove(call)
                    call.lane = OwnLane(self._tally)
                    call.lane.add([Row(call, at) for at, score in enumerate(call.scores) if score is None])
            self._release()

    def _fail(self, error: Exception) -> None:
        """Ends the calls whose rows the pass held. Each has an error of its own: what its caller's hooks hang on it is nobody else's."""
        with self._locked():
            for call in {row.call: None for row in self._pass}:
                self._settle(call, error if call is self._leader else _twin(error))
            self._release()

    def _leave(self, call: Call) -> None:
        """Takes out a call whose thread was interrupted; what its pass held of others waits again."""
        with self._locked():
            self._settle(call, InterruptedError())
            if self._leader is call:
                for other in {row.call: None for row in self._pass}:  # the interrupt may have come amid the delivery
                    other.missing = other.scores.count(None)
                    if other.done:
                        self._calls.pop(other, None)
                self._put_back()
                self._release()

    def _put_back(self) -> None:
        lanes: dict[Lane, list[Row]] = {}
        for row in self._pass:
            if not row.call.done and row.call.scores[row.at] is None:
                lanes.setdefault(row.call.lane, []).append(row)
        for lane, rows in lanes.items():
            lane.put_back(rows)

    def _release(self) -> None:
        self._leader = None
        self._pass = []
        if self._shut is not None:  # what was put back came too late to be ended with the rest
            for call in list(self._calls):
                self._settle(call, self._shut())
        self._changed.notify_all()

    def _settle(self, call: Call, error: BaseException) -> None:
        if not call.done:
            call.error = error
            if call.waiting:
                call.lane.remove(call)
        self._calls.pop(call, None)

    def _drop_lapsed(self, calls: Iterable[Call]) -> bool:
        """Ends calls that are of no use any more, unless a pass runs for them, and counts them. Returns whether there were any."""
        dropped = False
        for call in calls:
            if call.done or (call in self._calls and call.running):
                continue
            if (error := call.limits.lapse()) is not None:
                self._settle(call, error)
                if isinstance(error, CancelledRequestError):
                    self._tally.cancelled += 1
                else:
                    self._tally.expired += 1
                dropped = True
        if dropped:
            self._changed.notify_all()
        return dropped


def _twin(error: Exception) -> Exception:
    """The same error for another caller; the very same one where its class cannot be copied."""
    try:
        twin = copy.copy(error)
    except Exception:
        return error
    if type(twin) is not type(error):
        return error
    if error.__cause__ is not None:
        twin.__cause__ = error.__cause__
    return twin.with_traceback(error.__traceback__)
