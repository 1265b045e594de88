"""CSV rows with the bytes and the lines that they stand on; the cutter and the reader use the same, so they always agree."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipelines.errors import InputError
from pipelines.sources.inputs import check_distinct, skip_bom

CELL_LIMIT = 64 * 2**20
"""Longest cell in bytes: what a quote that is never closed may hold in memory before its row is given up."""


class CsvRow(NamedTuple):
    """One row.

    Attributes:
        number: The line on which it starts.
        start: Its first byte.
        stop: The byte after its last.
        cells: Its cells as Latin-1, that is one character a byte (see `cell_text`), or why it is not valid CSV.
    """

    number: int
    start: int
    stop: int
    cells: list[str] | csv.Error


class _Lines:
    """Hands out lines that end in a line feed, and knows how far it got."""

    def __init__(self, file: BinaryIO, start: int, stop: int | None) -> None:
        self._file = file
        self._stop = stop
        self.offset = start

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline() if self._stop is None or self.offset < self._stop else b""
        if not line:
            raise StopIteration
        self.offset += len(line)
        # One character a byte: UTF-8 leaves quotes, commas and line ends alone, and a wrong byte spoils its own row only.
        return line.decode("latin-1")


def csv_rows(path: str, start: int = 0, stop: int | None = None, number: int = 1) -> Iterator[CsvRow]:
    """Reads rows; blank lines are none. A row that is not valid CSV ends with the line on which that showed.

    Args:
        path: The file.
        start: Where a row starts; 0 also skips a byte-order mark.
        stop: Where to end; None reads to the end of the file.
        number: The line that starts at ``start``.
    """
    if csv.field_size_limit() < CELL_LIMIT:
        csv.field_size_limit(CELL_LIMIT)
    with Path(path).open("rb") as file:
        lines = _Lines(file, file.seek(start) if start else skip_bom(file), stop)
        reader = csv.reader(lines, strict=True)
        while True:
            begin, line = lines.offset, number + reader.line_num
            cells: list[str] | csv.Error
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                cells = error
            if cells != []:
                yield CsvRow(line, begin, lines.offset, cells)


def cell_text(cell: str) -> str:
    """The text of a cell.

    Raises:
        UnicodeDecodeError: It is not UTF-8.
    """
    return cell if cell.isascii() else cell.encode("latin-1").decode()


def reason(error: csv.Error) -> str:
    """Why a row is not valid CSV, without the csv module's advice to programmers."""
    return str(error).partition(" - ")[0]


def csv_header(path: str) -> tuple[str, ...]:
    """The column names of a file; none where it holds nothing.

    Raises:
        InputError: The first row is not valid CSV or not UTF-8, or two columns have one name.
    """
    first = next(csv_rows(path), None)
    if first is None:
        return ()
    if isinstance(first.cells, csv.Error):
        raise InputError(f"{path} line {first.number}: the header is not valid CSV: {reason(first.cells)}")
    try:
        names = tuple(map(cell_text, first.cells))
    except UnicodeDecodeError:
        raise InputError(f"{path} line {first.number}: the header is not UTF-8; convert the file to UTF-8") from None
    check_distinct(path, names)
    return names
