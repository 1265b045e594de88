"""The plan of a scoring job: all that can be wrong with its input is found here, before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from laya.checkpoint import CONFIG_FILE, WEIGHTS_FILE, open_checkpoint
from laya.names import find_source
from laya.questions import Question
from pipelines.config import AUTO, ScoreConfig
from pipelines.errors import InputError
from pipelines.question_files import load_questions
from pipelines.sinks import (
    Manifest,
    check_output_folder,
    committed_parts,
    fingerprint,
    locked,
    output_schema,
    part_notes,
    remove_unfinished,
    write_manifest,
)
from pipelines.sources import (
    Fragment,
    InputColumns,
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


@contextmanager
def open_output(config: ScoreConfig, plan: ScorePlan) -> Iterator[None]:
    """Holds the output folder for the parts of a block: the manifest first, so that a run that stops can be told from another.

    Raises:
        InputError: The folder cannot be written to, or another run writes to it now.
    """
    with locked(config.output):
        write_manifest(config.output, Manifest(plan.fingerprint, len(plan.fragments), plan.rows, plan.files))
        remove_unfinished(config.output)
        yield
        remove_unfinished(config.output)


def make_plan(config: ScoreConfig) -> ScorePlan:
    """Looks over the input, the questions and the output folder; changes nothing.

    Raises:
        InputError: Something is wrong with one of them; the message is one line that names it and the mend.
        CheckpointError: The checkpoint cannot be had here.
    """
    _check_output(config)
    questions, parsed = load_questions(config.questions)
    files = find_inputs(config.inputs)
    fragments = cut(files, config.rows_per_fragment)
    columns = read_columns(files)
    state = _state_columns(config.state, columns, bool(fragments))
    check_labels(config.labels, parsed, columns.names)
    schema = output_schema(columns, parsed)
    settings = {"labels": dict(config.labels), "weights": _weights(config)}
    mark = fingerprint(files, questions, config.model, state, config.rows_per_fragment, settings)
    resumed = check_output_folder(config.output, mark) == "resume"
    return ScorePlan(
        files=tuple(files),
        fragments=tuple(fragments),
        done=frozenset(index for index in committed_parts(config.output) if part_notes(config.output, index)) if resumed else frozenset(),
        columns=columns,
        questions=questions,
        parsed=parsed,
        schema=schema,
        state=state,
        labels=config.labels,
        fingerprint=mark,
    )


def _check_output(config: ScoreConfig) -> None:
    if not config.output.strip():
        raise InputError("--output is empty; name a folder for the part files")
    output = Path(config.output).absolute()
    for given in config.inputs:
        folder = Path(given).absolute()
        if folder.is_dir() and output.is_relative_to(folder):
            raise InputError(f"--output {config.output} lies inside the input folder {given}, which would read it again; choose another")


def _weights(config: ScoreConfig) -> str | None:
    """A hash of the checkpoint's files, so that no output mixes two; None where rows choose, or where the files are on a cluster.

    Raises:
        CheckpointError: The checkpoint cannot be had. It is told here, before Ray starts.
    """
    if config.model == AUTO or config.address is not None:
        return None
    checkpoint = open_checkpoint(find_source(config.model))
    digest = sha256()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        with (checkpoint.folder / name).open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _state_columns(wanted: tuple[str, ...] | None, columns: InputColumns, has_rows: bool) -> tuple[str, ...]:
    if not columns.names and not has_rows:
        return wanted or ()
    if wanted is None:
        return default_state_columns(columns.names)
    check_state_columns(wanted, columns.names)
    return wanted


def check_labels(labels: Mapping[str, str], questions: Sequence[Question], columns: Sequence[str]) -> None:
    """Checks that labels belong to questions and name columns of the input.

    Raises:
        InputError: One does not.
    """
    known = [str(question.qid) for question in questions]
    for qid, column in labels.items():
        if qid not in known:
            raise InputError(f"--labels {qid}={column}: there is no question {qid!r}; the questions are {', '.join(known)}")
        if column not in columns:
            close = get_close_matches(column, columns, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; the columns are {', '.join(columns)}"
            raise InputError(f"--labels {qid}={column}: the input has no column {column!r}{hint}")
