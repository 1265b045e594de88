"""Folders of hostile files: nothing is lost, nothing is altered, and every refusal says where."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laya.states import serialize
from pipelines.errors import InputError, RecordError
from pipelines.sources import Record, find_inputs, read, state_of, survey
from tests.pipelines.source_files import UTF8_BOM, column_types, comparable, records, write, write_parquet

BEYOND = 2**53 + 1
LONG = "é" * 1_500_000
STATES: list[Any] = [
    "00123",
    "2026-01-05",
    {"subject": "refund", "n": 12},
    {"body": "van late", "n": 12.5},
    {"n": 3, "subject": "torn box"},
    [{"role": "user", "content": "hi"}, {"role": "agent", "content": "yes", "name": "Ann"}],
    {"ref": 1},
    {"ref": "1", "null": None, "": BEYOND},
    "one\u2028two\x85three\u2029four\ufeff",
    LONG,
    "nul \x00 and 😀",
]
BROKEN = {
    b'{"id": 1, "text": NaN}': "not valid JSON: NaN is not a JSON number; write null or a string",
    b'{"id": 1, "text": -Infinity}': "not valid JSON: -Infinity is not a JSON number; write null or a string",
    b'{"id": 1, "text": "\\ud83d"}': "an escape such as \\ud83d stands for half a character; write both halves, or the character itself",
    b'{"id": 1, "text": "caf\xe9"}': "not valid UTF-8: byte 0xe9 at byte 23; convert the file to UTF-8",
    b'{"id": 1, "text": "\xed\xa0\xbd"}': "not valid UTF-8: byte 0xed at byte 20; convert the file to UTF-8",
    b'{"id": 1, "id": 2}': 'not valid JSON: key "id" is there twice in one object; rename one of them',
    b'{"id": 1, "text": "cut': "not valid JSON: Invalid control character at at character 23",
    b"[]": "a record must be a JSON object, not a list",
}


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good lines, blank lines and broken lines by turns."""
    lines: list[bytes] = []
    for index, state in enumerate(STATES):
        lines.append(json.dumps({"id": BEYOND + index, "text": state}, ensure_ascii=False).encode())
        lines.append(b" \t" if index % 2 else b"")
    lines += BROKEN
    return write(tmp_path_factory.mktemp("hostile") / "hostile.jsonl", UTF8_BOM + b"\r\n".join(lines))


@pytest.fixture(scope="module")
def folder(jsonl: Path) -> Path:
    """Everything that can be scored in one run."""
    root = jsonl.parent
    write(root / "packed.jsonl.gz", gzip.compress(jsonl.read_bytes()))
    write(
        root / "hostile.csv",
        UTF8_BOM
        + b'id,text\r\n9007199254740993,"quoted\r\n""new"" line,\n"\r\n\r\nNA,null\r\n,\r\n"",""\r\n00123,caf\xe9\r\n7,van\x00late\r\n'
        b'8,a,b\r\n9\r\n10,5" pipe\r\n11,"x"y\r\n12,\xed\xa0\xbd\r\n13,"' + LONG.encode() + b'"\r\n14,"never closed\r\n15,z',
    )
    write(root / "hostile.txt", UTF8_BOM + "one\r\n \n00123\nx\u2028y\n".encode() + b"caf\xe9\nlast")
    for name in ("empty.jsonl", "empty.csv", "empty.txt", "empty.csv.gz"):
        write(root / name, b"")
    write(root / "blank.jsonl", b"\r\n\n  \n")
    write(root / "bom.csv", UTF8_BOM)
    write(root / "header.csv", "text,note\n")
    write(root / "_laya" / "old.jsonl", "{")
    write(root / ".hidden.csv", "a,a\n")
    return root


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_every_record_of_the_folder_comes_once_and_in_order(folder: Path, rows: int) -> None:
    found = survey(find_inputs([str(folder)]), rows)
    parts = [list(read(fragment)) for fragment in found.fragments]
    assert [len(part) for part in parts] == [fragment.rows for fragment in found.fragments]
    everything = [record for part in parts for record in part]
    assert [comparable(record) for record in everything] == [comparable(record) for record in records(folder, 10**6)]
    counts: dict[str, int] = {}
    for record in everything:
        counts[record.file] = counts.get(record.file, 0) + 1
    jsonl_rows = len(STATES) + len(BROKEN)
    assert counts == {"hostile.csv": 13, "hostile.jsonl": jsonl_rows, "hostile.txt": 5, "packed.jsonl.gz": jsonl_rows}


def test_its_columns_hold_whatever_is_in_them(folder: Path) -> None:
    assert column_types(folder) == {"id": "json", "text": "json", "note": "string"}


def test_the_states_of_jsonl_are_those_that_were_written(jsonl: Path, folder: Path) -> None:
    for path in (jsonl, folder / "packed.jsonl.gz"):
        good = records(path)[: len(STATES)]
        assert [serialize(state_of(record, ("text",))) for record in good] == [serialize(state) for state in STATES]
        assert [record.columns["id"] for record in good] == [BEYOND + index for index in range(len(STATES))]
        assert [record.number for record in good] == list(range(1, 2 * len(STATES), 2))


def test_every_broken_line_of_jsonl_is_named_with_its_reason(jsonl: Path) -> None:
    broken = records(jsonl)[len(STATES) :]
    first = 2 * len(STATES) + 1
    assert [str(record.problem) for record in broken] == [
        f"hostile.jsonl line {first + index}: {reason}" for index, reason in enumerate(BROKEN.values())
    ]


