"""CSV rows with the bytes and the lines that they stand on."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from pipelines.errors import InputError
from pipelines.sources.input_files import check_distinct
from pipelines.sources.lines import Lines, Row

CELL_LIMIT = 64 * 2**20
"""Longest cell in bytes: what a quote that is never closed may hold in memory before its row is given up."""


class _Cells:
    """Rows as cells of Latin-1, that is one character a byte, from wherever the lines stand.

    UTF-8 leaves quotes, commas and line ends alone, so that a wrong byte spoils its own row only.
    """

    def __init__(self, lines: Lines) -> None:
        if csv.field_size_limit() < CELL_LIMIT:
            csv.field_size_limit(CELL_LIMIT)
        self._lines = lines
        self._first: bytes | None = None
        self._reader = csv.reader(self, strict=True)

    def __iter__(self) -> _Cells:
        return self

    def __next__(self) -> str:
        line, self._first = self._first, None
        if line is None:
            line = self._lines.take()
        if not line:
            raise StopIteration
        return line.decode("latin-1")

    def take(self, first: bytes | None = None) -> list[str] | ValueError | None:
        """The cells of the next row (none of a blank line), or why it is not valid CSV; None at the end.

        Args:
            first: The row's first line, if that has been taken already.
        """
        self._first = first
        try:
            return next(self._reader, None)
        except csv.Error as error:
            return ValueError(f"not valid CSV: {str(error).partition(' - ')[0]}")
        except ValueError as error:
            return error


def csv_header(path: str, lines: Lines) -> tuple[str, ...]:
    """The column names of a file whose lines are at the start; none where it holds nothing.

    Raises:
        InputError: The first row is not valid CSV or not UTF-8, or two columns have one name.
    """
    source = _Cells(lines)
    cells: list[str] | ValueError | None = []
    while cells == []:
        number = lines.number
        cells = source.take()
    if cells is None:
        return ()
    if isinstance(cells, ValueError):
        raise InputError(f"{path} line {number}: the header is {cells!s}")
    try:
        names = tuple(map(_text, cells))
    except UnicodeDecodeError:
        raise InputError(f"{path} line {number}: the header is not UTF-8; convert the file to UTF-8") from None
    check_distinct(path, names)
    return names


def csv_rows(lines: Lines, header: tuple[str, ...]) -> Iterator[Row]:
    """The rows below a header; blank lines are none. One that is not valid CSV ends with the line on which that showed."""
    source = _Cells(lines)
    while True:
        number, start = lines.number, lines.offset
        cells = source.take()
        if cells is None:
            return
        if cells != []:
            yield Row(number, start, lines.offset, cells if isinstance(cells, ValueError) else _columns(cells, header))


def csv_spans(lines: Lines) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each of the rows that `csv_rows` would give, without looking into them where that can be helped."""
    source = _Cells(lines)
    while True:
        number, start = lines.number, lines.offset
        try:
            line = lines.take()
        except ValueError:
            yield number, start, lines.offset
            continue
        if not line:
            return
        # Only a quote can make a row longer than its line, and only line ends make none.
        if source.take(line) != [] if b'"' in line else line.strip(b"\r\n"):
            yield number, start, lines.offset


def _columns(cells: list[str], header: tuple[str, ...]) -> dict[str, str] | ValueError:
    if len(cells) != len(header):
        return ValueError(f"the header has {len(header)} cells, this row {len(cells)}; quote cells that hold commas or line ends")
    try:
        return dict(zip(header, map(_text, cells), strict=True))
    except UnicodeDecodeError as error:
        return ValueError(f"not valid UTF-8: byte 0x{error.object[error.start]:02x}; convert the file to UTF-8")


def _text(cell: str) -> str:
    return cell if cell.isascii() else cell.encode("latin-1").decode()
