"""Fragments: the pieces that are scored, committed and repeated as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.sources.input_files import Compression, Format, InputFile, Partitions

FRAGMENT_BYTES = 32 * 2**20
"""Text that goes into a fragment at most, if it is more than one record: memory is bounded by a fragment, however long its rows are."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of one file.

    Attributes:
        index: Its place in the whole input, from 0.
        path: The file: a path or URI.
        format: Its format.
        start: First byte of the (decompressed) text; of Parquet, the first row, from 0.
        stop: The byte, or the row, after the last.
        first_record: Number of its first record in the file, from 1: the line on which it starts; of Parquet, the row.
        rows: How many records it holds, those that cannot be parsed included.
        compression: How the file is compressed, if it is.
        partitions: Columns that the names of its folders give.
        header: Of CSV, the columns of the file.
        name: What messages call the file.
    """

    index: int
    path: str
    format: Format
    start: int
    stop: int
    first_record: int
    rows: int
    compression: Compression | None = None
    partitions: Partitions = ()
    header: tuple[str, ...] = ()
    name: str = ""


class Span(NamedTuple):
    """Records of a file that follow on one another.

    Attributes:
        number: Number of the first.
        start: Where it starts, in bytes or rows.
        stop: Where the last ends.
        rows: How many they are.
    """

    number: int
    start: int
    stop: int
    rows: int


def join_spans(spans: Iterable[tuple[int, int, int, int]], limit: int, width: int | None = None) -> Iterator[Span]:
    """Joins neighbours as long as they are together not more than so many records, and not wider than so many bytes (None: any)."""
    first = start = stop = total = 0
    for number, begin, end, rows in spans:
        if total and (total + rows > limit or (width is not None and end - start > width)):
            yield Span(first, start, stop, total)
            total = 0
        if not total:
            first, start = number, begin
        stop = end
        total += rows
    if total:
        yield Span(first, start, stop, total)


def cut_rows(groups: Iterable[int], limit: int) -> Iterator[Span]:
    """Cuts row groups of so many rows each: those that are larger than a fragment are cut, those that are smaller are joined."""

    def pieces() -> Iterator[Span]:
        first = 0
        for rows in groups:
            for start in range(first, first + rows, limit):
                stop = min(start + limit, first + rows)
                yield Span(start + 1, start, stop, stop - start)
            first += rows

    return join_spans(pieces(), limit)


def fragment_of(index: int, file: InputFile, span: Span, header: tuple[str, ...]) -> Fragment:
    """The fragment that a span of a file makes."""
    return Fragment(
        index=index,
        path=file.path,
        format=file.format,
        start=span.start,
        stop=span.stop,
        first_record=span.number,
        rows=span.rows,
        compression=file.compression,
        partitions=file.partitions,
        header=header,
        name=file.name,
    )
