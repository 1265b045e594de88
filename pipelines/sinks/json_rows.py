"""Rows of the output as JSON lines."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any

import pyarrow as pa

from pipelines.errors import InputError, first_line
from pipelines.sources.arrow_values import python_values


def json_lines(table: pa.Table) -> bytes:
    """One JSON object a row, in UTF-8, each with every column.

    Times become ISO 8601 text, as `python_values` writes them; what JSON has no number for (NaN, infinities) becomes null, and binary that
    is not UTF-8 becomes base64.
    """
    if not table.num_rows:
        return b""
    columns = [_values(name, table.column(name).combine_chunks()) for name in table.schema.names]
    rows = (dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True))
    return "".join(f"{_line(row)}\n" for row in rows).encode()


def _values(name: str, column: pa.Array[Any]) -> list[Any]:
    try:
        return python_values(column)
    except ValueError as error:
        reason = f"column `{name}` holds what JSON cannot ({first_line(error)})"
        raise InputError(f"{reason}; write Parquet, or leave it out with --columns") from error


def _line(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError):
        return json.dumps(_plain(row), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
