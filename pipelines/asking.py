"""Asking about records: requests to a router, several at a time, answered in the order of the records."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from ray.exceptions import RayError

from cluster import AgentDiedError, AgentLostError, ClusterRouter, NoRoomError
from laya.files import CheckpointError
from laya.states import serialize
from pipelines.errors import InputError, RecordError
from pipelines.row_requests import RowRequests
from pipelines.sinks import Outcome
from pipelines.sources import Record

CHUNK_ROWS = 256
"""Rows that go to an agent in one call at most: enough to pack passes well, few enough that several agents share a fragment."""
CHUNK_CHARACTERS = 128 * 1024
"""Text that goes to an agent in one call at most, if it is more than one row: an agent that leaves finishes what it has accepted."""
LONG_CHARACTERS = 2048
"""Texts up to here are asked about in batches first; the few of them that turn out to be too long are read again window by window."""
_SCANS = 8
"""Long documents that are read at a time. Their windows fan out over the agents by themselves."""

STOPS_THE_JOB = (CheckpointError, AgentDiedError, AgentLostError, NoRoomError, InputError)
"""Errors that are no single row's: they stop the job, which can go on later, instead of filling it with error rows."""


class Answered(NamedTuple):
    """A record with what became of it."""

    record: Record
    run_id: str
    outcome: Outcome


class _Pending(NamedTuple):
    """A place in the outcomes of a call that is under way."""

    call: Future[list[Outcome]]
    place: int


@dataclass(frozen=True, slots=True)
class _Asked:
    record: Record
    run_id: str
    outcome: Outcome | _Pending


