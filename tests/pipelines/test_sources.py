"""Which files are read, and where they are cut."""

from __future__ import annotations

import csv
import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.errors import InputError, RecordError
from pipelines.sources import (
    Fragment,
    find_inputs,
    read,
    survey,
)
from tests.pipelines.source_files import UTF8_BOM, comparable, records, write, write_jsonl


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
            (
                "notes.md",
                "notes.md: unknown extension '.md'; known are .csv, .jsonl, .ndjson, .parquet, .txt, all but .parquet also with .gz or",
            ),
            ("table.parquet.gz", "table.parquet.gz: unknown extension '.parquet.gz'; known are"),
            ("x.gz", "x.gz: unknown extension '.gz'; known are"),
            ("*.md", "notes.md: unknown extension '.md'"),
            ("empty", "empty: no file in this folder ends in .csv"),
            ("broken.csv", "broken.csv: not found"),
            ("loop.csv", "loop.csv: "),
        ],
    )
    def test_what_is_wrong_is_one_line_that_names_it(self, tmp_path, given, message):
        for name in ("notes.md", "table.parquet.gz", "x.gz"):
            write(tmp_path / name, "")
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

    def test_a_file_has_one_name_and_links_are_followed_once(self, tmp_path):
        path = write(tmp_path / "data" / "a.csv", "id\n")
        elsewhere = write(tmp_path / "more" / "b.csv", "id\n")
        (tmp_path / "data" / "more").symlink_to(tmp_path / "more")
        (tmp_path / "data" / "up").symlink_to(tmp_path / "data")
        found = find_inputs([str(tmp_path / "more" / ".." / "data"), str(path)])
        assert [file.path for file in found] == [str(path), str(tmp_path / "data" / "more" / elsewhere.name)]

    def test_a_pipe_in_a_folder_is_not_waited_for(self, tmp_path):
        write(tmp_path / "a.csv", "id\n")
        os.mkfifo(tmp_path / "b.csv")
        for source in (tmp_path, tmp_path / "*.csv"):
            assert [Path(file.path).name for file in find_inputs([str(source)])] == ["a.csv"]

    def test_a_name_that_is_not_utf8_is_named(self, tmp_path):
        Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.csv")).write_text("id\n")
        with pytest.raises(InputError, match=r"not UTF-8; rename it"):
            find_inputs([str(tmp_path)])

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


class TestCutting:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
    def test_an_empty_file_is_no_fragment_and_indices_run_over_all_files(self, tmp_path, name):
        write(tmp_path / name, "")
        write_jsonl(tmp_path / "b.jsonl", *({"n": n} for n in range(5)))
        write(tmp_path / "c.csv", "n\n0\n")
        fragments = survey(find_inputs([str(tmp_path)]), 2).fragments
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
            survey([], rows)

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
        assume(not content.startswith((b"\xff\xfe", b"\xfe\xff")))  # UTF-16, which is refused as a whole
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
    fragments = survey(files, rows).fragments
    parts = [list(read(fragment)) for fragment in fragments]
    assert [len(part) for part in parts] == [fragment.rows for fragment in fragments]
    assert all(part[0].number == fragment.first_record for part, fragment in zip(parts, fragments, strict=True))
    assert all(fragment.rows == rows for fragment in fragments[:-1])
    whole = [record for fragment in survey(files, 10**9).fragments for record in read(fragment)]
    assert [comparable(record) for part in parts for record in part] == [comparable(record) for record in whole]
    assert count is None or len(whole) == count


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
