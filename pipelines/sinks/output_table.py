"""Answered records as Arrow: the schema of the output, and its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from laya.questions import Question
from pipelines.errors import InputError, first_line
from pipelines.sources.columns import InputColumns
from pipelines.sources.records import Record

Outcome = Mapping[str, Any] | BaseException
"""What became of a record: the result of a Router, or the error."""

LAYA_COLUMN = "laya"
LONGEST_MESSAGE = 2000
"""Characters of an error's message that are kept."""

_LAYA = pa.struct(
    [
        ("run_id", pa.string()),
        ("model", pa.string()),
        ("reason", pa.string()),
        ("tokens", pa.int64()),
        ("truncated", pa.bool_()),
        ("windows", pa.int32()),
        ("error", pa.struct([("class", pa.string()), ("message", pa.string())])),
    ]
)


def output_schema(columns: InputColumns, questions: Sequence[Question]) -> pa.Schema:
    """The schema of the output. It depends on nothing but the input columns and the questions.

    First the input columns. Then for each question, under its id: the label of a choice (as text), the expected level of a score or the
    probability of yes of a noul; ``<id>_confidence``, the calibrated probability of the top answer; and ``<id>_probabilities`` of a
    choice and a score, a struct with one field a label or level. Last ``laya``, a struct that says how the row was answered or why not.

    Raises:
        InputError: Two of these columns would have one name, or two labels of a choice are written alike.
    """
    fields = [(pa.field(name, kind), "a column of the input") for name, kind in columns.types.items()]
    for question in questions:
        fields += [(field, f"an answer to question {question.qid!r}") for field in _answer_fields(question)]
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
    questions: Sequence[Question],
) -> pa.Table:
    """Writes answered records as rows, one for each and in order.

    Args:
        records: What was read. The columns of one that could not be read are null.
        outcomes: What became of each. An error leaves the answers null and stands in ``laya.error``, as does a result that a hook made and
            that does not hold answers of the right kind.
        run_ids: The run id of each.
        columns: The input columns.
        questions: The questions.

    Returns:
        A table with the schema of `output_schema`.

    Raises:
        ValueError: The three sequences differ in length.
    """
    schema = output_schema(columns, questions)
    answers: list[list[Any]] = []
    notes: list[dict[str, Any]] = []
    for _, outcome, run_id in zip(records, outcomes, run_ids, strict=True):
        values, note = _answered(questions, outcome)
        answers.append(values)
        notes.append({"run_id": run_id, **note})
    inputs = _input_table(records, columns)
    given = len(columns.types)
    arrays: list[Any] = [inputs.column(index) for index in range(given)]
    arrays += [
        pa.array([values[index] for values in answers], schema.field(given + index).type) for index in range(len(schema) - given - 1)
    ]
    arrays.append(pa.array(notes, _LAYA))
    return pa.Table.from_arrays(arrays, schema=schema)


def _answer_fields(question: Question) -> list[pa.Field[Any]]:
    name = str(question.qid)
    answer = pa.field(name, pa.string() if question.type == "choice" else pa.float64())
    fields: list[pa.Field[Any]] = [answer, pa.field(f"{name}_confidence", pa.float64())]
    if question.type == "noul":
        return fields
    options = [str(label) for label in question.labels] if question.type == "choice" else [str(level) for level in range(question.n)]
    for index, option in enumerate(options):
        if option in options[:index]:
            raise InputError(f"question {question.qid!r}: two labels are written {option!r} in the output; rename one of them")
    return [*fields, pa.field(f"{name}_probabilities", pa.struct([(option, pa.float64()) for option in options]))]


def _answered(questions: Sequence[Question], outcome: Outcome) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(outcome, BaseException):
        try:
            values = [value for question in questions for value in _answer_values(question, outcome["answers"][question.qid])]
            return values, _note(outcome)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            outcome = ValueError(f"the result does not hold what an answer must: {type(error).__name__}: {error}")
    nothing = [None for question in questions for _ in _answer_fields(question)]
    message = first_line(outcome)[:LONGEST_MESSAGE].encode(errors="replace").decode()
    return nothing, {"error": {"class": type(outcome).__name__, "message": message}}


def _answer_values(question: Question, answer: Mapping[str, Any]) -> list[Any]:
    decision = answer[question.type]
    values = [str(decision) if question.type == "choice" else float(decision), float(answer["answer_confidence"])]
    if question.type == "noul":
        return values
    return [*values, {str(label): float(share) for label, share in answer["probabilities"].items()}]


def _note(result: Mapping[str, Any]) -> dict[str, Any]:
    routing: Mapping[str, Any] = result.get("routing") or {}
    usage: Mapping[str, Any] = result.get("usage") or {}
    return {
        "model": str(routing.get("model", result["model"])),
        "reason": None if routing.get("reason") is None else str(routing["reason"]),
        "tokens": int(usage.get("input_tokens", 0)),
        "truncated": bool(usage.get("truncated", False)),
        "windows": None if usage.get("windows") is None else int(usage["windows"]),
    }


def _input_table(records: Sequence[Record], columns: InputColumns) -> pa.Table:
    schema = pa.schema(list(columns.types.items()))
    tables = [schema.empty_table()]
    # Neighbours in one batch are one slice of it: the difference between their places in both stays the same.
    for _, group in groupby(enumerate(records), lambda pair: pair[1].row and (id(pair[1].row[0]), pair[1].row[1] - pair[0])):
        run = [record for _, record in group]
        first = run[0].row
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
