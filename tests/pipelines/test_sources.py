"""The reading side: every record exactly once, as it was written, and one clear line about what is wrong."""

from __future__ import annotations

import csv
import json
import pickle
import uuid
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laya.states import serialize
from pipelines.errors import InputError, RecordError
from pipelines.sources import (
    Fragment,
    Record,
    check_state_columns,
    columns_of_schema,
    cut,
    default_state_columns,
    find_inputs,
    merge_kinds,
    read,
    read_columns,
    records_of,
    scan_fragment,
    state_of,
)

UTF8_BOM = b"\xef\xbb\xbf"


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_jsonl(path: Path, *rows: Any) -> Path:
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_parquet(path: Path, table: pa.Table, row_group_size: int | None = None) -> Path:
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def records(path: Path, rows_per_fragment: int = 2000) -> list[Record]:
    return [record for fragment in cut(find_inputs([str(path)]), rows_per_fragment) for record in read(fragment)]


def values(path: Path) -> list[dict[str, Any]]:
    found = records(path)
    assert [record.problem for record in found] == [None] * len(found)
    return [record.columns for record in found]


def problems(path: Path) -> list[str | None]:
    return [None if record.problem is None else str(record.problem) for record in records(path)]


def column_types(*paths: Path) -> dict[str, str]:
    columns = read_columns(find_inputs([str(path) for path in paths]))
    return {name: "json" if name in columns.as_json else str(kind) for name, kind in columns.types.items()}


class TestFindInputs:
    def test_a_folder_gives_its_data_files_by_path_without_hidden_and_private_ones(self, tmp_path):
        for name in (
            "b.csv",
            "a.jsonl",
            "sub/c.ndjson",
            "sub/d.PARQUET",
            "_laya_manifest.jsonl",
            ".x.csv",
            "_old/e.csv",
            ".git/f.csv",
            "readme.md",
        ):
            write(tmp_path / name, "")
        found = find_inputs([str(tmp_path)])
        assert [(Path(file.path).relative_to(tmp_path).as_posix(), file.format) for file in found] == [
            ("a.jsonl", "jsonl"),
            ("b.csv", "csv"),
            ("sub/c.ndjson", "jsonl"),
            ("sub/d.PARQUET", "parquet"),
        ]

    def test_a_glob_is_sorted_and_each_file_comes_once(self, tmp_path):
        for name in ("x2.csv", "x1.csv", "deep/x3.csv", "_x0.csv"):
            write(tmp_path / name, "id\n")
        found = find_inputs([str(tmp_path / "x2.csv"), str(tmp_path / "**" / "*.csv"), str(tmp_path)])
        assert [Path(file.path).name for file in found] == ["x2.csv", "x3.csv", "x1.csv"]

    def test_a_name_with_glob_signs_that_exists_is_taken_literally(self, tmp_path):
        path = write(tmp_path / "a[1].csv", "id\n")
        assert [file.path for file in find_inputs([str(path)])] == [str(path)]

    def test_a_folder_named_like_a_file_is_a_folder(self, tmp_path):
        write(tmp_path / "table.parquet" / "p.csv", "id\n")
        write(tmp_path / "table.parquet" / "_SUCCESS", "")
        assert [Path(file.path).name for file in find_inputs([str(tmp_path / "*.parquet")])] == ["p.csv"]

    def test_paths_are_absolute_and_facts_are_the_files(self, tmp_path, monkeypatch):
        path = write(tmp_path / "a.csv", "id\n1\n")
        monkeypatch.chdir(tmp_path)
        (file,) = find_inputs(["a.csv"])
        assert (file.path, file.size, file.mtime_ns) == (str(path), 5, path.stat().st_mtime_ns)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("gone.csv", "gone.csv: not found"),
            ("*.csv", "*.csv: no file matches"),
            ("notes.txt", "notes.txt: unknown extension '.txt'; known are .csv, .jsonl, .ndjson, .parquet"),
            ("*.txt", "notes.txt: unknown extension '.txt'"),
            ("empty", "empty: no file in this folder ends in .csv"),
            ("broken.csv", "broken.csv: not found"),
            ("loop.csv", "loop.csv: "),
        ],
    )
    def test_what_is_wrong_is_one_line_that_names_it(self, tmp_path, given, message):
        write(tmp_path / "notes.txt", "")
        write(tmp_path / "empty" / "_part.csv", "")
        (tmp_path / "broken.csv").symlink_to(tmp_path / "nowhere.csv")
        (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
        if "*.csv" in given:
            (tmp_path / "broken.csv").unlink()
            (tmp_path / "loop.csv").unlink()
        with pytest.raises(InputError) as caught:
            find_inputs([str(tmp_path / given)])
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_an_unreadable_file_is_named(self, tmp_path, monkeypatch):
        path = write(tmp_path / "a.csv", "id\n")

        def refuse(*_args, **_kwargs):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match=r"a\.csv: cannot be read: Permission denied"):
            find_inputs([str(path)])

    def test_nothing_given(self):
        with pytest.raises(InputError, match="no input"):
            find_inputs([])


