"""Records: the rows of the input as Python values, or the reason why one cannot be read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.errors import InputError, RecordError, first_line
from pipelines.sources.arrow_values import python_values
from pipelines.sources.csv_rows import CsvRow, cell_text, csv_header, csv_rows, reason
from pipelines.sources.fragments import Fragment
from pipelines.sources.parquet_files import open_parquet

MAX_DEPTH = 200
"""Objects and lists inside one another in a JSON record."""

_BATCH_ROWS = 1024
_JSON_NAMES = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


@dataclass(slots=True)
class Record:
    """One row of the input.

    Attributes:
        file: Name of its file, for messages.
        number: The line on which it starts; of Arrow data, its row. From 1.
        columns: Its values as they were written.
        problem: Why it could not be read; it has no columns then.
        row: Where Arrow data holds it, so that it can be written out again as it was.
    """

    file: str
    number: int
    columns: dict[str, Any]
    problem: RecordError | None = None
    row: tuple[pa.RecordBatch, int] | None = None

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file} {'line' if self.row is None else 'row'} {self.number}"


def read(fragment: Fragment, wanted: Collection[str] | None = None) -> Iterator[Record]:
    """Reads a fragment as a stream. Every record comes out once and in order, one that cannot be read as a Record with a ``problem``.

    Args:
        fragment: What to read.
        wanted: Of Parquet, turn these columns only into Python values (it takes time); None turns all.

    Raises:
        InputError: The file is not what was cut any more, or a Parquet file is damaged.
    """
    if fragment.format == "parquet":
        return _read_parquet(fragment, wanted)
    return _read_csv(fragment) if fragment.format == "csv" else _read_jsonl(fragment)


def records_of(batch: pa.RecordBatch, file: str = "batch", first: int = 1, wanted: Collection[str] | None = None) -> Iterator[Record]:
    """The rows of Arrow data as records.

    Args:
        batch: The data.
        file: What to call it in messages.
        first: Number of its first row.
        wanted: The columns to turn into Python values; None turns all.
    """
    names = [name for name in batch.schema.names if wanted is None or name in wanted]
    lists = [_values(batch.column(name)) for name in names]
    for index in range(batch.num_rows):
        columns = {name: values[index] for name, values in zip(names, lists, strict=True)}
        record = Record(file, first + index, columns, row=(batch, index))
        for name, value in columns.items():
            if isinstance(value, _Unreadable):
                record.problem = RecordError(f"{record.where}: `{name}` cannot be read: {value.reason}")
        yield record


@dataclass(frozen=True, slots=True)
class _Unreadable:
    reason: str


def _values(column: pa.Array[Any]) -> list[Any]:
    try:
        return python_values(column)
    except (ValueError, TypeError):
        return [_value(column.slice(index, 1)) for index in range(len(column))]


def _value(one: pa.Array[Any]) -> Any:
    try:
        return python_values(one)[0]
    except (ValueError, TypeError) as error:
        return _Unreadable(str(error).partition("\n")[0])


def _read_parquet(fragment: Fragment, wanted: Collection[str] | None) -> Iterator[Record]:
    number = fragment.first_record
    with open_parquet(fragment.path) as file:
        try:
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=list(range(fragment.start, fragment.stop))):
                yield from records_of(batch, Path(fragment.path).name, number, wanted)
                number += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{fragment.path}: damaged after row {number - 1}: {first_line(error)}") from error


def _read_csv(fragment: Fragment) -> Iterator[Record]:
    header = csv_header(fragment.path)
    name = Path(fragment.path).name
    stop = fragment.start
    for row in csv_rows(fragment.path, fragment.start, fragment.stop, fragment.first_record):
        stop = row.stop
        try:
            yield Record(name, row.number, _cells(row, header))
        except ValueError as error:
            yield _unreadable(name, row.number, error)
    _check_end(fragment, stop)


def _cells(row: CsvRow, header: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(row.cells, csv.Error):
        raise ValueError(f"not valid CSV: {reason(row.cells)}")
    if len(row.cells) != len(header):
        raise ValueError(f"the header has {len(header)} cells, this row {len(row.cells)}; quote cells that hold commas or line ends")
    try:
        return dict(zip(header, map(cell_text, row.cells), strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid UTF-8: byte 0x{error.object[error.start]:02x}; convert the file to UTF-8") from None


def _read_jsonl(fragment: Fragment) -> Iterator[Record]:
    name = Path(fragment.path).name
    stop = fragment.start
    with Path(fragment.path).open("rb") as file:
        file.seek(stop)
        for number, line in enumerate(file, fragment.first_record):
            stop += len(line)
            if not line.isspace():
                try:
                    yield Record(name, number, parse_object(line))
                except ValueError as error:
                    yield _unreadable(name, number, error)
            if stop >= fragment.stop:
                break
    _check_end(fragment, stop)


def _unreadable(name: str, number: int, error: ValueError) -> Record:
    record = Record(name, number, {})
    record.problem = RecordError(f"{record.where}: {error}")
    return record


def _check_end(fragment: Fragment, stop: int) -> None:
    if stop != fragment.stop:
        raise InputError(f"{fragment.path}: changed while it was being read; start again with a new output folder")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; write null or a string")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:20]} is too large; write it as a string")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def parse_object(line: bytes) -> dict[str, Any]:
    """Parses one line of JSONL. Of two equal keys the last wins.

    Raises:
        ValueError: It is not UTF-8, not JSON (NaN and infinities included) or not an object, is nested too deeply, or holds half of a
            surrogate pair, which no file can hold.
    """
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1}; convert the file to UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a record must be a JSON object, not {_JSON_NAMES[type(value)]}")
    # Both checks look at few lines closely: deep nesting takes many brackets, and half a pair can only be written as an escape.
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if (b"\\ud" in line or b"\\uD" in line) and _has_half_pair(value):
        raise ValueError("an escape such as \\ud83d stands for half a character; write both halves, or the character itself")
    return value


def _is_too_deep(value: dict[str, Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        parts = (part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer))
        level = [part for part in parts if isinstance(part, dict | list)]
    return bool(level)


def _has_half_pair(value: dict[str, Any]) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
