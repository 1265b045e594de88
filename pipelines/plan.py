"""The plan of a scoring job: all that can be wrong with its input is found here, before any model is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from laya.checkpoint import CONFIG_FILE, open_checkpoint
from laya.names import find_source
from laya.questions import Question
from pipelines.config import AUTO, ScoreConfig
from pipelines.errors import InputError, suggestion
from pipelines.gating import check_thresholds
from pipelines.hook_paths import code_of, hooks_of
from pipelines.question_files import load_questions
from pipelines.row_requests import RowRequests
from pipelines.session import mapped_on_ray, ray_session
from pipelines.sinks import HASHED, check_output_folder, committed_notes, fingerprint, output_schema, part_name
from pipelines.sources import (
    Fragment,
    InputColumns,
    InputFile,
    Survey,
    check_state_columns,
    default_state_columns,
    find_inputs,
    survey,
)
from pipelines.storage import is_within, join, reads

_DECISIVE_FIELDS = (
    *("model", "state", "state_json", "model_column", "lang", "lang_column", "max_len", "max_len_column", "head_max_len"),
    *("long", "window", "stride", "hooks", "agent_hooks", "min_confidence", "abstain_output", "labels", "columns"),
    *("rows_per_fragment", "format"),
)
"""Fields that the output depends on as they are given, beside the files that others name."""

SURVEYED_HERE_BYTES = 256 * 2**20
"""Text input up to here is looked over in this process, in a few seconds; more of it by tasks on Ray."""


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """What a job will do.

    Attributes:
        config: What was asked for.
        files: The input.
        fragments: The same, cut.
        done: What is noted of the parts that an earlier run has committed, by the index of the fragment.
        columns: Columns of the input that the output keeps.
        questions: The questions as the user wrote them; None where each row has its own.
        parsed: The same, validated.
        schema: Schema of the output.
        rows: Makes requests of records.
        facts: Name to text of all that decides what the output holds; of a long one its hash.
    """

    config: ScoreConfig
    files: tuple[InputFile, ...]
    fragments: tuple[Fragment, ...]
    done: Mapping[int, Mapping[str, Any]]
    columns: InputColumns
    questions: Mapping[Any, Any] | None
    parsed: tuple[Question, ...] | None
    schema: pa.Schema
    rows: RowRequests
    facts: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """One hash of the facts."""
        return fingerprint(self.facts)

    @property
    def row_count(self) -> int:
        """Rows of the whole input."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def pending(self) -> list[Fragment]:
        """Fragments that are still to be scored."""
        return [fragment for fragment in self.fragments if fragment.index not in self.done]

    def refreshed(self) -> Self:
        """The same plan with what is done by now.

        Raises:
            InputError: An output folder holds something else, or the output of another job.
        """
        config = self.config
        found = check_output_folder(config.output, self.facts)
        if config.abstain_output is not None:
            check_output_folder(config.abstain_output, self.facts)
        done = committed_notes(config.output, config.format, config.abstain_output) if found == "resume" else {}
        return replace(self, done=done)


def make_plan(config: ScoreConfig) -> ScorePlan:
    """Looks over the input, the questions and the output folder; changes nothing.

    Raises:
        InputError: Something is wrong with one of them; the message is one line that names it and the mend.
        CheckpointError: The checkpoint cannot be had here.
    """
    _check_output(config)
    questions, parsed = (None, None) if config.questions is None else load_questions(config.questions)
    check_thresholds(config.min_confidence, parsed)
    hooks_of(config.hooks)
    hooks_of(config.agent_hooks)
    files = find_inputs(config.inputs)
    surveyed = _survey(files, config)
    columns = surveyed.columns
    rows = RowRequests(config, _state_columns(config, columns, bool(surveyed.fragments)), questions)
    _check_columns(config, columns)
    check_labels(config.labels, parsed or (), columns.names)
    kept = columns.kept(config.columns)
    return ScorePlan(
        config=config,
        files=tuple(files),
        fragments=tuple(surveyed.fragments),
        done={},
        columns=kept,
        questions=questions,
        parsed=parsed,
        schema=output_schema(kept, parsed),
        rows=rows,
        facts=_facts(config, files, questions, rows.state),
    ).refreshed()