class TestJsonl:
    def test_only_a_line_feed_ends_a_record(self, tmp_path):
        text = "one\u2028two\u2029three\x85four"
        path = write(tmp_path / "a.jsonl", f'{{"text": "{text}"}}\r\n{{"text": "x\\u000by"}}\r\n{{"text": "last"}}')
        assert values(path) == [{"text": text}, {"text": "x\x0by"}, {"text": "last"}]

    def test_a_byte_order_mark_and_blank_lines_are_no_records_and_lines_are_counted(self, tmp_path):
        path = write(tmp_path / "a.jsonl", UTF8_BOM + b'\n{"n": 1}\r\n  \r\n\n{"n": 2}\n\n')
        assert [(record.number, record.columns) for record in records(path, 1)] == [(2, {"n": 1}), (5, {"n": 2})]
        assert [(f.first_record, f.rows) for f in cut(find_inputs([str(path)]), 1)] == [(2, 1), (5, 1)]

    def test_values_stay_as_they_were_written(self, tmp_path):
        rows: list[Any] = [
            {"state": {"subject": "refund", "n": 12}},
            {"state": {"body": "van late", "n": 12.5}},
            {"state": {"n": 3, "subject": "torn box"}},
            {"state": [{"role": "user", "content": "hi"}, {"role": "agent", "content": "yes", "name": "Ann"}]},
            {"state": "plain text", "x": None, "": True, "nul": "a\x00b"},
        ]
        path = write_jsonl(tmp_path / "a.jsonl", *rows)
        found = values(path)
        assert [serialize(row["state"]) for row in found] == [serialize(row["state"]) for row in rows]
        assert found[-1] == rows[-1]

    def test_the_last_of_two_equal_keys_wins(self, tmp_path):
        assert values(write(tmp_path / "a.jsonl", '{"a": 1, "b": 2, "a": 3}\n')) == [{"a": 3, "b": 2}]

    def test_a_record_of_three_megabytes(self, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", {"text": "é" * 1_500_000}, {"text": "next"})
        assert [len(row["text"]) for row in values(path)] == [1_500_000, 4]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b'{"a": 1', "not valid JSON: Expecting ',' delimiter at character "),
            (b'{"a": 1} {}', "not valid JSON: Extra data at character 10"),
            (b"[1]", "a record must be a JSON object, not a list"),
            (b'"x"', "a record must be a JSON object, not a string"),
            (b"null", "a record must be a JSON object, not null"),
            (b'{"a": NaN}', "not valid JSON: NaN is not a JSON number"),
            (b'{"a": -Infinity}', "not valid JSON: -Infinity is not a JSON number"),
            (b'{"a": 1e999}', "not valid JSON: the number 1e999 is too large"),
            (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
            (b'{"a": "caf\xe9"}', "not valid UTF-8: byte 0xe9 at byte 11; convert the file to UTF-8"),
            (b'{"a": "\xed\xa0\xbd"}', "not valid UTF-8: byte 0xed"),
            (b'{"a": "\\ud83d"}', "an escape such as \\ud83d stands for half a character"),
            (b'{"\\uD83D": 1}', "an escape such as \\ud83d stands for half a character"),
            (b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", "nested more than 200 levels deep"),
            (b'{"a": ' + b"[" * 100_000, "nested more than 200 levels deep"),
            ('{"a": 1}'.encode("utf-16"), "not valid UTF-8: byte 0xff"),
            (b'{"a": "x\x00y"}', "not valid JSON: Invalid control character at"),
        ],
    )
    def test_a_line_that_cannot_be_parsed_is_one_record_with_a_problem(self, tmp_path, line, reason):
        path = write(tmp_path / "tickets.jsonl", b'{"a": 0}\n' + line + b'\n{"a": 2}\n')
        found = records(path)
        broken = found[1]
        assert [record.columns for record in found] == [{"a": 0}, {}, {"a": 2}]
        assert isinstance(broken.problem, RecordError)
        assert str(broken.problem).startswith(f"tickets.jsonl line 2: {reason}")

    def test_an_escaped_pair_and_many_shallow_brackets_are_fine(self, tmp_path):
        path = write(tmp_path / "a.jsonl", '{"a": "\\ud83d\\ude00", "b": ' + json.dumps([[]] * 500) + "}\n")
        assert values(path) == [{"a": "😀", "b": [[]] * 500}]

    def test_a_file_that_changed_since_it_was_cut_is_refused(self, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", {"a": 1}, {"a": 2})
        (fragment,) = cut(find_inputs([str(path)]))
        write_jsonl(path, {"a": 1})
        with pytest.raises(InputError, match=r"a\.jsonl: changed while it was being read"):
            list(read(fragment))


class TestCsv:
    def test_text_stays_as_it_is_written(self, tmp_path):
        path = write(tmp_path / "a.csv", 'id,text\n00123,NA\n2,null\n3,None\n4,nan\n5,\n6,""\n7,2026-01-05\n8, x \n')
        assert [tuple(row.values()) for row in values(path)] == [
            ("00123", "NA"),
            ("2", "null"),
            ("3", "None"),
            ("4", "nan"),
            ("5", ""),
            ("6", ""),
            ("7", "2026-01-05"),
            ("8", " x "),
        ]

    def test_quotes_hold_commas_line_ends_and_quotes(self, tmp_path):
        path = write(tmp_path / "a.csv", UTF8_BOM + b'text,n\r\n"a,\r\n""b""\n\nc",1\r\n5" pipe,2\r\n\r\nlast,3')
        found = records(path, 1)
        assert [(record.number, record.columns) for record in found] == [
            (2, {"text": 'a,\r\n"b"\n\nc', "n": "1"}),
            (6, {"text": '5" pipe', "n": "2"}),
            (8, {"text": "last", "n": "3"}),
        ]
        assert [record.where for record in found] == ["a.csv line 2", "a.csv line 6", "a.csv line 8"]

    def test_nul_separators_and_long_cells_survive(self, tmp_path):
        long = "é" * 1_500_000
        path = write(tmp_path / "a.csv", f"text\nvan\x00late\none\u2028two\x85three\x0b\n{long}\n")
        assert [row["text"] for row in values(path)] == ["van\x00late", "one\u2028two\x85three\x0b", long]

    def test_rows_that_cannot_be_read_are_problems_of_their_own(self, tmp_path):
        path = write(tmp_path / "a.csv", b'id,text\n1,a,b\n2\n3,caf\xe9\n4,caf\xc3\xa9\n5,"x"y\n6,u\rv\n7,ok\n8,"never closed\n9,z\n')
        assert problems(path) == [
            "a.csv line 2: the header has 2 cells, this row 3; quote cells that hold commas or line ends",
            "a.csv line 3: the header has 2 cells, this row 1; quote cells that hold commas or line ends",
            "a.csv line 4: not valid UTF-8: byte 0xe9; convert the file to UTF-8",
            None,
            "a.csv line 6: not valid CSV: ',' expected after '\"'",
            "a.csv line 7: not valid CSV: new-line character seen in unquoted field",
            None,
            "a.csv line 9: not valid CSV: unexpected end of data",
        ]
        assert records(path)[3].columns == {"id": "4", "text": "café"}

    def test_a_quote_that_is_never_closed_is_given_up_at_a_limit(self, tmp_path, monkeypatch):
        limit = csv.field_size_limit(100)
        try:
            monkeypatch.setattr("pipelines.sources.csv_rows.CELL_LIMIT", 100)
            path = write(tmp_path / "a.csv", 'text\n"open\n' + "x" * 60 + "\n" + "y" * 60 + "\nfine\n")
            found = records(path, 1)
        finally:
            csv.field_size_limit(limit)
        assert str(found[0].problem) == "a.csv line 2: not valid CSV: field larger than field limit (100)"
        assert [record.columns for record in found[1:]] == [{"text": "fine"}]

    @pytest.mark.parametrize("open_file", [cut, read_columns])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"id,text,text\n1,a,b\n", "two columns are named `text`; rename one of them"),
            (b"id,caf\xe9\n", "line 1: the header is not UTF-8"),
            (b'\n"id"x,y\n', "line 2: the header is not valid CSV: ',' expected after '\"'"),
        ],
    )
    def test_a_header_that_cannot_be_used_is_refused_by_name(self, tmp_path, open_file, content, message):
        path = write(tmp_path / "a.csv", content)
        with pytest.raises(InputError) as caught:
            open_file(find_inputs([str(path)]))
        assert str(path) in str(caught.value)
        assert message in str(caught.value)

    @pytest.mark.parametrize("content", [b"", b"\n\r\n", UTF8_BOM])
    def test_an_empty_file_has_neither_fragments_nor_columns(self, tmp_path, content):
        path = write(tmp_path / "a.csv", content)
        assert cut(find_inputs([str(path)])) == []
        assert column_types(path) == {}

    def test_a_header_alone_still_has_columns(self, tmp_path):
        path = write(tmp_path / "a.csv", "id,text\n")
        assert cut(find_inputs([str(path)])) == []
        assert column_types(path) == {"id": "string", "text": "string"}


