"""The same files in an object store: found, surveyed and read as on this machine."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from pipelines.errors import InputError
from pipelines.sources import check_unchanged, find_inputs, read, survey
from pipelines.storage import delete, join, write_bytes
from tests.pipelines.source_files import UTF8_BOM, column_types, records, values, write_parquet

Put = Callable[[str, bytes], str]


@pytest.fixture
def folder(s3: str) -> str:
    return join(s3, uuid4().hex)


@pytest.fixture
def put(folder: str) -> Put:
    def put(name: str, content: bytes) -> str:
        write_bytes(join(folder, name), content)
        return join(folder, name)

    return put


def names(*given: str) -> list[str]:
    return [file.name for file in find_inputs(given)]


def test_every_format_reads_as_on_this_machine(tmp_path: Path, folder: str, put: Put) -> None:
    contents = {
        "a.jsonl": UTF8_BOM + '{"text": "é", "n": 1}\r\n\n{"text": "b", "n": 2}'.encode(),
        "b.csv": b'text,n\n"x\ny",1\nz,2\n',
        "c.txt": b"one\ntwo\n",
        "d.jsonl.gz": gzip.compress(b'{"text": "packed", "n": 3}\n' * 5),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        put(name, content)
    table = write_parquet(tmp_path / "e.parquet", pa.table({"text": [str(n) for n in range(50)], "n": list(range(50))}), 20)
    put("e.parquet", table.read_bytes())
    assert names(folder) == [*contents, "e.parquet"]
    for name in (*contents, "e.parquet"):
        local, remote = tmp_path / name, join(folder, name)
        for rows in (1, 7, 100):
            assert values_of(remote, rows) == values_of(str(local), rows)
        assert column_types(remote) == column_types(local)
        (file,) = find_inputs([remote])
        assert (file.path, file.size, file.name) == (remote, local.stat().st_size, name)
        assert file.mtime_ns > 0


def values_of(path: str, rows: int) -> list[tuple[int, dict[str, object], str]]:
    return [(record.number, record.columns, record.where) for record in records(path, rows)]


def test_folders_and_globs_choose_what_they_choose_on_this_machine(tmp_path: Path, folder: str, put: Put) -> None:
    for name in (
        "b.csv",
        "a1.jsonl",
        "sub/c.csv",
        "sub/deep/d.csv",
        "_x/e.csv",
        ".f.csv",
        "sub/_g.csv",
        "readme.md",
        "t.csv/p.csv",
        "odd name+é.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"id\n1\n")
        put(name, b"id\n1\n")
    for pattern in (
        "",
        "*.csv",
        "**/*.csv",
        "sub/*",
        "sub/**",
        "s*/c.csv",
        "**/d.csv",
        "a[0-9].jsonl",
        "a?.jsonl",
        "_x/*.csv",
        "s*",
        "odd*",
        "*/deep",
    ):
        assert names(join(folder, pattern) if pattern else folder) == names(str(tmp_path / pattern)), pattern
    assert len(find_inputs([join(folder, "b.csv"), folder + "/"])) == 6


def test_folder_names_give_columns(folder: str, put: Put) -> None:
    put("year=2026/lang=de/a.csv", b"text\nja\n")
    put("year=2025/lang=__HIVE_DEFAULT_PARTITION__/a.csv", b"text\nhm\n")
    assert [record.columns for record in records(folder)] == [
        {"text": "hm", "year": "2025", "lang": None},
        {"text": "ja", "year": "2026", "lang": "de"},
    ]
    assert names(join(folder, "year=*")) == ["year=2025/lang=__HIVE_DEFAULT_PARTITION__/a.csv", "year=2026/lang=de/a.csv"]
    assert values(join(folder, "year=2026"))[0] == {"text": "ja", "lang": "de"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gone.csv", "gone.csv: not found; check the bucket, the key and your credentials"),
        ("*.parquet", "*.parquet: no file matches"),
        ("empty", "empty: no file in this folder ends in .csv"),
        ("*.md", "readme.md: unknown extension '.md'"),
        ("a.csv?x.csv", "a.csv?x.csv: no file matches"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(folder: str, put: Put, given: str, message: str) -> None:
    put("readme.md", b"")
    put("empty/_x.csv", b"")
    with pytest.raises(InputError) as caught:
        find_inputs([join(folder, given)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_not_there_and_a_store_that_is_not_known(s3: str) -> None:
    for given, message in (
        ("s3://no-such-bucket/x.csv", "not found"),
        ("s3://*/x.csv", "s3://\\*/x"),
        ("ftp://host/x.csv", "ftp://host/x.csv: known are"),
    ):
        with pytest.raises(InputError, match=message):
            find_inputs([given])


def test_a_file_that_changed_or_went_is_refused(put: Put) -> None:
    path = put("a.csv", b"text\na\nb\n")
    (file,) = find_inputs([path])
    check_unchanged(file)
    (fragment,) = survey([file]).fragments
    put("a.csv", b"text\na\n")
    with pytest.raises(InputError, match=r"a\.csv: changed since the job was planned"):
        check_unchanged(file)
    with pytest.raises(InputError, match=r"a\.csv: changed while it was being read"):
        list(read(fragment))
    delete(path)
    with pytest.raises(InputError, match=r"a\.csv: is gone since the job was planned"):
        check_unchanged(file)
    with pytest.raises(InputError, match=r"a\.csv: cannot be read"):
        list(read(fragment))


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InputError, match=r"s3://bucket/a\.csv\?.*: cannot be read: "):
        find_inputs(["s3://bucket/a.csv?endpoint_override=127.0.0.1:1&scheme=http&region=x"])
