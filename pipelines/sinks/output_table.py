"""Answered records as Arrow: the schema of the output, and its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from laya.questions import Question
from pipelines.errors import InputError, first_line
from pipelines.gating import Thresholds
from pipelines.sinks.answer_columns import AnswerColumns, answer_columns
from pipelines.sources import InputColumns, Record

Outcome = Mapping[str, Any] | BaseException
"""What became of a record: the result of a Router, or the error."""

LAYA_COLUMN = "laya"
LONGEST_MESSAGE = 2000
"""Characters of an error's message that are kept."""

_ERROR = pa.struct([("class", pa.string()), ("message", pa.string())])
_LAYA = pa.struct(
    [
        ("run_id", pa.string()),
        ("model", pa.string()),
        ("reason", pa.string()),
        ("tokens", pa.int64()),
        ("truncated", pa.bool_()),
        ("windows", pa.int32()),
        ("error", _ERROR),
    ]
)


def output_schema(columns: InputColumns, questions: Sequence[Question] | None) -> pa.Schema:
    """The schema of the output. It depends on nothing but the input columns and the questions.

    First the input columns; then the answers, see `TypedAnswers` (questions that all rows share) and `OwnAnswers` (None: each row has its
    own); last ``laya``, a struct that says how the row was answered or why not.

    Raises:
        InputError: Two of these columns would have one name, or two labels of a choice are written alike.
    """
    fields = [(pa.field(name, kind), "a column of the input") for name, kind in columns.types.items()]
    fields += answer_columns(questions).fields
    fields.append((pa.field(LAYA_COLUMN, _LAYA), "the column that says how a row was answered"))
    owners: dict[str, str] = {}
    for field, owner in fields:
        if field.name in owners:
            raise InputError(
                f"column `{field.name}` of the output would be both {owners[field.name]} and {owner}; rename the question or the column"
            )
        owners[field.name] = owner
    return pa.schema([field for field, _ in fields])


def output_rows(
    records: Sequence[Record],
    outcomes: Sequence[Outcome],
    run_ids: Sequence[str],
    columns: InputColumns,
    questions: Sequence[Question] | None,
    thresholds: Thresholds = None,
) -> pa.Table:
    """Writes answered records as rows, one for each and in order.

    Args:
        records: What was read. The columns of one that could not be read are null.
        outcomes: What became of each. An error leaves the answers null and stands in ``laya.error``, as does a result that a hook made and
            that does not hold answers of the right kind.
        run_ids: The run id of each.
        columns: The input columns that are kept.
        questions: The questions, or None where each row has its own.
        thresholds: The confidence that answers must have.

    Returns:
        A table with the schema of `output_schema`.

    Raises:
        ValueError: The three sequences differ in length.
    """
    schema = output_schema(columns, questions)
    answers = answer_columns(questions, thresholds)
    values: list[Any] = []
    notes: list[tuple[Any, ...]] = []
    for _, outcome, run_id in zip(records, outcomes, run_ids, strict=True):
        value, note = _answered(answers, outcome)
        values.append(value)
        notes.append((run_id, *note))
    arrays: list[Any] = [*_input_table(records, columns).columns, *answers.arrays(values), _notes(notes)]
    return pa.Table.from_arrays(arrays, schema=schema)


def settled(outcome: Outcome, questions: Sequence[Question] | None) -> Outcome:
    """An outcome that can be written: a result that a hook made, and that does not hold what answers must, becomes the error of its row."""
    if isinstance(outcome, BaseException):
        return outcome
    try:
        _written(answer_columns(questions), outcome)
    except _MALFORMED as error:
        return _malformed(error)
    return outcome


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)


def _malformed(error: Exception) -> ValueError:
    return ValueError(f"the result does not hold what an answer must: {type(error).__name__}: {error}")


def _written(answers: AnswerColumns, result: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The values of a row's answers and what is noted of it, in the order of the fields of ``laya``."""
    return answers.values(result["answers"]), (*_note(result), None)


def _answered(answers: AnswerColumns, outcome: Outcome) -> tuple[Any, tuple[Any, ...]]:
    if not isinstance(outcome, BaseException):
        try:
            return _written(answers, outcome)
        except _MALFORMED as error:
            outcome = _malformed(error)
    message = first_line(outcome)[:LONGEST_MESSAGE].encode(errors="replace").decode()
    return None, (None, None, None, None, None, {"class": type(outcome).__name__, "message": message})


def _note(result: Mapping[str, Any]) -> tuple[Any, ...]:
    routing: Mapping[str, Any] = result.get("routing") or {}
    usage: Mapping[str, Any] = result.get("usage") or {}
    return (
        str(routing.get("model", result["model"])),
        None if routing.get("reason") is None else str(routing["reason"]),
        int(usage.get("input_tokens", 0)),
        bool(usage.get("truncated", False)),
        None if usage.get("windows") is None else int(usage["windows"]),
    )


def _notes(rows: Sequence[tuple[Any, ...]]) -> pa.Array[Any]:
    fields: Any = list(_LAYA)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    return pa.StructArray.from_arrays([pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)], fields=fields)


def _input_table(records: Sequence[Record], columns: InputColumns) -> pa.Table:
    schema = pa.schema(list(columns.types.items()))
    tables = [schema.empty_table()]
    # Neighbours in one batch are one slice of it: the difference between their places in both stays the same.
    for _, group in groupby(enumerate(records), lambda pair: pair[1].row and (id(pair[1].row[0]), pair[1].row[1] - pair[0])):
        run = [record for _, record in group]
        first = run[0].row
        if not columns.types:
            tables.append(pa.table({"": pa.nulls(len(run))}).select([]))
            continue
        arrays = _parsed(run, columns) if first is None else _kept(first[0].slice(first[1], len(run)), columns)
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables)


def _parsed(records: Sequence[Record], columns: InputColumns) -> list[Any]:
    arrays: list[Any] = []
    for name, kind in columns.types.items():
        values = [record.columns.get(name) for record in records]
        if name in columns.as_json:
            values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        elif pa.types.is_floating(kind):
            values = [None if value is None else float(value) for value in values]
        arrays.append(pa.array(values, kind))
    return arrays


def _kept(batch: pa.RecordBatch, columns: InputColumns) -> list[Any]:
    arrays: list[Any] = []
    types: Mapping[str, Any] = columns.types
    for name, kind in types.items():
        array: Any = batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, kind)
        arrays.append(array if array.type == kind else array.cast(kind))
    return arrays
