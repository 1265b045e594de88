"""The plan of a scoring job: all that can be wrong with its input is found here, before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from laya.questions import Question
from pipelines.config import ScoreConfig
from pipelines.question_files import load_questions
from pipelines.sinks import Manifest, check_output_folder, committed_parts, fingerprint, output_schema, remove_unfinished, write_manifest
from pipelines.sources import (
    Fragment,
    InputColumns,
    InputError,
    InputFile,
    check_state_columns,
    cut,
    default_state_columns,
    find_inputs,
    read_columns,
)


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """What a job will do.

    Attributes:
        files: The input.
        fragments: The same, cut.
        done: Indices of the fragments that an earlier run has committed.
        columns: Columns of the input.
        questions: The questions as the user wrote them.
        parsed: The same, validated.
        schema: Schema of the output.
        state: Columns that the questions are about.
        labels: Question id (as text) to the column of its right answer.
        fingerprint: Hash of all that decides what the output holds.
    """

    files: tuple[InputFile, ...]
    fragments: tuple[Fragment, ...]
    done: frozenset[int]
    columns: InputColumns
    questions: Mapping[Any, Any]
    parsed: tuple[Question, ...]
    schema: pa.Schema
    state: tuple[str, ...]
    labels: Mapping[str, str]
    fingerprint: str

    @property
    def rows(self) -> int:
        """Rows of the whole input."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def pending(self) -> list[Fragment]:
        """Fragments that are still to be scored."""
        return [fragment for fragment in self.fragments if fragment.index not in self.done]


def open_output(config: ScoreConfig, plan: ScorePlan) -> None:
    """Makes the output folder ready for parts: the manifest first, so that a run that stops can be told from another.

    Raises:
        InputError: The folder cannot be written to.
    """
    write_manifest(config.output, Manifest(plan.fingerprint, len(plan.fragments), plan.rows, plan.files))
    remove_unfinished(config.output)


def make_plan(config: ScoreConfig) -> ScorePlan:
    """Looks over the input, the questions and the output folder; changes nothing.

    Raises:
        InputError: Something is wrong with one of them; the message is one line that names it and the mend.
    """
    questions, parsed = load_questions(config.questions)
    files = find_inputs(config.inputs)
    fragments = cut(files, config.rows_per_fragment)
    columns = read_columns(files)
    state = _state_columns(config.state, columns, bool(fragments))
    _check_labels(config.labels, parsed, columns)
    schema = output_schema(columns, parsed)
    settings = {"labels": dict(config.labels)}
    mark = fingerprint(files, questions, config.model, state, config.rows_per_fragment, settings)
    resumed = check_output_folder(config.output, mark) == "resume"
    return ScorePlan(
        files=tuple(files),
        fragments=tuple(fragments),
        done=frozenset(committed_parts(config.output)) if resumed else frozenset(),
        columns=columns,
        questions=questions,
        parsed=parsed,
        schema=schema,
        state=state,
        labels=config.labels,
        fingerprint=mark,
    )


def _state_columns(wanted: tuple[str, ...] | None, columns: InputColumns, has_rows: bool) -> tuple[str, ...]:
    if not columns.names and not has_rows:
        return wanted or ()
    if wanted is None:
        return default_state_columns(columns.names)
    check_state_columns(wanted, columns.names)
    return wanted


def _check_labels(labels: Mapping[str, str], questions: Sequence[Question], columns: InputColumns) -> None:
    known = [str(question.qid) for question in questions]
    for qid, column in labels.items():
        if qid not in known:
            raise InputError(f"--labels {qid}={column}: there is no question {qid!r}; the questions are {', '.join(known)}")
        if column not in columns.names:
            close = get_close_matches(column, columns.names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; the columns are {', '.join(columns.names)}"
            raise InputError(f"--labels {qid}={column}: the input has no column {column!r}{hint}")
