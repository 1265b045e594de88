"""The survey of the input: one pass over each file that cuts it into fragments and finds out its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from pipelines.sources.columns import TEXT, InputColumns, Kinds, decide_columns, note_kinds, plain_types
from pipelines.sources.csv_rows import csv_header, csv_spans
from pipelines.sources.fragments import FRAGMENT_BYTES, Fragment, Span, cut_rows, fragment_of, join_spans
from pipelines.sources.input_files import InputFile
from pipelines.sources.lines import TEXT_COLUMN, Lines, json_rows, text_rows
from pipelines.sources.parquet_files import group_rows, open_parquet
from pipelines.sources.streams import open_text, skip_bom

PIECE_BYTES = 64 * 2**20
"""Large files whose records are lines are surveyed in pieces of about this size. A fragment ends where a piece does, so that the same
files are always cut in the same places."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the input holds.

    Attributes:
        fragments: The input, cut.
        columns: Its columns.
    """

    fragments: list[Fragment]
    columns: InputColumns


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or the lines of one that begin in a range of its bytes."""

    file: InputFile
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class PieceSurvey:
    """What a piece holds; lines are numbered from its start.

    Attributes:
        file: The file.
        is_first: Whether it is the first of its file.
        lines: How many lines it has.
        spans: Its fragments.
        kinds: What it says about its columns.
        header: Of CSV, the columns.
    """

    file: InputFile
    is_first: bool
    lines: int
    spans: tuple[Span, ...]
    kinds: Kinds
    header: tuple[str, ...] = ()


def survey(files: Sequence[InputFile], rows_per_fragment: int = 2000, run: Callable[..., Iterable[Any]] = map) -> Survey:
    """Cuts files at record boundaries and decides their columns; the same files are always cut in the same places.

    A record of JSONL and text ends with a line feed alone, whatever else is in it; one of CSV with a line feed outside quotes. Blank lines
    are no records. Every byte of text formats is read once, as a stream, so one record has to fit in memory, not a file; JSONL is parsed
    for it. Of Parquet only the footers are read.

    Args:
        files: What `find_inputs` found.
        rows_per_fragment: So many records at most go into a fragment.
        run: Applies a function to pieces of the input and gives the results in their order, as ``map`` does. Function, pieces and results
            pickle.

    Raises:
        InputError: A file cannot be read to its end as what its extension says, two of its columns have one name, or columns of different
            files do not go together.
        ValueError: ``rows_per_fragment`` is less than 1.
    """
    if rows_per_fragment < 1:
        raise ValueError(f"rows_per_fragment must be at least 1, not {rows_per_fragment}")
    fragments: list[Fragment] = []
    kinds: list[Kinds] = []
    lines = 0
    for piece in run(partial(survey_piece, rows_per_fragment=rows_per_fragment), [piece for file in files for piece in _pieces(file)]):
        lines = 0 if piece.is_first else lines
        for span in piece.spans:
            placed = span._replace(number=span.number + lines)
            fragments.append(fragment_of(len(fragments), piece.file, placed, piece.header))
        lines += piece.lines
        kinds.append(piece.kinds)
    return Survey(fragments, decide_columns(kinds))


def survey_piece(piece: Piece, rows_per_fragment: int) -> PieceSurvey:
    """Surveys one piece.

    Raises:
        InputError: See `survey`.
    """
    file = piece.file
    if file.format == "parquet":
        with open_parquet(file.path) as opened:
            schema, groups = plain_types(opened.schema_arrow), group_rows(opened)
        folders = {name: _text_bits(value) for name, value in file.partitions if name not in schema}
        return PieceSurvey(file, True, 0, tuple(cut_rows(groups, rows_per_fragment)), Kinds(folders, schema, file.path))
    with open_text(file.path, file.compression, max(0, piece.start - 1)) as stream:
        lines = Lines(stream, *_first_line(piece, stream), stop=piece.stop)
        if file.format == "csv":
            header = csv_header(file.path, lines)
            spans = tuple(
                join_spans(((number, start, stop, 1) for number, start, stop in csv_spans(lines)), rows_per_fragment, FRAGMENT_BYTES)
            )
            seen = dict.fromkeys(header, TEXT)
            seen.update({name: _text_bits(value) for name, value in file.partitions if name not in seen})
            return PieceSurvey(file, True, 0, spans, Kinds(seen), header)
        seen = {TEXT_COLUMN: TEXT} if file.format == "text" else {}
        spans = tuple(join_spans(_typed(lines, file, seen), rows_per_fragment, FRAGMENT_BYTES))
        return PieceSurvey(file, piece.start == 0, lines.number - 1, spans, Kinds(seen))


def _pieces(file: InputFile) -> Iterator[Piece]:
    if file.format not in ("jsonl", "text") or file.compression is not None or file.size <= PIECE_BYTES:
        yield Piece(file)
        return
    starts = range(0, file.size, PIECE_BYTES)
    yield from (Piece(file, start, start + PIECE_BYTES if start != starts[-1] else None) for start in starts)


def _first_line(piece: Piece, stream: BinaryIO) -> tuple[int, int]:
    """Where the first line of a piece starts, and its number there. The stream stands one byte before the piece."""
    if piece.start == 0:
        return skip_bom(piece.file.path, stream), 1
    lines = Lines(stream, piece.start - 1)
    lines.finish()
    return lines.offset, 1


def _typed(lines: Lines, file: InputFile, seen: dict[str, int]) -> Iterator[tuple[int, int, int, int]]:
    """The records of a piece one by one, noting what they say about columns."""
    for number, start, stop, row in json_rows(lines) if file.format == "jsonl" else text_rows(lines):
        if not isinstance(row, ValueError):
            for name, value in file.partitions:
                row.setdefault(name, value)
            note_kinds(seen, row)
        yield number, start, stop, 1


def _text_bits(value: str | None) -> int:
    return 0 if value is None else TEXT
