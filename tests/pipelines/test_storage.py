"""Which inputs would read an output again: plain paths, globs, links and object stores."""

from __future__ import annotations

import os

import pytest

from pipelines.storage import is_within, reads


@pytest.mark.parametrize(
    ("given", "location", "read"),
    [
        ("data", "data/out/p.parquet", True),
        ("data/", "data/out/p.parquet", True),
        ("data/x/..", "data/out/p.parquet", True),
        ("data", "data2/p.parquet", False),
        ("data/*.parquet", "data/p.parquet", True),
        ("data/*", "data/out/p.parquet", True),
        ("data/*.jsonl", "data/out/p.parquet", False),
        ("data/**/*.parquet", "data/p.parquet", True),
        ("data/**/*.parquet", "data/a/b/p.parquet", True),
        ("data/**/*.jsonl", "data/a/b/p.parquet", False),
        ("data/[ab].parquet", "data/a.parquet", True),
        ("~nobody-here/data", "data/p.parquet", False),
        ("link", "data/out/p.parquet", True),
        ("data", "link/out/p.parquet", True),
        ("s3://bucket/data", "s3://bucket/data/out/p.parquet", True),
        ("s3://bucket/data?region=eu", "s3://bucket/data/out/p.parquet", True),
        ("s3://bucket/data", "s3://other/data/out/p.parquet", False),
        ("s3://bucket/*/p*", "s3://bucket/data/p.parquet", True),
        ("data", "s3://bucket/data/p.parquet", False),
        ("s3://bucket/data", "data/p.parquet", False),
    ],
)
def test_what_an_input_stands_for(tmp_path, monkeypatch, given, location, read):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    assert reads(given, location) is read
    home = os.fspath(tmp_path)
    if "://" not in given + location and "~" not in given:
        assert reads(f"{home}/{given}", location) is reads(given, f"{home}/{location}") is read


@pytest.mark.parametrize(
    ("location", "folder", "within"),
    [("out", "out", True), ("out/", "out", True), ("out/a/b", "out", True), ("out2", "out", False), ("out", "out/a", False)],
)
def test_folders_below_one_another(tmp_path, monkeypatch, location, folder, within):
    monkeypatch.chdir(tmp_path)
    assert is_within(location, folder) is within
    assert is_within(f"s3://bucket/{location}", f"s3://bucket/{folder}") is within
    assert not is_within(location, f"s3://bucket/{folder}")
