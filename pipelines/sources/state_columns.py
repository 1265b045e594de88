"""The state of a record: which of its columns the questions are about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pipelines.errors import InputError, RecordError
from pipelines.sources.json_text import json_name, parse_json
from pipelines.sources.records import Record

USUAL_NAMES = ("state", "text", "body", "message", "content")
"""Columns that are taken for the state where none is named, the first that there is."""


def state_of(record: Record, state_columns: tuple[str, ...], as_json: bool = False) -> Any:
    """The state of a record: the value of its state column as it is, or a dict of several in the order given.

    Args:
        record: What was read.
        state_columns: The columns that the questions are about.
        as_json: Whether the (one) column holds JSON text, to be read as an object, list or string. What is an object or list already, as in
            JSONL, is taken as it is.

    Raises:
        RecordError: The record could not be read; its state is null, missing or empty (with several columns: all of them are; text that
            is only white space is empty); it is not valid JSON text; or it holds what JSON cannot: binary that is not UTF-8, NaN, infinity.
    """
    if record.problem is not None:
        raise record.problem
    values = {name: record.columns.get(name) for name in state_columns}
    for name, value in values.items():
        if (unfit := _unfit(value)) is not None:
            raise RecordError(f"{record.where}: `{name}`{unfit}")
    if as_json:
        values = {name: _parsed(record, name, value) for name, value in values.items()}
    if all(map(_is_empty, values.values())):
        names = ", ".join(f"`{name}` is {_emptiness(record, name)}" for name in state_columns)
        raise RecordError(f"{record.where}: {names}")
    return values if len(values) > 1 else values[state_columns[0]]


def default_state_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The state column where none is named: the first of `USUAL_NAMES` that the input has.

    Raises:
        InputError: It has none of them.
    """
    for name in USUAL_NAMES:
        if name in columns:
            return (name,)
    raise InputError(f"no column is named {', '.join(USUAL_NAMES)}; pass --state with one or more of {_listed(columns)}")


def check_state_columns(state_columns: Sequence[str], columns: Sequence[str], as_json: bool = False) -> None:
    """Checks that the input has the state columns.

    Raises:
        InputError: There is none, one is unknown, one is given twice, or there are several of JSON text.
    """
    if not state_columns:
        raise InputError(f"no state column; pass --state with one or more of {_listed(columns)}")
    for index, name in enumerate(state_columns):
        if name not in columns:
            close = " or ".join(f"`{match}`" for match in get_close_matches(name, columns))
            hint = f" Did you mean {close}?" if close else ""
            raise InputError(f"no column is named `{name}`; the columns are {_listed(columns)}.{hint}")
        if name in state_columns[:index]:
            raise InputError(f"state column `{name}` is given twice")
    if as_json and len(state_columns) > 1:
        raise InputError(f"a state of JSON text is one column, not {_listed(state_columns)}; name the one that holds the JSON")


def _parsed(record: Record, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        if value is None or isinstance(value, dict | list):
            return value
        raise RecordError(f"{record.where}: `{name}` must hold JSON text, not {json_name(value)}")
    if not value or value.isspace():
        return value
    try:
        parsed = parse_json(value)
    except ValueError as error:
        raise RecordError(f"{record.where}: `{name}`: {error}") from None
    if not isinstance(parsed, dict | list | str):
        raise RecordError(f"{record.where}: `{name}` must hold a JSON object, list or string, not {json_name(parsed)}")
    return parsed


def _unfit(value: Any) -> str | None:
    """Why JSON cannot hold a value, if so: Arrow data can hold more."""
    if isinstance(value, bytes):
        return " is binary and not valid UTF-8"
    if isinstance(value, float) and not math.isfinite(value):
        return f" is {value}, which JSON has no number for; write null or text"
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for where, part in parts:
            if (unfit := _unfit(part)) is not None:
                return f"[{where!r}]{unfit}"
    return None


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and value.isspace())


def _emptiness(record: Record, name: str) -> str:
    if name not in record.columns:
        return "missing"
    return "null" if record.columns[name] is None else "empty"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns) if columns else "(there are none)"
