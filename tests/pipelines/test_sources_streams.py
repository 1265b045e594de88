"""Compressed files, text files, and columns in the names of folders."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.errors import InputError
from pipelines.sources import InputFile, Record, check_unchanged, find_inputs, read, survey
from tests.pipelines.source_files import (
    UTF8_BOM,
    column_types,
    comparable,
    problems,
    records,
    values,
    write,
    write_jsonl,
    write_parquet,
)


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd}


CONTENTS = {
    "a.jsonl": UTF8_BOM + b"".join(b'{"n": %d, "t": "%s"}\r\n' % (n, b"x" * n) for n in range(300)) + b"\n{broken\n",
    "a.ndjson": b"",
    "a.csv": b'id,text\n1,"a\nb"\n2\n\n3,"c"\n4,never"\n5,"open',
    "a.txt": "one\r\n\n two\u2028x \ncaf\xe9".encode() + b"\n\xff\nlast",
}


class TestCompression:
    @pytest.mark.parametrize("name", CONTENTS)
    @pytest.mark.parametrize("extension", PACK)
    def test_a_compressed_file_is_cut_and_read_as_the_plain_one(self, tmp_path, name, extension):
        content = CONTENTS[name]
        plain = write(tmp_path / name, content)
        half = len(content) // 2
        # Two members one after the other, as parallel compressors and `cat` make them.
        packed = write(tmp_path / f"{name}{extension}", PACK[extension](content[:half]) + PACK[extension](content[half:]))
        (file,) = find_inputs([str(packed)])
        assert file.compression == {".gz": "gzip", ".zst": "zstd"}[extension]
        for rows in (1, 7, 10**9):
            spans = [
                [(f.start, f.stop, f.first_record, f.rows) for f in survey(find_inputs([str(p)]), rows).fragments] for p in (plain, packed)
            ]
            assert spans[0] == spans[1]
        told = [[(r.number, r.columns, str(r.problem).partition(" line")[2]) for r in records(p, 7)] for p in (plain, packed)]
        assert told[0] == told[1]
        assert column_types(plain) == column_types(packed)

    @pytest.mark.parametrize(
        ("extension", "damage"),
        [
            *((extension, damage) for extension in PACK for damage in ("cut off", "not compressed", "garbage behind")),
            (".gz", "garbage inside"),  # only a checksum tells, which the zstd writer of these tests leaves out
        ],
    )
    def test_what_is_damaged_is_refused_by_the_survey(self, tmp_path, extension, damage):
        content = b"".join(json.dumps({"t": os.urandom(30).hex()}).encode() + b"\n" for _ in range(2000))
        packed = PACK[extension](content)
        middle = len(packed) // 2
        broken = {
            "cut off": packed[:-5],
            "not compressed": content,
            "garbage behind": packed + b"garbage",
            "garbage inside": packed[:middle] + b"\x00" * 50 + packed[middle + 50 :],
        }[damage]
        path = write(tmp_path / f"tickets.jsonl{extension}", broken)
        with pytest.raises(InputError, match=rf"tickets\.jsonl{extension}: cannot be read as (gzip|zstd): ") as caught:
            survey(find_inputs([str(path)]))
        assert "\n" not in str(caught.value)

    def test_an_empty_file_holds_nothing(self, tmp_path):
        assert survey(find_inputs([str(write(tmp_path / "a.csv.gz", b""))])).fragments == []

    def test_streams_are_closed(self, tmp_path):
        path = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 100))
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        records(path, 10)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    def test_pieces_in_any_order_are_the_file_and_a_replaced_file_is_read_anew(self, tmp_path):
        path = write(tmp_path / "a.jsonl.gz", gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(100))))
        fragments = survey(find_inputs([str(path)]), 10).fragments
        for index in (0, 1, 5, 4, 9, 0, 0, 3):
            assert [record.columns["n"] for record in read(fragments[index])] == list(range(10 * index, 10 * index + 10))
        # One that is given up in the middle, and two that take turns.
        assert next(iter(read(fragments[4]))).columns == {"n": 40}
        assert [(x.columns["n"], y.columns["n"]) for x, y in zip(read(fragments[5]), read(fragments[5]), strict=True)] == [
            (n, n) for n in range(50, 60)
        ]
        path.write_bytes(gzip.compress(b"".join(b'{"n": %d}\n' % (n + 10) for n in range(90))))
        assert [record.columns["n"] for record in read(fragments[6])] == list(range(69, 79))

    def test_pieces_that_follow_on_one_another_are_decompressed_once(self, tmp_path, monkeypatch):
        path = write(tmp_path / "a.txt.gz", gzip.compress(b"line\n" * 100))
        fragments = survey(find_inputs([str(path)]), 10).fragments
        opened: list[str] = []
        real = pa.OSFile

        def open_file(path, mode):
            opened.append(path)
            return real(path, mode)

        monkeypatch.setattr("pipelines.sources.streams.pa.OSFile", open_file)
        assert sum(1 for fragment in fragments for _ in read(fragment)) == 100
        assert opened == [str(path)]


class TestText:
    def test_each_line_is_a_text_as_it_was_written(self, tmp_path):
        path = write(tmp_path / "a.txt", UTF8_BOM + "00123\r\n\r\n  \n two words \nx\u2028y\x85z\r w\n\t{}\nlast".encode())
        assert [(record.number, record.columns) for record in records(path)] == [
            (1, {"text": "00123"}),
            (4, {"text": " two words "}),
            (5, {"text": "x\u2028y\x85z\r w"}),
            (6, {"text": "\t{}"}),
            (7, {"text": "last"}),
        ]
        assert column_types(path) == {"text": "string"}

    def test_other_encodings_are_refused(self, tmp_path):
        path = write(tmp_path / "a.txt", b"fine\ncaf\xe9\nok\n")
        assert problems(path) == [None, "a.txt line 2: not valid UTF-8: byte 0xe9 at byte 4; convert the file to UTF-8", None]
        for name in ("a.txt", "b.jsonl", "c.csv"):
            with pytest.raises(InputError, match=rf"{name}: is UTF-16 or UTF-32 text; convert the file to UTF-8"):
                survey(find_inputs([str(write(tmp_path / name, "id\nx\n".encode("utf-16")))]))

    @pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
    def test_a_line_that_does_not_end_is_given_up_at_a_limit(self, tmp_path, monkeypatch, name):
        monkeypatch.setattr("pipelines.sources.lines.LINE_LIMIT", 100)
        start, line = ("n\n", '"%s"') if name == "a.csv" else ("", '{"n": "%s"}')
        path = write(
            tmp_path / name, start + "\n".join(line % text for text in ("one", "x" * 400, "two", "y" * 88 if name != "a.csv" else "y" * 96))
        )
        first = 2 if name == "a.csv" else 1
        for rows in (1, 100):
            found = records(path, rows)
            assert [record.number - first for record in found] == [0, 1, 2, 3]
            assert [record.problem is None for record in found] == [True, False, True, True]
            assert str(found[1].problem) == f"{name} line {first + 1}: the line is longer than 100 bytes"


class TestFolderNames:
    def test_they_are_columns_of_text(self, tmp_path):
        write_jsonl(tmp_path / "day=2026-01-05" / "team=a%2Fb%20c" / "a.jsonl", {"text": "x"}, {"text": "y", "team": "own"})
        write(tmp_path / "day=007" / "team=__HIVE_DEFAULT_PARTITION__" / "b.csv", "text,day\nz,own\n")
        write(tmp_path / "day=" / "=x" / "plain" / "c.txt", "w\n")
        write_parquet(tmp_path / "day=1" / "d.parquet", pa.table({"text": ["v"], "n": [1]}))
        assert [record.columns for record in records(tmp_path)] == [
            {"text": "w", "day": ""},
            {"text": "z", "day": "own", "team": None},
            {"text": "v", "n": 1, "day": "1"},
            {"text": "x", "day": "2026-01-05", "team": "a/b c"},
            {"text": "y", "day": "2026-01-05", "team": "own"},
        ]
        assert [record.where for record in records(tmp_path)][1:3] == [
            "day=007/team=__HIVE_DEFAULT_PARTITION__/b.csv line 2",
            "day=1/d.parquet row 1",
        ]
        assert column_types(tmp_path) == {"text": "string", "n": "int64", "day": "string", "team": "string"}

    def test_they_are_in_the_arrow_row_too(self, tmp_path):
        write_parquet(tmp_path / "day=1" / "n=x" / "a.parquet", pa.table({"n": [7]}))
        (record,) = records(tmp_path)
        assert record.row is not None
        assert record.row[0].to_pylist() == [{"n": 7, "day": "1"}]

    def test_only_folders_below_the_one_that_was_given_count(self, tmp_path):
        path = write(tmp_path / "a=1" / "b=2" / "c=3" / "x.csv", "t\n1\n")
        keys = {
            str(tmp_path): ["a", "b", "c"],
            str(tmp_path / "a=1"): ["b", "c"],
            str(tmp_path / "a=*"): ["a", "b", "c"],
            str(tmp_path / "a=1" / "b=2" / "**" / "*.csv"): ["c"],
            str(path): [],
        }
        for given, expected in keys.items():
            (file,) = find_inputs([given])
            assert [key for key, _ in file.partitions] == expected

    def test_two_folders_of_one_name_and_names_that_are_not_utf8_are_refused(self, tmp_path):
        write(tmp_path / "twice" / "a=1" / "a=2" / "x.csv", "t\n")
        write(tmp_path / "latin" / "a=%E9" / "x.csv", "t\n")
        for folder, message in (("twice", "two of its folders give the column `a`"), ("latin", "the folder name a=%E9 is not UTF-8")):
            with pytest.raises(InputError, match=message):
                find_inputs([str(tmp_path / folder)])

    def test_a_column_of_another_type_in_a_parquet_file_is_refused(self, tmp_path):
        write_parquet(tmp_path / "a.parquet", pa.table({"n": [7], "t": ["x"]}))
        write(tmp_path / "n=8" / "b.txt", "x\n")
        with pytest.raises(InputError, match=r"column `n` is int64 in .*a\.parquet but string in the text files or folder names"):
            column_types(tmp_path)


class TestPieces:
    """Large files whose records are lines are surveyed in pieces."""

    @pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
    @pytest.mark.parametrize("size", [4, 7, 50, 64, 1000])
    def test_they_hold_each_record_once_under_its_own_line(self, tmp_path, monkeypatch, name, size):
        lines = [b'{"n": %d}' % n if n % 5 else b"" for n in range(40)]
        lines[20] = b'{"n": "' + b"x" * 300 + b'"}'
        path = write(tmp_path / name, UTF8_BOM + b"\r\n".join(lines))
        whole = [comparable(record) for record in records(path, 3)]
        monkeypatch.setattr("pipelines.sources.surveying.PIECE_BYTES", size)
        fragments = survey(find_inputs([str(path)]), 3).fragments
        assert [comparable(record) for fragment in fragments for record in read(fragment)] == whole
        assert [fragment.index for fragment in fragments] == list(range(len(fragments)))
        assert max(fragment.rows for fragment in fragments) <= 3
        assert all(next(iter(read(fragment))).number == fragment.first_record for fragment in fragments)

    def test_files_next_to_each_other_do_not_mix(self, tmp_path, monkeypatch):
        for name in ("a.jsonl", "b.jsonl"):
            write_jsonl(tmp_path / name, *({"n": n} for n in range(20)))
        monkeypatch.setattr("pipelines.sources.surveying.PIECE_BYTES", 30)
        assert [(record.where, record.columns["n"]) for record in records(tmp_path)] == [
            (f"{name} line {n + 1}", n) for name in ("a.jsonl", "b.jsonl") for n in range(20)
        ]


class TestUnchanged:
    def test_a_file_that_changed_or_went_is_refused(self, tmp_path):
        path = write(tmp_path / "a.csv", "t\n1\n")
        (file,) = find_inputs([str(path)])
        check_unchanged(file)
        os.utime(path, ns=(0, 0))
        with pytest.raises(InputError, match=r"a\.csv: changed since the job was planned; start again with a new output folder"):
            check_unchanged(file)
        path.unlink()
        with pytest.raises(InputError, match=r"a\.csv: is gone since the job was planned"):
            check_unchanged(file)
        path.symlink_to(path)
        with pytest.raises(InputError, match=r"a\.csv: cannot be read"):
            check_unchanged(file)

    def test_a_file_survives_json(self, tmp_path):
        write(tmp_path / "k=v" / "l=__HIVE_DEFAULT_PARTITION__" / "a.csv.gz", "")
        (file,) = find_inputs([str(tmp_path)])
        fields: dict[str, Any] = json.loads(json.dumps({name: getattr(file, name) for name in InputFile.__dataclass_fields__}))
        assert InputFile(**fields) == file
        assert hash(InputFile(**fields)) == hash(file)


def test_where_names_the_folder_too(tmp_path: Path) -> None:
    write(tmp_path / "x" / "a.jsonl", "{\n")
    write(tmp_path / "y" / "a.jsonl", '{"t": 1}\n')
    found: list[Record] = records(tmp_path)
    assert [record.where for record in found] == ["x/a.jsonl line 1", "y/a.jsonl line 1"]
    assert str(found[0].problem).startswith("x/a.jsonl line 1: not valid JSON")
    assert values(tmp_path / "y") == [{"t": 1}]
