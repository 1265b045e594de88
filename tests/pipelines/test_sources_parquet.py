"""Parquet: plain values, ranges of rows, only the columns that are needed."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import InputError
from pipelines.sources import (
    find_inputs,
    read,
    survey,
)
from tests.pipelines.source_files import column_types, records, values, write, write_parquet


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

    def test_small_row_groups_are_joined_and_large_ones_cut(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": list(range(100))}), row_group_size=10)
        fragments = survey(find_inputs([str(path)]), 25).fragments
        assert [(f.start, f.stop, f.first_record, f.rows) for f in fragments] == [
            (0, 20, 1, 20),
            (20, 40, 21, 20),
            (40, 60, 41, 20),
            (60, 80, 61, 20),
            (80, 100, 81, 20),
        ]
        assert [(f.start, f.stop) for f in survey(find_inputs([str(path)]), 5).fragments] == [(n, n + 5) for n in range(0, 100, 5)]
        assert [(record.number, record.columns["n"]) for record in records(path, 25)] == [(n + 1, n) for n in range(100)]

    def test_batches_inside_a_row_group_keep_numbers_and_order(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": list(range(3000))}))
        assert [(record.number, record.columns["n"]) for record in records(path)] == [(n + 1, n) for n in range(3000)]

    def test_only_wanted_columns_are_turned_into_python_values(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"text": ["a"], "vector": [[0.5]]}))
        (fragment,) = survey(find_inputs([str(path)])).fragments
        (record,) = read(fragment, {"text"})
        assert record.columns == {"text": "a"}
        assert record.row is not None
        assert record.row[0].schema.names == ["text", "vector"]

    @pytest.mark.parametrize("limit", [1, 3, 7, 10, 64, 1000])
    @pytest.mark.parametrize("groups", [[100], [3, 3, 3, 50, 1, 1, 39], [10] * 10])
    def test_rows_cut_anywhere_are_the_uncut_file(self, tmp_path, limit, groups, monkeypatch):
        monkeypatch.setattr("pipelines.sources.parquet_files._BATCH_ROWS", 4)
        path = tmp_path / "a.parquet"
        table = pa.table({"n": list(range(100)), "t": [str(n) for n in range(100)]})
        with pq.ParquetWriter(path, table.schema) as writer:
            for index, rows in enumerate(groups):
                writer.write_table(table.slice(sum(groups[:index]), rows))
        fragments = survey(find_inputs([str(path)]), limit).fragments
        assert max(fragment.rows for fragment in fragments) <= limit
        assert [fragment.first_record for fragment in fragments] == [fragment.start + 1 for fragment in fragments]
        parts = [list(read(fragment)) for fragment in fragments]
        assert [len(part) for part in parts] == [fragment.rows for fragment in fragments]
        found = [record for part in parts for record in part]
        assert [(record.number, record.columns["n"]) for record in found] == [(n + 1, n) for n in range(100)]
        assert [record.row[0].column("t")[record.row[1]].as_py() for record in found if record.row] == [str(n) for n in range(100)]

    def test_only_columns_that_are_needed_are_read(self, tmp_path):
        table = pa.table({"text": ["a", "b"], "a.b": [1, 2], "a": [{"b": 3}, {"b": 4}], "vector": [[0.5], [1.5]]})
        path = write_parquet(tmp_path / "day=1" / "a.parquet", table)
        (fragment,) = survey(find_inputs([str(tmp_path)])).fragments
        for wanted, kept, names, columns in (
            (["text"], ["a"], ["text", "a", "day"], {"text": "a"}),
            (["text", "gone"], [], ["text", "day"], {"text": "a"}),
            (["a.b", "day"], ["day"], ["a.b", "day"], {"a.b": 1, "day": "1"}),
            ([], [], ["day"], {}),
            ([], None, ["text", "a.b", "a", "vector", "day"], {}),
        ):
            first, second = read(fragment, wanted, kept)
            assert first.row is not None
            assert first.row[0].schema.names == names
            assert first.columns == columns
            assert (first.number, second.number) == (1, 2)
        (bare,) = survey(find_inputs([str(path)])).fragments
        assert [record.number for record in read(bare, [], [])] == [1, 2]

    def test_large_rows_are_read_a_few_at_a_time(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"t": [f"{n:04}" * 750_000 for n in range(10)]}))
        (fragment,) = survey(find_inputs([str(path)])).fragments
        assert max(record.row[0].num_rows for record in read(fragment) if record.row) < 10

    def test_a_file_that_lost_rows_since_it_was_cut_is_refused(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": [1, 2, 3]}))
        (fragment,) = survey(find_inputs([str(path)])).fragments
        write_parquet(path, pa.table({"n": [1, 2]}))
        with pytest.raises(InputError, match=r"a\.parquet: changed while it was being read"):
            list(read(fragment))

    def test_no_rows_are_no_fragments_but_columns(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"n": pa.array([], pa.int16())}))
        assert survey(find_inputs([str(path)])).fragments == []
        assert column_types(path) == {"n": "int16"}

    def test_duplicate_names_and_other_files_are_refused(self, tmp_path):
        twice = write_parquet(tmp_path / "twice.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
        with pytest.raises(InputError, match=r"twice\.parquet: two columns are named `a`"):
            survey(find_inputs([str(twice)]))
        for content in (b"", b"id,text\n1,a\n"):
            with pytest.raises(InputError, match=r"fake\.parquet: cannot be read as Parquet: "):
                survey(find_inputs([str(write(tmp_path / "fake.parquet", content))]))

    def test_damage_in_the_middle_names_the_file_and_the_row(self, tmp_path):
        path = write_parquet(tmp_path / "a.parquet", pa.table({"t": [str(n) * 50 for n in range(2000)]}), row_group_size=1000)
        fragments = survey(find_inputs([str(path)]), 1000).fragments
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 4000] = b"\xff" * 4000
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.parquet: damaged after row \d+: "):
            [record for fragment in fragments for record in read(fragment)]