class TestParquet:
    def test_physical_types_are_plain_values(self, tmp_path):
        chat = [{"role": "user", "content": "hi"}, {"role": "agent", "content": None}]
        moment = datetime(2026, 1, 5, 10, 0)
        key = uuid.uuid4()
        table = pa.table(
            {
                "chat": pa.array([chat], pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
                "large": pa.array(["a"], pa.large_string()),
                "category": pa.array(["b"]).dictionary_encode(),
                "binary": pa.array(["é".encode()], pa.binary()),
                "image": pa.array([b"\xff\xd8"], pa.binary()),
                "attrs": pa.array([[("k", "v"), ("l", None)]], pa.map_(pa.string(), pa.string())),
                "doc": pa.array(
                    [{"amount": Decimal("12.50"), "at": moment, "tags": [b"x", b"\xff"]}],
                    pa.struct([("amount", pa.decimal128(9, 2)), ("at", pa.timestamp("ms")), ("tags", pa.large_list(pa.binary()))]),
                ),
                "at": pa.array([1_767_607_200_000_000_001], pa.timestamp("ns")),
                "zoned": pa.array([1_767_607_200_500_000], pa.timestamp("us", tz="Europe/Berlin")),
                "odd_zone": pa.array([0], pa.timestamp("s", tz="+02:00")),
                "far": pa.array([10**15], pa.timestamp("ms")),
                "day": pa.array([20_000], pa.int32()).cast(pa.date32()),
                "time": pa.array([3_600_000_001], pa.time64("us")),
                "wait": pa.array([-1500], pa.duration("ms")),
                "times": pa.array([{"m": [("a", [moment])]}], pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.timestamp("s"), 1)))])),
                "id": pa.array([key.bytes], pa.uuid()),
                "n": pa.array([7], pa.uint8()),
                "f": pa.array([0.5], pa.float32()),
                "ok": pa.array([True]),
                "none": pa.nulls(1),
            }
        )
        (record,) = records(write_parquet(tmp_path / "a.parquet", table))
        assert record.problem is None
        assert record.columns == {
            "chat": chat,
            "large": "a",
            "category": "b",
            "binary": "é",
            "image": b"\xff\xd8",
            "attrs": {"k": "v", "l": None},
            "doc": {"amount": "12.50", "at": "2026-01-05T10:00:00", "tags": ["x", b"\xff"]},
            "at": "2026-01-05T10:00:00.000000001",
            "zoned": "2026-01-05T11:00:00.500000+01:00",
            "odd_zone": "1970-01-01T02:00:00+02:00",
            "far": "1000000000000000 ms after 1970-01-01",
            "day": "2024-10-04",
            "time": "01:00:00.000001",
            "wait": "-PT1.500000S",
            "times": {"m": {"a": ["2026-01-05T10:00:00"]}},
            "id": str(key),
            "n": 7,
            "f": 0.5,
            "ok": True,
            "none": None,
        }
        assert type(record.columns["chat"]) is list
        assert record.where == "a.parquet row 1"

    def test_nulls_stay_nulls_in_every_type(self, tmp_path):
        kinds = [
            pa.list_(pa.timestamp("s")),
            pa.map_(pa.string(), pa.binary()),
            pa.struct([("d", pa.date32())]),
            pa.decimal128(5, 1),
            pa.timestamp("ns", tz="UTC"),
            pa.dictionary(pa.int8(), pa.string()),
        ]
        table = pa.table({str(index): pa.array([None, None], kind) for index, kind in enumerate(kinds)})
        assert values(write_parquet(tmp_path / "a.parquet", table)) == [dict.fromkeys(map(str, range(len(kinds))))] * 2

    def test_fragments_are_whole_row_groups(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": list(range(100))}), row_group_size=10)
        fragments = cut(find_inputs([str(path)]), 25)
        assert [(f.start, f.stop, f.first_record, f.rows) for f in fragments] == [
            (0, 2, 1, 20),
            (2, 4, 21, 20),
            (4, 6, 41, 20),
            (6, 8, 61, 20),
            (8, 10, 81, 20),
        ]
        assert [(f.start, f.stop) for f in cut(find_inputs([str(path)]), 5)] == [(group, group + 1) for group in range(10)]
        assert [(record.number, record.columns["n"]) for record in records(path, 25)] == [(n + 1, n) for n in range(100)]

    def test_batches_inside_a_row_group_keep_numbers_and_order(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": list(range(3000))}))
        assert [(record.number, record.columns["n"]) for record in records(path)] == [(n + 1, n) for n in range(3000)]

    def test_only_wanted_columns_are_turned_into_python_values(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"text": ["a"], "vector": [[0.5]]}))
        (fragment,) = cut(find_inputs([str(path)]))
        (record,) = read(fragment, {"text"})
        assert record.columns == {"text": "a"}
        assert record.row is not None
        assert record.row[0].schema.names == ["text", "vector"]

    def test_no_rows_are_no_fragments_but_columns(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": pa.array([], pa.int16())}))
        assert cut(find_inputs([str(path)])) == []
        assert column_types(path) == {"n": "int16"}

    @pytest.mark.parametrize("open_file", [cut, read_columns])
    def test_duplicate_names_and_other_files_are_refused(self, tmp_path, open_file):
        twice = write_parquet(tmp_path / "twice.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
        with pytest.raises(InputError, match=r"twice\.parquet: two columns are named `a`"):
            open_file(find_inputs([str(twice)]))
        for content in (b"", b"id,text\n1,a\n"):
            with pytest.raises(InputError, match=r"fake\.parquet: cannot be read as Parquet: "):
                open_file(find_inputs([str(write(tmp_path / "fake.parquet", content))]))

    def test_damage_in_the_middle_names_the_file_and_the_row(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"t": [str(n) * 50 for n in range(2000)]}), row_group_size=1000)
        fragments = cut(find_inputs([str(path)]), 1000)
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 4000] = b"\xff" * 4000
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.parquet: damaged after row \d+: "):
            [record for fragment in fragments for record in read(fragment)]