class Asker:
    """Asks a router about records.

    Rows go out in chunks, several at a time; no more are read than are in flight, unless a long document holds up the rows behind it: those
    are answered meanwhile and wait for it. Of rows that ask the same (state, questions, checkpoint, language, budgets) one is computed,
    unless there are hooks, which see every row.

    Args:
        router: Answers requests.
        rows: Makes them of records.
        hooks: Hook objects that fire for each row.
        alike: Whether rows that ask the same may share an answer.
        in_flight: Chunks that are being answered at a time.
    """

    def __init__(self, router: ClusterRouter, rows: RowRequests, hooks: Sequence[Any], alike: bool, in_flight: int) -> None:
        self._router = router
        self._rows = rows
        self._hooks = list(hooks)
        self._alike = alike and not hooks
        self._in_flight = in_flight
        self.repeats = 0
        """Rows that shared the answer of another one."""

    def answer(self, records: Iterable[Record], run_id: Callable[[Record], str]) -> Iterator[list[Answered]]:
        """Answers records.

        Args:
            records: What was read.
            run_id: Gives the id of a record's request.

        Yields:
            Lists of answered records; together they hold each once and in order.

        Raises:
            Exception: One of `STOPS_THE_JOB`.
        """
        source = iter(records)
        known: dict[Any, _Pending] = {}
        waiting: deque[list[_Asked]] = deque()
        with ThreadPoolExecutor(self._in_flight, "laya-ask") as calls, ThreadPoolExecutor(_SCANS, "laya-scan") as scans:
            try:
                running: set[Future[list[Outcome]]] = set()
                while True:
                    asked, call = self._ask(source, run_id, known, calls, scans)
                    if not asked:
                        break
                    waiting.append(asked)
                    if call is not None:
                        running.add(call)
                    while waiting and _is_done(waiting[0]):
                        yield _answered(waiting.popleft())
                    if len(running) > self._in_flight:
                        running = wait(running, return_when=FIRST_COMPLETED).not_done
                while waiting:
                    yield _answered(waiting.popleft())
            except BaseException:
                calls.shutdown(wait=False, cancel_futures=True)
                scans.shutdown(wait=False, cancel_futures=True)
                raise

    def _ask(
        self,
        records: Iterator[Record],
        run_id: Callable[[Record], str],
        known: dict[Any, _Pending],
        calls: ThreadPoolExecutor,
        scans: ThreadPoolExecutor,
    ) -> tuple[list[_Asked], Future[list[Outcome]] | None]:
        """Sends the next chunk on its way: its short rows in one call, each long one by itself. An empty one is the end."""
        batch: list[dict[str, Any]] = []
        call: Future[list[Outcome]] = Future()
        asked = []
        characters = 0
        for record in islice(records, CHUNK_ROWS):
            name = run_id(record)
            outcome: Outcome | _Pending
            try:
                request = {**self._rows.request(record), "run_id": name}
                key, text = self._key(request)
            except RecordError as error:
                outcome = error
            else:
                if key in known:
                    outcome = known[key]
                    self.repeats += 1
                elif self._rows.scan and self._may_take_windows(text):
                    outcome = _Pending(scans.submit(self._scan, request), 0)
                else:
                    outcome = _Pending(call, len(batch))
                    batch.append(request)
                    characters += len(text)
                if key is not None and isinstance(outcome, _Pending):
                    known[key] = outcome
            asked.append(_Asked(record, name, outcome))
            if characters > CHUNK_CHARACTERS:
                break
        if not batch:
            return asked, None
        calls.submit(_settle, call, self._batch, batch)
        return asked, call

    def _key(self, request: Mapping[str, Any]) -> tuple[Any, str]:
        """What rows that ask the same have in common (None where they may not share), and the state's text."""
        state = request["state"]
        try:
            text = serialize(state)
        except (TypeError, ValueError) as error:
            raise RecordError(str(error)) from None
        if not self._alike:
            return None, text
        asked = json.dumps(request["questions"], default=repr) if self._rows.each_asks_its_own else None
        budgets = request.get("max_len"), request.get("head_max_len")
        return (type(state), text, asked, request.get("model"), request.get("lang"), budgets), text

    def _may_take_windows(self, text: str) -> bool:
        """Whether to ask about a row by itself, window by window; hooks then see every row that way, and each once."""
        if self._hooks:
            return bool(text)
        window = self._rows.windows["window"]
        # No text has more tokens than bytes and a mark of its start; one window of it is what a batch would read.
        return len(text) > LONG_CHARACTERS if window is None else len(text.encode(errors="surrogatepass")) >= window

    def _batch(self, requests: Sequence[dict[str, Any]]) -> list[Outcome]:
        outcomes = self._router.predict_batch(requests, hooks=self._hooks, return_exceptions=True)
        for index, outcome in enumerate(outcomes):
            _check(outcome)
            if self._rows.scan and not isinstance(outcome, BaseException) and outcome["usage"].get("truncated"):
                outcomes[index] = self._scan(requests[index])[0]
        return outcomes

    def _scan(self, request: dict[str, Any]) -> list[Outcome]:
        try:
            return [self._router.predict_long(**request, **self._rows.windows, hooks=self._hooks)]
        except Exception as error:
            _check(error)
            return [error]


def _check(outcome: Outcome) -> None:
    """Raises what is no single row's."""
    if isinstance(outcome, STOPS_THE_JOB):
        raise outcome
    if isinstance(outcome, RayError):
        raise AgentLostError(f"an agent could not be asked: {type(outcome).__name__}: {outcome}") from outcome


def _settle(
    call: Future[list[Outcome]], body: Callable[[Sequence[dict[str, Any]]], list[Outcome]], requests: Sequence[dict[str, Any]]
) -> None:
    try:
        call.set_result(body(requests))
    except BaseException as error:
        call.set_exception(error)


def _is_done(asked: Sequence[_Asked]) -> bool:
    return all(one.outcome.call.done() for one in asked if isinstance(one.outcome, _Pending))


def _answered(asked: Sequence[_Asked]) -> list[Answered]:
    return [
        Answered(one.record, one.run_id, one.outcome.call.result()[one.outcome.place] if isinstance(one.outcome, _Pending) else one.outcome)
        for one in asked
    ]
