"""Part files: the output of one fragment, there as a whole or not at all."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from laya.questions import Question
from pipelines.sinks.answer_columns import ANSWERS_COLUMN, abstain_columns
from pipelines.sinks.folder import corner
from pipelines.sinks.json_rows import json_lines
from pipelines.storage import UNFINISHED, delete, is_remote, join, list_folder, make_folder, put_file, read_bytes, write_bytes

PartFormat = Literal["parquet", "jsonl"]


@dataclass(frozen=True, slots=True)
class Aside:
    """Where rows are put aside for people to review.

    Attributes:
        folder: The folder of the copies.
        questions: The questions of all rows; None where each has its own.
    """

    folder: str
    questions: Sequence[Question] | None


_NOTES = re.compile(r"part-(\d{5,})\.json")
_GROUP_ROWS = 10_000
_GROUP_BYTES = 64 * 2**20
_READERS = 16


def write_part(
    folder: str,
    index: int,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    part_format: PartFormat,
    notes: Callable[[], Mapping[str, Any]] = dict,
    aside: Aside | None = None,
) -> int:
    """Writes the part file of a fragment. It appears under its name when it is complete; one that is there already is replaced.

    The order decides what a run that was killed leaves: first the copies of rows that are put aside, then the notes, which say how many
    bytes the part has, last the part. A part without notes, or of another size than they say, is not there (`committed_parts`), and its
    fragment is scored again.

    Args:
        folder: The output folder.
        index: Number of the fragment.
        tables: Its rows, in order; they are written as they come.
        schema: Their schema; a part without rows has it too.
        part_format: How it is written.
        notes: Called after the last row; what it returns is kept beside the part, with its ``index``, ``rows`` and ``size``.
        aside: Where to put copies of the rows of which an answer is less sure than it must be.

    Returns:
        How many rows were written.

    Raises:
        OSError: It cannot be written. Whatever is raised here or while the tables are made, the part is not there.
    """
    with ExitStack() as opened:
        part = opened.enter_context(_unfinished(folder, schema, part_format))
        unsure = None if aside is None else opened.enter_context(_unfinished(aside.folder, schema, part_format))
        for group in _groups(tables):
            part.write(group)
            if unsure is not None and aside is not None:
                unsure.write(abstaining(group, aside.questions))
        content = {**notes(), "index": index, "rows": part.rows, "size": part.finish()}
        if unsure is not None and aside is not None:
            content["aside_size"] = _put(unsure, aside.folder, index, part_format)
        write_bytes(corner(folder, f"part-{index:05}.json"), json.dumps(content, ensure_ascii=False).encode())
        put_file(part.path, join(folder, part_name(index, part_format)))
    return part.rows


def part_name(index: int, part_format: PartFormat = "parquet") -> str:
    """The file name of a fragment's part."""
    return f"part-{index:05}.{part_format}"


def part_notes(folder: str, indices: Iterable[int]) -> dict[int, dict[str, Any]]:
    """What is noted of parts, by the number of the fragment; one whose notes cannot be read is left out."""

    def read(index: int) -> dict[str, Any] | None:
        try:
            notes = json.loads(read_bytes(corner(folder, f"part-{index:05}.json")))
        except (OSError, ValueError):
            return None
        return notes if isinstance(notes, dict) else None

    wanted = list(indices)
    with ThreadPoolExecutor(_READERS) as pool:
        return {index: notes for index, notes in zip(wanted, pool.map(read, wanted), strict=True) if notes is not None}


def committed_notes(folder: str, part_format: PartFormat, aside: str | None = None) -> dict[int, dict[str, Any]]:
    """What is noted of the parts whose files are there as they were written, by the number of the fragment, in order.

    Args:
        folder: The output folder.
        part_format: How its parts are written.
        aside: The folder of the copies, which must be as they were written too; None does not look at them.
    """
    sizes = list_folder(folder)
    noted = sorted(int(match[1]) for match in map(_NOTES.fullmatch, list_folder(corner(folder))) if match is not None)
    present = [index for index in noted if part_name(index, part_format) in sizes]
    notes = part_notes(folder, present)
    copies = {} if aside is None else list_folder(aside)

    def stands(index: int, told: Mapping[str, Any]) -> bool:
        name = part_name(index, part_format)
        return told.get("size") == sizes[name] and (aside is None or told.get("aside_size") == copies.get(name, 0))

    return {index: told for index, told in notes.items() if stands(index, told)}


def committed_parts(folder: str, part_format: PartFormat) -> set[int]:
    """The fragments whose part files are there as they were written."""
    return set(committed_notes(folder, part_format))


def abstaining(table: pa.Table, questions: Sequence[Question] | None) -> pa.Table:
    """The rows of an output table of which an answer is less sure than it must be.

    Args:
        table: Rows of `output_rows`.
        questions: Their questions; None where each row has its own.
    """
    unsure: Any = pa.nulls(table.num_rows, pa.bool_()).fill_null(False)
    for name in abstain_columns(questions):
        unsure = pc.or_(unsure, pc.fill_null(table.column(name), False))
    if questions is None:
        rows = table.column(ANSWERS_COLUMN).to_pylist()
        unsure = pa.array([any(answer["abstain"] for answer in row or ()) for row in rows], pa.bool_())
    return table.filter(unsure)


class _Writer(Protocol):
    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _JsonWriter:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")

    def write(self, table: pa.Table) -> None:
        self._file.write(json_lines(table))

    def close(self) -> None:
        self._file.close()


class _Unfinished:
    """A part file that is being written, on this machine."""

    def __init__(self, path: Path, schema: pa.Schema, part_format: PartFormat) -> None:
        self.path = path
        self.rows = 0
        self._writer: _Writer = pq.ParquetWriter(path, schema, compression="zstd") if part_format == "parquet" else _JsonWriter(path)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._writer.write(table)
            self.rows += table.num_rows

    def finish(self) -> int:
        """Closes the file and returns its size in bytes."""
        self._writer.close()
        return self.path.stat().st_size


@contextmanager
def _unfinished(folder: str, schema: pa.Schema, part_format: PartFormat) -> Iterator[_Unfinished]:
    """A part file to write to, which is removed if it has not been moved to its place."""
    if not is_remote(folder):
        make_folder(corner(folder))
    # The same file system where the output is a folder here, so that moving it is one step.
    here = tempfile.gettempdir() if is_remote(folder) else corner(folder)
    path = Path(here) / f"{UNFINISHED}{uuid4().hex[:12]}"
    part = _Unfinished(path, schema, part_format)
    try:
        yield part
    finally:
        part.finish() if path.exists() else None
        path.unlink(missing_ok=True)


def _put(part: _Unfinished, folder: str, index: int, part_format: PartFormat) -> int:
    """Puts copies in their place, of which there is no file where there are none, and returns its size."""
    target = join(folder, part_name(index, part_format))
    size = part.finish()
    if part.rows:
        put_file(part.path, target)
        return size
    delete(target)  # of an earlier try, which cannot have had rows either; but a copy must never be more than the part
    return 0


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Joins small tables, so that a row group holds more than a batch."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)
