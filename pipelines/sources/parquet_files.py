"""Opening Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import InputError, first_line
from pipelines.sources.inputs import check_distinct


def open_parquet(path: str) -> pq.ParquetFile:
    """Opens a file; use it in a ``with`` statement.

    Raises:
        InputError: It is not a Parquet file, or two of its columns have one name.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {first_line(error)}") from error
    try:
        check_distinct(path, tuple(file.schema_arrow.names))
    except InputError:
        file.close()
        raise
    return file
