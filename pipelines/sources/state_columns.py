"""The state of a record: which of its columns the questions are about."""

from __future__ import annotations

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
        record: The record.
        state_columns: Its state columns.
        as_json: Whether the one state column holds JSON text: keys keep their order, and whole numbers are exact.

    Raises:
        RecordError: The record could not be read; its state is null, missing or empty (with several columns: all of them are; text that
            is only white space is empty); it is binary that is not UTF-8; or not the JSON text of an object, a list or a string.
    """
    if record.problem is not None:
        raise record.problem
    values = {name: record.columns.get(name) for name in state_columns}
    if all(map(_is_empty, values.values())):
        names = ", ".join(f"`{name}` is {_emptiness(record, name)}" for name in state_columns)
        raise RecordError(f"{record.where}: {names}")
    for name, value in values.items():
        if isinstance(value, bytes):
            raise RecordError(f"{record.where}: `{name}` is binary and not valid UTF-8")
    if len(values) > 1:
        return values
    value = values[state_columns[0]]
    return _parsed(record, state_columns[0], value) if as_json else value


def _parsed(record: Record, name: str, value: Any) -> Any:
    if isinstance(value, dict | list):  # JSONL may hold the object itself
        return value
    try:
        state = parse_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise RecordError(f"{record.where}: `{name}`: {error}") from None
    if not isinstance(state, dict | list | str):
        raise RecordError(f"{record.where}: `{name}` must be JSON text of an object, a list or a string, not {json_name(state)}")
    if _is_empty(state):
        raise RecordError(f"{record.where}: `{name}` is empty")
    return state


def default_state_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The state column where none is named: the first of `USUAL_NAMES` that the input has.

    Raises:
        InputError: It has none of them.
    """
    for name in USUAL_NAMES:
        if name in columns:
            return (name,)
    raise InputError(f"no column is named {', '.join(USUAL_NAMES)}; pass --state with one or more of {_listed(columns)}")


def check_state_columns(state_columns: Sequence[str], columns: Sequence[str]) -> None:
    """Checks that the input has the state columns.

    Raises:
        InputError: There is none, one is unknown, or one is given twice.
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


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and value.isspace())


def _emptiness(record: Record, name: str) -> str:
    if name not in record.columns:
        return "missing"
    return "null" if record.columns[name] is None else "empty"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns) if columns else "(there are none)"