def test_csv_is_text_as_it_is_written(folder: Path) -> None:
    assert [told(record) for record in records(folder / "hostile.csv")] == [
        (2, ("9007199254740993", 'quoted\r\n"new" line,\n')),
        (6, ("NA", "null")),
        (7, ("", "")),
        (8, ("", "")),
        (9, "not valid UTF-8: byte 0xe9; convert the file to UTF-8"),
        (10, ("7", "van\x00late")),
        (11, "the header has 2 cells, this row 3; quote cells that hold commas or line ends"),
        (12, "the header has 2 cells, this row 1; quote cells that hold commas or line ends"),
        (13, ("10", '5" pipe')),
        (14, "not valid CSV: ',' expected after '\"'"),
        (15, "not valid UTF-8: byte 0xed; convert the file to UTF-8"),
        (16, ("13", LONG)),
        (17, "not valid CSV: unexpected end of data"),
    ]


def test_text_is_text_as_it_is_written(folder: Path) -> None:
    assert [told(record) for record in records(folder / "hostile.txt")] == [
        (1, ("one",)),
        (3, ("00123",)),
        (4, ("x\u2028y",)),
        (5, "not valid UTF-8: byte 0xe9 at byte 4; convert the file to UTF-8"),
        (6, ("last",)),
    ]


def told(record: Record) -> tuple[int, Any]:
    if record.problem is None:
        return record.number, tuple(record.columns.values())
    prefix = f"{record.where}: "
    assert str(record.problem).startswith(prefix)
    return record.number, str(record.problem).removeprefix(prefix)


def test_parquet_keeps_nulls_nan_large_ints_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    no_text = pa.Array.from_buffers(
        pa.string(), 4, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\5\0\0\0\6\0\0\0\6\0\0\0"), pa.py_buffer(b"ok\xed\xa0\xbd\xff")]
    )
    table = pa.table({"id": [BEYOND, 2**63 - 1, None, -(2**63)], "text": no_text, "x": [math.nan, math.inf, None, 0.5]})
    write_parquet(tmp_path / "b.parquet", table)
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema):
        pass
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 0
    assert column_types(tmp_path) == {"id": "int64", "text": "string", "x": "double"}
    found = records(tmp_path, 1)
    assert [record.columns["id"] for record in found] == table["id"].to_pylist()
    rows = [pa.table(record.row[0].slice(record.row[1], 1)) for record in found if record.row]
    kept = pa.concat_tables(rows).combine_chunks()
    # Arrow's own comparison, bytes and all; NaN is compared apart, as it equals nothing.
    assert kept.drop_columns(["x"]).equals(table.drop_columns(["x"]))
    assert str(kept["x"].to_pylist()) == str(table["x"].to_pylist())
    assert [refused(record, "text") for record in found] == [
        None,
        "b.parquet row 2: `text` cannot be read: 'utf-8' codec can't decode byte 0xed in position 0: invalid continuation byte",
        "b.parquet row 3: `text` cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "b.parquet row 4: `text` is empty",
    ]
    numbers = [next(iter(read(fragment, ["x"]))) for fragment in survey(find_inputs([str(tmp_path)]), 1).fragments]
    assert [refused(record, "x") for record in numbers] == [
        "b.parquet row 1: `x` is nan, which JSON has no number for; write null or text",
        "b.parquet row 2: `x` is inf, which JSON has no number for; write null or text",
        "b.parquet row 3: `x` is null",
        None,
    ]


def refused(record: Record, column: str) -> str | None:
    try:
        state_of(record, (column,))
    except RecordError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("twice.csv", b"id,text,text\n1,a,b\n", "two columns are named `text`; rename one of them"),
        ("latin.csv", b"id,caf\xe9\n", " line 1: the header is not UTF-8; convert the file to UTF-8"),
        ("quote.csv", b'\n"id"x\n', " line 2: the header is not valid CSV: ',' expected after '\"'"),
        ("wide.csv", "id,text\n1,a\n".encode("utf-16"), "is UTF-16 or UTF-32 text; convert the file to UTF-8"),
        ("wide.jsonl", '{"a": 1}\n'.encode("utf-16"), "is UTF-16 or UTF-32 text; convert the file to UTF-8"),
        ("cut.jsonl.gz", gzip.compress(b'{"a": 1}\n')[:-4], "cannot be read as gzip: Truncated compressed stream"),
        ("plain.csv.zst", b"id,text\n", "cannot be read as zstd: "),
        ("fake.parquet", b"id,text\n1,a\n", "cannot be read as Parquet: "),
        ("empty.parquet", b"", "cannot be read as Parquet: "),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_survey_and_is_named(
    folder: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError) as caught:
        survey(find_inputs([str(folder), str(tmp_path)]))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_that_do_not_go_together_are_named_with_both_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", pa.table({"id": [1], "text": ["x"]}))
    write_parquet(tmp_path / "b.parquet", pa.table({"id": ["1"], "text": ["x"]}))
    with pytest.raises(InputError, match=r"column `id` is int64 in .*a\.parquet but string in .*b\.parquet"):
        survey(find_inputs([str(tmp_path)]))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    write_parquet(tmp_path / "b.parquet", twice)
    with pytest.raises(InputError, match=r"b\.parquet: two columns are named `id`"):
        survey(find_inputs([str(tmp_path)]))
