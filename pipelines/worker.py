"""What a worker does with one fragment: read, ask, write, commit."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from ray.exceptions import RayError

from cluster import AgentDiedError, AgentLostError, ClusterRouter, NoRoomError
from laya.files import CheckpointError
from laya.questions import Question
from pipelines.errors import InputError, RecordError
from pipelines.report import Tally
from pipelines.sinks import Outcome, output_rows, write_part
from pipelines.sources import Fragment, InputColumns, Record, read, state_of

CHUNK_ROWS = 64
"""Rows that go to an agent in one call: enough to pack well, few enough that several agents share a fragment."""

STOPS_THE_JOB = (CheckpointError, AgentDiedError, AgentLostError, NoRoomError, InputError)
"""Errors that are no single row's: they stop the job, which can go on later, instead of filling it with error rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentJob:
    """What every fragment of a job needs.

    Attributes:
        router: Answers requests.
        model: The checkpoint to ask, or None to choose one for each row.
        output: Folder of the part files.
        in_flight: Chunks that are being answered at a time.
        files: Path of each input file to its size and time of change.
        columns: Columns of the input.
        questions: The questions as the user wrote them.
        parsed: The same, validated.
        schema: Schema of the output.
        state: Columns that the questions are about.
        labels: Question id to the column of its right answer.
        fingerprint: Of the job; run ids are made from it.
        progress: Handle of a ProgressCounter.
    """

    TALLY_KEY: ClassVar[str] = "laya.tally"

    router: ClusterRouter
    model: str | None
    output: str
    in_flight: int
    files: Mapping[str, tuple[int, int]]
    columns: InputColumns
    questions: Mapping[Any, Any]
    parsed: tuple[Question, ...]
    schema: pa.Schema
    state: tuple[str, ...]
    labels: Mapping[str, str]
    fingerprint: str
    progress: Any

    def check_unchanged(self, fragment: Fragment) -> None:
        """Checks that a fragment's file is the one that was planned with.

        Raises:
            InputError: It has been changed since.
        """
        facts = Path(fragment.path).stat()
        if (facts.st_size, facts.st_mtime_ns) != self.files[fragment.path]:
            raise InputError(f"{fragment.path}: changed while it was being scored; start again with a new --output")

    def run_id(self, fragment: Fragment, record: Record) -> str:
        """The id of a row's request: the same however often the row is scored."""
        return sha256(f"{self.fingerprint}:{fragment.path}:{record.number}".encode()).hexdigest()[:32]


def score_fragment(row: Mapping[str, Any], job: FragmentJob) -> dict[str, Any]:
    """Scores one fragment and commits its part file; done twice, it replaces the part by an equal one.

    Args:
        row: The fields of a Fragment.
        job: The job.

    Returns:
        The fragment's ``index`` and the number of its ``rows``; or, pickled in ``stopped``, the error that stops the job. It travels as a
        value because Ray Data would wrap it and lose its class.
    """
    fragment = Fragment(**row)
    try:
        return {"index": fragment.index, "rows": _score(fragment, job), "stopped": None}
    except STOPS_THE_JOB as error:
        return {"index": fragment.index, "rows": 0, "stopped": pickle.dumps(error)}


def _score(fragment: Fragment, job: FragmentJob) -> int:
    job.check_unchanged(fragment)
    tally = Tally()
    wanted = {*job.state, *job.labels.values()}
    chunks = _chunks(read(fragment, wanted))

    def tables() -> Iterator[pa.Table]:
        for records, run_ids, outcomes in _answered(chunks, fragment, job):
            _count(records, outcomes, tally, job)
            yield output_rows(records, outcomes, run_ids, job.columns, job.parsed)
        job.check_unchanged(fragment)

    return write_part(job.output, fragment.index, tables(), job.schema, lambda: {job.TALLY_KEY: tally.to_json()})


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    while chunk := list(islice(records, CHUNK_ROWS)):
        yield chunk


def _answered(
    chunks: Iterator[list[Record]], fragment: Fragment, job: FragmentJob
) -> Iterator[tuple[list[Record], list[str], list[Outcome]]]:
    """Answers chunks in order, several at a time; no more are read than are in flight."""
    waiting: deque[tuple[list[Record], list[str], Future[list[Outcome]]]] = deque()
    with ThreadPoolExecutor(job.in_flight, thread_name_prefix="laya-ask") as pool:
        for records in chunks:
            run_ids = [job.run_id(fragment, record) for record in records]
            waiting.append((records, run_ids, pool.submit(_ask, records, run_ids, job)))
            if len(waiting) >= job.in_flight:
                first, ids, answer = waiting.popleft()
                yield first, ids, answer.result()
        for first, ids, answer in waiting:
            yield first, ids, answer.result()


def _ask(records: Sequence[Record], run_ids: Sequence[str], job: FragmentJob) -> list[Outcome]:
    """What becomes of each record: an answer, or the error that is its own."""
    outcomes: list[Outcome | None] = [None] * len(records)
    requests = []
    for index, (record, run_id) in enumerate(zip(records, run_ids, strict=True)):
        try:
            state = state_of(record, job.state)
        except RecordError as error:
            outcomes[index] = error
        else:
            requests.append((index, {"state": state, "questions": job.questions, "model": job.model, "run_id": run_id}))
    answers = job.router.predict_batch([request for _, request in requests], return_exceptions=True)
    for (index, _), answer in zip(requests, answers, strict=True):
        if isinstance(answer, STOPS_THE_JOB):
            raise answer
        if isinstance(answer, RayError):
            raise AgentLostError(f"an agent could not be asked: {type(answer).__name__}: {answer}") from answer
        outcomes[index] = answer
    return [outcome for outcome in outcomes if outcome is not None]


def _count(records: Sequence[Record], outcomes: Sequence[Outcome], tally: Tally, job: FragmentJob) -> None:
    errors, tokens = tally.errors.total(), tally.tokens
    for record, outcome in zip(records, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            tally.add_error(outcome)
        else:
            tally.add_result(outcome, job.parsed, {qid: record.columns.get(column) for qid, column in job.labels.items()})
    job.progress.add.remote(len(records), tally.errors.total() - errors, tally.tokens - tokens)