class TestColumns:
    @pytest.mark.parametrize(
        ("column", "kind"),
        [
            (["a", None], "string"),
            ([True, None], "bool"),
            ([1, None, -(2**63), 2**63 - 1], "int64"),
            ([1, 0.5, None], "double"),
            ([0.5], "double"),
            ([2**53, 2**60, 0.5], "double"),
            ([2**70, 0.5], "double"),
            ([2**53 + 1, 0.5], "json"),
            ([2**63], "json"),
            ([10**400, 0.5], "json"),
            ([1, "1"], "json"),
            ([1, True], "json"),
            ([{"a": 1}], "json"),
            ([[1], None], "json"),
            (["text", {"body": "x"}, []], "json"),
            ([None, None], "string"),
        ],
    )
    def test_a_jsonl_column_has_the_type_that_holds_all_of_it(self, tmp_path, column, kind):
        for index, order in enumerate((column, column[::-1])):
            path = write_jsonl(tmp_path / f"{index}.jsonl", *({"c": value} for value in order))
            assert column_types(path) == {"c": kind}

    def test_columns_come_as_they_are_first_seen_over_all_files(self, tmp_path):
        first = write_jsonl(tmp_path / "a.jsonl", {"b": 1}, {"a": 2, "b": 1})
        second = write_jsonl(tmp_path / "b.jsonl", {"c": None, "a": "2"})
        assert list(column_types(first, second).items()) == [("b", "int64"), ("a", "json"), ("c", "string")]

    def test_parts_that_are_scanned_apart_say_the_same(self, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", *({"n": n if n % 7 else n + 0.5, f"x{n}": n} for n in range(50)))
        files = find_inputs([str(path)])
        kinds = [pickle.loads(pickle.dumps(scan_fragment(fragment))) for fragment in cut(files, 3)]
        assert read_columns(files, kinds) == read_columns(files)
        assert read_columns(files, [merge_kinds(kinds[:9]), merge_kinds(kinds[9:])]) == read_columns(files)

    def test_broken_lines_do_not_count(self, tmp_path):
        assert column_types(write(tmp_path / "a.jsonl", '{"n": 1}\n{"n": "x"\n{"n": 2}\n')) == {"n": "int64"}

    def test_csv_is_text_and_joins_jsonl_text(self, tmp_path):
        table = write(tmp_path / "a.csv", "id,text\n1,a\n")
        lines = write_jsonl(tmp_path / "b.jsonl", {"text": "b", "id": 2, "more": 0.5})
        assert column_types(table) == {"id": "string", "text": "string"}
        assert column_types(lines, table) == {"text": "string", "id": "json", "more": "double"}

    def test_parquet_keeps_its_types_whatever_the_order_of_columns(self, tmp_path):
        one = write_parquet(
            tmp_path / "a.parquet",
            pa.table({"t": pa.array(["x"]).dictionary_encode(), "d": pa.array([1], pa.int8()), "n": pa.nulls(1), "m": pa.nulls(1)}),
        )
        two = write_parquet(tmp_path / "b.parquet", pa.table({"d": pa.array([1], pa.int8()), "n": [0.5], "t": ["y"], "m": pa.nulls(1)}))
        assert list(column_types(one, two).items()) == [("t", "string"), ("d", "int8"), ("n", "double"), ("m", "string")]

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (pa.table({"a": ["x"]}), r"column `a` is int64 in .*one\.parquet but string in .*two\.parquet"),
            (pa.table({"a": [1], "b": [1]}), r"column `b` is in .*two\.parquet but not in .*one\.parquet"),
            (pa.table({"c": [1]}), r"column `a` is in .*one\.parquet but not in .*two\.parquet"),
        ],
    )
    def test_parquet_files_that_differ_are_both_named(self, tmp_path, other, message):
        one = write_parquet(tmp_path / "one.parquet", pa.table({"a": [1]}))
        two = write_parquet(tmp_path / "two.parquet", other)
        with pytest.raises(InputError, match=message):
            column_types(one, two)

    def test_parquet_and_text_files_share_columns_of_one_type_only(self, tmp_path):
        table = write_parquet(tmp_path / "a.parquet", pa.table({"n": [1], "text": ["x"]}))
        assert column_types(table, write_jsonl(tmp_path / "b.jsonl", {"n": 2, "text": None, "new": True})) == {
            "n": "int64",
            "text": "string",
            "new": "bool",
        }
        for row, kind in (({"n": "2"}, "string"), ({"text": ["x"]}, "mixed")):
            with pytest.raises(InputError, match=rf"is \w+ in .*a\.parquet but {kind} in the text files"):
                column_types(table, write_jsonl(tmp_path / "c.jsonl", row))

    def test_data_in_memory(self):
        schema = pa.schema([("a", pa.dictionary(pa.int8(), pa.string())), ("b", pa.null())])
        assert columns_of_schema(schema).types == {"a": pa.string(), "b": pa.string()}
        with pytest.raises(InputError, match="two columns are named `a`"):
            columns_of_schema(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


class TestState:
    def record(self, **columns: Any) -> Record:
        return Record("a.jsonl", 3, columns)

    @pytest.mark.parametrize("value", ["text", " x ", {"b": 1, "a": None}, [{"role": "user"}], 0, False, 1.5])
    def test_one_column_is_its_value_as_it_is(self, value):
        assert state_of(self.record(text=value), ("text",)) is value

    def test_several_columns_are_a_dict_in_the_order_given(self):
        state = state_of(self.record(a="x", b=None, c=1), ("c", "missing", "b", "a"))
        assert list(state.items()) == [("c", 1), ("missing", None), ("b", None), ("a", "x")]

    @pytest.mark.parametrize(
        ("columns", "wanted", "message"),
        [
            ({"text": None}, ("text",), "a.jsonl line 3: `text` is null"),
            ({}, ("text",), "a.jsonl line 3: `text` is missing"),
            ({"text": ""}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": " \n\t\u2003"}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": {}}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"text": []}, ("text",), "a.jsonl line 3: `text` is empty"),
            ({"a": "", "b": None}, ("a", "b", "c"), "a.jsonl line 3: `a` is empty, `b` is null, `c` is missing"),
            ({"a": b"\xff", "b": "x"}, ("a", "b"), "a.jsonl line 3: `a` is binary and not valid UTF-8"),
        ],
    )
    def test_a_record_without_a_state_says_so(self, columns, wanted, message):
        with pytest.raises(RecordError) as caught:
            state_of(self.record(**columns), wanted)
        assert str(caught.value) == message

    def test_a_broken_record_raises_its_problem(self, tmp_path):
        (record,) = records(write(tmp_path / "a.jsonl", "{"))
        with pytest.raises(RecordError, match=r"a\.jsonl line 1: not valid JSON"):
            state_of(record, ("text",))

    def test_arrow_rows_in_memory_are_records_too(self):
        batch = pa.record_batch({"text": ["a", None], "n": [1, 2]})
        first, second = records_of(batch)
        assert state_of(first, ("text",)) == "a"
        with pytest.raises(RecordError, match="batch row 2: `text` is null"):
            state_of(second, ("text",))

    @pytest.mark.parametrize(
        ("columns", "chosen"), [(("content", "body"), "body"), (("text", "state"), "state"), (("x", "message", "content"), "message")]
    )
    def test_the_usual_names_are_found_in_order_of_preference(self, columns, chosen):
        assert default_state_columns(columns) == (chosen,)

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ((), "no state column; pass --state with one or more of `text`, `body`"),
            (("bdy",), "no column is named `bdy`; the columns are `text`, `body`. Did you mean `body`?"),
            (("zzzz",), "no column is named `zzzz`; the columns are `text`, `body`."),
            (("text", "text"), "state column `text` is given twice"),
        ],
    )
    def test_state_columns_that_cannot_be_are_refused(self, wanted, message):
        check_state_columns(("body", "text"), ("text", "body"))
        with pytest.raises(InputError) as caught:
            check_state_columns(wanted, ("text", "body"))
        assert str(caught.value) == message

    def test_no_usual_name_lists_the_columns(self):
        with pytest.raises(InputError, match="pass --state with one or more of `id`, `Text`"):
            default_state_columns(("id", "Text"))
        with pytest.raises(InputError, match="there are none"):
            default_state_columns(())


