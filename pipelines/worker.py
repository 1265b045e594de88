"""What a worker does with one fragment: read, ask, write, commit."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

import pyarrow as pa

from cluster import ClusterRouter
from laya.questions import Question
from pipelines.asking import STOPS_THE_JOB, Asker
from pipelines.config import ScoreConfig
from pipelines.errors import InputError, first_line
from pipelines.gating import abstained
from pipelines.hook_paths import hooks_of
from pipelines.plan import ScorePlan
from pipelines.row_requests import RowRequests
from pipelines.sinks import Aside, Outcome, output_rows, settled, write_part
from pipelines.sources import Fragment, InputColumns, InputFile, Record, check_unchanged, read
from pipelines.storage import absolute
from pipelines.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentJob:
    """What every fragment of a job needs.

    Attributes:
        config: What was asked for.
        router: Answers requests.
        rows: Makes them of records.
        in_flight: Chunks that are being answered at a time.
        files: The input by path.
        columns: Columns of the input that the output keeps.
        parsed: The questions of all rows, validated; None where each row has its own.
        schema: Schema of the output.
        fingerprint: Of the job; run ids are made from it.
        progress: Handle of a ProgressCounter.
    """

    config: ScoreConfig
    router: ClusterRouter
    rows: RowRequests
    in_flight: int
    files: Mapping[str, InputFile]
    columns: InputColumns
    parsed: tuple[Question, ...] | None
    schema: pa.Schema
    fingerprint: str
    progress: Any

    @classmethod
    def of(cls, plan: ScorePlan, router: ClusterRouter, in_flight: int, progress: Any) -> Self:
        """The job of a plan, for workers that may run in another directory."""
        aside = plan.config.abstain_output
        places = {"output": absolute(plan.config.output), "abstain_output": None if aside is None else absolute(aside)}
        return cls(
            config=plan.config.model_copy(update=places),
            router=router,
            rows=plan.rows,
            in_flight=in_flight,
            files={file.path: file for file in plan.files},
            columns=plan.columns,
            parsed=plan.parsed,
            schema=plan.schema,
            fingerprint=plan.fingerprint,
            progress=progress,
        )


def score_fragment(row: Mapping[str, Any], job: FragmentJob) -> dict[str, Any]:
    """Scores one fragment and commits its part file; done twice, it replaces the part by an equal one.

    Args:
        row: A pickled Fragment in ``fragment``.
        job: The job.

    Returns:
        The fragment's ``index`` and the number of its ``rows``; or, pickled in ``stopped``, the error that stops the job. It travels as a
        value because Ray Data would wrap it and lose its class.
    """
    fragment: Fragment = pickle.loads(row["fragment"])
    try:
        return {"index": fragment.index, "rows": _score(fragment, job), "stopped": None}
    except STOPS_THE_JOB as error:
        return {"index": fragment.index, "rows": 0, "stopped": pickle.dumps(error)}
    except OSError as error:  # such as a disk that is full
        where = f"part {fragment.index} of {job.config.output}"
        told = InputError(f"{where}: {first_line(error)}; what was committed stays, and the same command goes on from there")
        return {"index": fragment.index, "rows": 0, "stopped": pickle.dumps(told)}


def _score(fragment: Fragment, job: FragmentJob) -> int:
    config = job.config
    started = time.time()
    check_unchanged(job.files[fragment.path])
    tally = Tally()
    asker = Asker(job.router, job.rows, hooks_of(config.hooks), alike=not config.agent_hooks, in_flight=job.in_flight)
    records = read(fragment, wanted={*job.rows.columns, *config.labels.values()}, kept=job.columns.names)

    def run_id(record: Record) -> str:
        return sha256(f"{job.fingerprint}:{fragment.path}:{record.number}".encode()).hexdigest()[:32]

    def tables() -> Iterator[pa.Table]:
        for answered in asker.answer(records, run_id):
            read_records, run_ids, given = zip(*answered, strict=True)
            outcomes = [settled(outcome, job.parsed) for outcome in given]
            _count(read_records, outcomes, tally, job)
            yield output_rows(read_records, outcomes, run_ids, job.columns, job.parsed, config.min_confidence)
        check_unchanged(job.files[fragment.path])

    def notes() -> dict[str, Any]:
        tally.repeats = asker.repeats
        return {"started_at": started, "finished_at": time.time(), "tally": tally.to_dict()}

    aside = None if config.abstain_output is None else Aside(config.abstain_output, job.parsed)
    return write_part(config.output, fragment.index, tables(), job.schema, config.format, notes, aside)


def _count(records: Sequence[Record], outcomes: Sequence[Outcome], tally: Tally, job: FragmentJob) -> None:
    config = job.config
    errors, tokens = tally.errors.total(), tally.tokens
    for record, outcome in zip(records, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            if config.on_error == "raise":
                raise InputError(f"{record.where}: {type(outcome).__name__}: {outcome}; with --on-error row it would be an error row")
            tally.add_error(outcome, record.where)
            continue
        questions = job.parsed
        if questions is None:  # a hook may have changed what the row asks
            questions = tuple(question for question in job.rows.own_questions(record)[1] if question.qid in outcome["answers"])
        truths = {qid: record.columns.get(column) for qid, column in config.labels.items()}
        tally.add_result(outcome, questions, truths, abstained(outcome, config.min_confidence))
    job.progress.add.remote(len(records), tally.errors.total() - errors, tally.tokens - tokens)
