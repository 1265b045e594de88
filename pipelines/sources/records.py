"""Records: the rows of the input as Python values, or the reason why one cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.errors import InputError, RecordError, first_line
from pipelines.sources.arrow_values import python_values
from pipelines.sources.csv_rows import csv_rows
from pipelines.sources.fragments import Fragment
from pipelines.sources.input_files import Partitions
from pipelines.sources.lines import Lines, Row, json_rows, text_rows
from pipelines.sources.parquet_files import open_parquet, row_batches
from pipelines.sources.streams import open_text
from pipelines.storage import name_of


@dataclass(slots=True)
class Record:
    """One row of the input.

    Attributes:
        file: What messages call its file.
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


def read(fragment: Fragment, wanted: Collection[str] | None = None, kept: Collection[str] | None = None) -> Iterator[Record]:
    """Reads a fragment as a stream. Every record comes out once and in order, one that cannot be read as a Record with a ``problem``.

    Args:
        fragment: What to read.
        wanted: Of Parquet, turn these columns only into Python values (it takes time); None turns all.
        kept: Of Parquet, columns that ``row`` must hold; None holds all. Others that are not wanted either are not even read.

    Raises:
        InputError: The file is not what was cut any more, or it is damaged.
    """
    return _read_parquet(fragment, wanted, kept) if fragment.format == "parquet" else _read_text(fragment)


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
        return _Unreadable(first_line(error))


def _read_parquet(fragment: Fragment, wanted: Collection[str] | None, kept: Collection[str] | None) -> Iterator[Record]:
    columns = None if wanted is None or kept is None else {*wanted, *kept}
    number = fragment.first_record
    with open_parquet(fragment.path) as file:
        try:
            for batch in row_batches(file, fragment.start, fragment.stop, columns):
                yield from records_of(_with_folders(batch, fragment.partitions), _name(fragment), number, wanted)
                number += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{fragment.path}: damaged after row {number - 1}: {first_line(error)}") from error
    if number != fragment.first_record + fragment.rows:
        raise _changed(fragment)


def _with_folders(batch: pa.RecordBatch, partitions: Partitions) -> pa.RecordBatch:
    for name, value in partitions:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
    return batch


def _read_text(fragment: Fragment) -> Iterator[Record]:
    name = _name(fragment)
    with open_text(fragment.path, fragment.compression, fragment.start) as file:
        lines = Lines(file, fragment.start, fragment.first_record, fragment.stop)
        for row in _rows(fragment, lines):
            if isinstance(row.value, ValueError):
                record = Record(name, row.number, {})
                record.problem = RecordError(f"{record.where}: {row.value}")
                yield record
                continue
            for column, value in fragment.partitions:
                row.value.setdefault(column, value)
            yield Record(name, row.number, row.value)
    if lines.offset != fragment.stop:
        raise _changed(fragment)


def _rows(fragment: Fragment, lines: Lines) -> Iterator[Row]:
    if fragment.format == "csv":
        return csv_rows(lines, fragment.header)
    return json_rows(lines) if fragment.format == "jsonl" else text_rows(lines)


def _name(fragment: Fragment) -> str:
    return fragment.name or name_of(fragment.path)


def _changed(fragment: Fragment) -> InputError:
    return InputError(f"{fragment.path}: changed while it was being read; start again with a new output folder")
