"""Parquet files: their footers, and ranges of their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import InputError, first_line
from pipelines.sources.input_files import check_distinct
from pipelines.storage import is_remote, located

_BATCH_ROWS = 256
_BATCH_BYTES = 8 * 2**20
_BUFFER_BYTES = 2**20
_REMOTE_BUFFER_BYTES = 8 * 2**20


@contextmanager
def open_parquet(path: str) -> Iterator[pq.ParquetFile]:
    """Opens a file for the duration of a block.

    Raises:
        InputError: It cannot be opened, is not a Parquet file, or two of its columns have one name.
    """
    filesystem, key = located(path) if is_remote(path) else (None, path)
    buffer = _BUFFER_BYTES if filesystem is None else _REMOTE_BUFFER_BYTES
    try:
        # Read through a small buffer: a row group may be larger than memory.
        opened = pq.ParquetFile(key, filesystem=filesystem, buffer_size=buffer, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {first_line(error)}") from error
    with opened as file:
        check_distinct(path, tuple(file.schema_arrow.names))
        yield file


def group_rows(file: pq.ParquetFile) -> list[int]:
    """How many rows each of the row groups holds."""
    metadata = file.metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def row_batches(file: pq.ParquetFile, start: int, stop: int, columns: Collection[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows from ``start`` to before ``stop``, in batches of bounded size; only what is needed is read.

    Args:
        file: The file.
        start: The first row, from 0.
        stop: The row behind the last.
        columns: The columns that are read; None reads all.
    """
    names = [name for name in file.schema_arrow.names if columns is None or name in columns]
    first = 0
    for group, rows in enumerate(group_rows(file)):
        begin, end = max(start - first, 0), min(stop - first, rows)
        if begin < end:
            yield from _group_batches(file, group, begin, end, names)
        first += rows


def _group_batches(file: pq.ParquetFile, group: int, start: int, stop: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    metadata = file.metadata.row_group(group)
    row_bytes = max(1, metadata.total_byte_size // metadata.num_rows)
    batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    position = 0
    batches: Iterator[Any] = file.iter_batches(batch_rows, row_groups=[group], columns=names, use_threads=False)
    for batch in batches:
        begin, end = max(start - position, 0), min(stop - position, batch.num_rows)
        position += batch.num_rows
        if begin < end:
            # A column's name may also be the path of another one's part, so that more may have been read than was asked for.
            yield batch.select(names).slice(begin, end - begin)
        if position >= stop:
            return