def check_labels(labels: Mapping[str, str], questions: Sequence[Question], columns: Sequence[str]) -> None:
    """Checks that labels belong to questions and name columns of the input.

    Raises:
        InputError: One does not.
    """
    known = [str(question.qid) for question in questions]
    for qid, column in labels.items():
        if qid not in known:
            raise InputError(f"--labels {qid}={column}: there is no question {qid!r}; the questions are {', '.join(known)}")
        if columns:  # an input without rows may have none
            _check_column(f"--labels {qid}={column}", column, columns)


def _survey(files: Sequence[InputFile], config: ScoreConfig) -> Survey:
    if sum(file.size for file in files if file.format != "parquet") <= SURVEYED_HERE_BYTES:
        return survey(files, config.rows_per_fragment)
    with ray_session(config.address, os.cpu_count() or 1):
        return survey(files, config.rows_per_fragment, mapped_on_ray)


def _check_output(config: ScoreConfig) -> None:
    folders = {"--output": config.output, "--abstain-output": config.abstain_output}
    for flag, folder in folders.items():
        for given in config.inputs if folder is not None else ():
            if folder is not None and reads(given, join(folder, part_name(0, config.format))):
                raise InputError(f"{flag} {folder} lies inside the input {given}, which would read it again; choose another")
    if config.abstain_output is not None:
        if is_within(config.abstain_output, config.output):
            raise InputError(f"--abstain-output {config.abstain_output} is or lies in the output folder, whose readers would see both")
        if is_within(config.output, config.abstain_output):
            raise InputError(f"--output {config.output} lies in the folder of --abstain-output, whose readers would see both")


def _state_columns(config: ScoreConfig, columns: InputColumns, has_rows: bool) -> tuple[str, ...]:
    wanted = config.state
    if not columns.names and not has_rows:
        return wanted or ()
    if wanted is None:
        return default_state_columns(columns.names)
    check_state_columns(wanted, columns.names, config.state_json)
    return wanted


def _check_columns(config: ScoreConfig, columns: InputColumns) -> None:
    if not columns.names:
        return
    for name in ("questions_column", "model_column", "lang_column", "max_len_column"):
        column = getattr(config, name)
        if column is not None:
            _check_column(f"--{name.replace('_', '-')} {column}", column, columns.names)
    for column in config.columns or ():
        _check_column(f"--columns {column}", column, columns.names)


def _check_column(flag: str, column: str, columns: Sequence[str]) -> None:
    if column not in columns:
        raise InputError(f"{flag}: the input has no column {column!r}; {suggestion(column, columns, 'columns')}")


def _facts(config: ScoreConfig, files: Sequence[InputFile], questions: Mapping[Any, Any] | None, state: Sequence[str]) -> dict[str, str]:
    """All that decides what the output holds, by the names that a refusal tells."""
    contents = {
        "input": [(file.path, file.size, file.mtime_ns, file.partitions) for file in files],
        "questions": _canonical(questions) if questions is not None else config.questions_column,
        "the checkpoint's files": _weights(config),
        "the hooks' code": [_digest(path) for path in code_of((*config.hooks, *config.agent_hooks))],
        "calibration": None if config.calibration is None else _digest(Path(config.calibration)),
    }
    fields = {**config.model_dump(include=set(_DECISIVE_FIELDS)), "state": state}
    hashes = {name: HASHED + sha256(json.dumps(content, default=repr).encode()).hexdigest() for name, content in contents.items()}
    return hashes | {name: _readable(fields[name]) for name in _DECISIVE_FIELDS}


def _readable(value: Any) -> str:
    return json.dumps(value, default=repr, ensure_ascii=False).encode(errors="backslashreplace").decode()


def _weights(config: ScoreConfig) -> str | None:
    """A hash of the checkpoint's files, so that no output mixes two; None where rows choose, or where the files are on a cluster.

    Raises:
        CheckpointError: The checkpoint cannot be had. It is told here, before Ray starts.
    """
    if config.model == AUTO or config.address is not None:
        return None
    checkpoint = open_checkpoint(find_source(config.model))
    return f"{checkpoint.fingerprint} {checkpoint.weights_digest()} {_digest(checkpoint.folder / CONFIG_FILE)}"


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _canonical(value: Any) -> Any:
    """Tells apart what JSON would write alike: the keys 1 and "1", true and "true"."""
    if isinstance(value, Mapping):
        return {"mapping": [[_canonical(key), _canonical(part)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return value
