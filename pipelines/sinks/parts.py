"""Part files: the output of one fragment, there as a whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

UNFINISHED = "_unfinished-"
"""How the names of files begin that are being written; readers of data sets skip names that start with "_"."""

_PART = re.compile(r"part-(\d{5,})\.parquet")
_GROUP_ROWS = 10_000
_GROUP_BYTES = 64 * 2**20


def write_part(
    folder: str | Path,
    fragment_index: int,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    footer: Callable[[], Mapping[str, str]] = dict,
) -> int:
    """Writes the part file of a fragment. It appears under its name when it is complete; one that is there already is replaced.

    Args:
        folder: The output folder.
        fragment_index: Number of the fragment.
        tables: Its rows, in order; they are written as they come.
        schema: Their schema; a part without rows has it too.
        footer: Called after the last row; what it returns stands in the file's key-value metadata.

    Returns:
        How many rows were written.

    Raises:
        OSError: It cannot be written. Whatever is raised here or while the tables are made, nothing is left behind.
    """
    rows = 0
    target = Path(folder) / part_name(fragment_index)
    with atomic_path(target) as path, pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(tables):
            writer.write_table(group)
            rows += group.num_rows
        writer.add_key_value_metadata(dict(footer()))
    return rows


def part_name(fragment_index: int) -> str:
    """The file name of a fragment's part."""
    return f"part-{fragment_index:05}.parquet"


def part_notes(folder: str | Path, fragment_index: int) -> dict[str, str] | None:
    """What `write_part` was given as a footer; None where the part is not there or is damaged."""
    try:
        metadata = pq.read_metadata(Path(folder) / part_name(fragment_index)).metadata or {}
    except (OSError, pa.ArrowException):
        return None
    return {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"}


def committed_parts(folder: str | Path) -> set[int]:
    """The fragments whose part files are there."""
    found = (_PART.fullmatch(path.name) for path in Path(folder).iterdir())
    return {int(match[1]) for match in found if match is not None}


def remove_unfinished(folder: str | Path) -> int:
    """Removes what killed writers left; only for a folder that nobody else writes to now. Returns how many files there were."""
    left = list(Path(folder).glob(f"{UNFINISHED}*"))
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path to write to; the file is moved to the target when the body is done, and removed when it fails.

    Raises:
        OSError: The file cannot be written or moved.
    """
    path = target.with_name(f"{UNFINISHED}{uuid4().hex[:12]}-{target.name}")
    try:
        yield path
        _sync(path)
        path.replace(target)
        _sync(target.parent)
    finally:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