class TestCutting:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
    def test_an_empty_file_is_no_fragment_and_indices_run_over_all_files(self, tmp_path, name):
        write(tmp_path / name, "")
        write_jsonl(tmp_path / "b.jsonl", *({"n": n} for n in range(5)))
        write(tmp_path / "c.csv", "n\n0\n")
        fragments = cut(find_inputs([str(tmp_path)]), 2)
        assert [(f.index, Path(f.path).name, f.rows) for f in fragments] == [
            (0, "b.jsonl", 2),
            (1, "b.jsonl", 2),
            (2, "b.jsonl", 1),
            (3, "c.csv", 1),
        ]
        assert pickle.loads(pickle.dumps(fragments)) == fragments

    @pytest.mark.parametrize("rows", [0, -1])
    def test_a_fragment_holds_at_least_one_row(self, rows):
        with pytest.raises(ValueError, match="rows_per_fragment must be at least 1"):
            cut([], rows)

    @settings(max_examples=60, deadline=None)
    @given(
        lines=st.lists(
            st.one_of(
                st.dictionaries(st.text(max_size=3), st.text(max_size=8) | st.integers() | st.none(), max_size=3).map(
                    lambda row: json.dumps(row, ensure_ascii=False).encode()
                ),
                st.binary(max_size=8).filter(lambda line: b"\n" not in line),
            ),
            max_size=12,
        ),
        end=st.sampled_from([b"", b"\n", b"\r\n"]),
        bom=st.booleans(),
        rows=st.integers(1, 14),
    )
    def test_jsonl_cut_anywhere_is_the_uncut_file(self, tmp_path_factory, lines, end, bom, rows):
        path = tmp_path_factory.mktemp("cut") / "a.jsonl"
        content = b"\n".join(lines) + end
        write(path, (UTF8_BOM if bom else b"") + content)
        expected = [line for line in content.removeprefix(b"" if bom else UTF8_BOM).split(b"\n") if line and not line.isspace()]
        assert_cut_equals_uncut(path, rows, len(expected))

    @settings(max_examples=60, deadline=None)
    @given(
        table=st.lists(st.tuples(*[st.text('ab",\n\r \x00é\u2028\x85', max_size=6)] * 2), max_size=12),
        line_end=st.sampled_from(["\n", "\r\n"]),
        rows=st.integers(1, 14),
    )
    def test_csv_cut_anywhere_is_the_table_that_was_written(self, tmp_path_factory, table, line_end, rows):
        path = tmp_path_factory.mktemp("cut") / "a.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *table])
        assert_cut_equals_uncut(path, rows, len(table))
        assert [tuple(record.columns.values()) for record in records(path, rows)] == table

    @settings(max_examples=60, deadline=None)
    @given(
        content=st.lists(st.sampled_from([b'"', b",", b"\n", b"\r", b"a", b"\xe9", b"\x00", b'""', b'"\n'])).map(b"".join),
        rows=st.integers(1, 5),
    )
    def test_csv_of_any_bytes_is_cut_as_it_is_read(self, tmp_path_factory, content, rows):
        path = write(tmp_path_factory.mktemp("cut") / "a.csv", b"x,y\n" + content)
        assert_cut_equals_uncut(path, rows, None)


