"""Input files for tests, and what the reading side makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.sources import Record, find_inputs, read, survey

UTF8_BOM = b"\xef\xbb\xbf"


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_jsonl(path: Path, *rows: Any) -> Path:
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_parquet(path: Path, table: pa.Table, row_group_size: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def records(path: Path | str, rows_per_fragment: int = 2000) -> list[Record]:
    return [record for fragment in survey(find_inputs([str(path)]), rows_per_fragment).fragments for record in read(fragment)]


def values(path: Path | str) -> list[dict[str, Any]]:
    found = records(path)
    assert [record.problem for record in found] == [None] * len(found)
    return [record.columns for record in found]


def problems(path: Path | str) -> list[str | None]:
    return [None if record.problem is None else str(record.problem) for record in records(path)]


def column_types(*paths: Path | str) -> dict[str, str]:
    columns = survey(find_inputs([str(path) for path in paths])).columns
    return {name: "json" if name in columns.as_json else str(kind) for name, kind in columns.types.items()}


def comparable(record: Record) -> tuple[int, dict[str, Any], str]:
    return record.number, record.columns, str(record.problem)
