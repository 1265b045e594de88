"""Cutting the input into fragments: the pieces that are scored, committed and repeated as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pipelines.sources.csv_rows import csv_header, csv_rows
from pipelines.sources.inputs import Format, InputFile, skip_bom
from pipelines.sources.parquet_files import open_parquet

Span = tuple[int, int, int, int]
"""Number of the first record, start, stop and count of the records of a piece that is not cut further."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of one file.

    Attributes:
        index: Its place in the whole input, from 0.
        path: The file.
        format: Its format.
        start: First byte; of Parquet, the first row group.
        stop: The byte, or the row group, after the last.
        first_record: Number of its first record in the file, from 1: the line on which it starts; of Parquet, the row.
        rows: How many records it holds, those that cannot be parsed included.
    """

    index: int
    path: str
    format: Format
    start: int
    stop: int
    first_record: int
    rows: int


def cut(files: Sequence[InputFile], rows_per_fragment: int = 2000) -> list[Fragment]:
    """Cuts files at record boundaries; the same files are always cut in the same places.

    A record of JSONL ends with a line feed alone, whatever else is in it; one of CSV with a line feed outside quotes. Blank lines are no
    records. Files are read as streams, so one record has to fit in memory, not a file. Parquet is cut between row groups only.

    Args:
        files: What `find_inputs` found.
        rows_per_fragment: So many records go into a fragment; a row group that holds more is a fragment of its own.

    Raises:
        InputError: A file cannot be opened as what its extension says, or two of its columns have one name.
        ValueError: ``rows_per_fragment`` is less than 1.
    """
    if rows_per_fragment < 1:
        raise ValueError(f"rows_per_fragment must be at least 1, not {rows_per_fragment}")
    indices = count()
    return [
        Fragment(next(indices), file.path, file.format, start, stop, number, rows)
        for file in files
        for number, start, stop, rows in _join(_spans(file), rows_per_fragment)
    ]


def _spans(file: InputFile) -> Iterator[Span]:
    if file.format == "parquet":
        return _row_groups(file.path)
    return _csv_records(file.path) if file.format == "csv" else _jsonl_records(file.path)


def _join(spans: Iterable[Span], limit: int) -> Iterator[Span]:
    first = start = stop = total = 0
    for number, begin, end, rows in spans:
        if total and total + rows > limit:
            yield first, start, stop, total
            total = 0
        if not total:
            first, start = number, begin
        stop = end
        total += rows
    if total:
        yield first, start, stop, total


def _jsonl_records(path: str) -> Iterator[Span]:
    with Path(path).open("rb") as file:
        start = skip_bom(file)
        for number, line in enumerate(file, 1):
            stop = start + len(line)
            if not line.isspace():
                yield number, start, stop, 1
            start = stop


def _csv_records(path: str) -> Iterator[Span]:
    csv_header(path)
    rows = csv_rows(path)
    next(rows, None)
    for row in rows:
        yield row.number, row.start, row.stop, 1


def _row_groups(path: str) -> Iterator[Span]:
    with open_parquet(path) as file:
        first = 1
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield first, group, group + 1, rows
            first += rows