def assert_cut_equals_uncut(path: Path, rows: int, count: int | None) -> None:
    files = find_inputs([str(path)])
    fragments = cut(files, rows)
    parts = [list(read(fragment)) for fragment in fragments]
    assert [len(part) for part in parts] == [fragment.rows for fragment in fragments]
    assert all(part[0].number == fragment.first_record for part, fragment in zip(parts, fragments, strict=True))
    assert all(fragment.rows == rows for fragment in fragments[:-1])
    whole = [record for fragment in cut(files, 10**9) for record in read(fragment)]
    assert [comparable(record) for part in parts for record in part] == [comparable(record) for record in whole]
    assert count is None or len(whole) == count


def comparable(record: Record) -> tuple[int, dict[str, Any], str]:
    return record.number, record.columns, str(record.problem)


@pytest.mark.parametrize("error", [InputError("a.csv: not found"), RecordError("a.csv line 2: empty")])
def test_errors_survive_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_records_survive_pickling(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n{\n')
    for record in records(path):
        assert comparable(pickle.loads(pickle.dumps(record))) == comparable(record)


def test_a_fragment_says_what_it_is():
    assert Fragment(0, "a.csv", "csv", 3, 9, 2, 1) == Fragment(index=0, path="a.csv", format="csv", start=3, stop=9, first_record=2, rows=1)
