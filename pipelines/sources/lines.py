"""Lines of a stream, with the bytes that they stand on; the survey and the reader use the same, so they always agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from pipelines.sources.json_text import not_utf8, parse_object

LINE_LIMIT = 64 * 2**20
"""Longest line in bytes: what a file without line ends may hold in memory before it is given up."""

TEXT_COLUMN = "text"
"""The column that the lines of a text file make."""


class Row(NamedTuple):
    """One record of a text format.

    Attributes:
        number: The line on which it starts.
        start: Its first byte.
        stop: The byte after its last.
        value: Its columns, or why it cannot be read.
    """

    number: int
    start: int
    stop: int
    value: dict[str, Any] | ValueError


class Lines:
    """Hands out lines, which a line feed alone ends, and knows how far it got.

    Args:
        file: Stands at the start of a line.
        start: The byte at which it stands.
        number: The number of that line.
        stop: Where to end: no line is begun at this byte or behind it. None reads to the end of the file.
    """

    def __init__(self, file: BinaryIO, start: int, number: int = 1, stop: int | None = None) -> None:
        self._file = file
        self._stop = stop
        self.offset = start
        self.number = number

    def take(self) -> bytes:
        """The next line with its end; nothing at the end.

        Raises:
            ValueError: The line is longer than `LINE_LIMIT`; it is passed over.
        """
        if self._stop is not None and self.offset >= self._stop:
            return b""
        line = self._file.readline(LINE_LIMIT)
        if line:
            self.number += 1
            self.offset += len(line)
            if len(line) >= LINE_LIMIT and not line.endswith(b"\n"):
                self.finish()
                raise ValueError(f"the line is longer than {LINE_LIMIT:,} bytes")
        return line

    def finish(self) -> None:
        """Passes over the rest of a line in whose middle the file stands."""
        while more := self._file.readline(LINE_LIMIT):
            self.offset += len(more)
            if more.endswith(b"\n"):
                return


def json_rows(lines: Lines) -> Iterator[Row]:
    """The records of JSONL; blank lines are none."""
    return _rows(lines, parse_object)


def text_rows(lines: Lines) -> Iterator[Row]:
    """The records of a text file, one a line; blank lines are none."""
    return _rows(lines, _parse_text)


def _rows(lines: Lines, parse: Callable[[bytes], dict[str, Any]]) -> Iterator[Row]:
    while True:
        number, start = lines.number, lines.offset
        value: dict[str, Any] | ValueError
        try:
            line = lines.take()
            if not line:
                return
            if line.isspace():
                continue
            value = parse(line)
        except ValueError as error:
            value = error
        yield Row(number, start, lines.offset, value)


def _parse_text(line: bytes) -> dict[str, Any]:
    try:
        return {TEXT_COLUMN: line.removesuffix(b"\n").removesuffix(b"\r").decode()}
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
