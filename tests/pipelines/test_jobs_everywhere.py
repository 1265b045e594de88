"""Whole jobs on hard ground: object stores, hostile files, long documents among short rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import ScoreConfig, score, storage
from pipelines.sinks import committed_parts

ANGRY = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
TOLERANCE = 1e-3


def job(source, output, **changes):
    return ScoreConfig(**{"inputs": source, "questions": ANGRY, "output": str(output), "report": False, **changes})


def read_all(folder: str) -> list[Any]:
    names = sorted(name for name in storage.list_folder(folder) if name.endswith(".parquet"))
    contents = [storage.read_bytes(storage.join(folder, name)) for name in names]
    return [row for content in contents for row in pq.read_table(pa.BufferReader(content)).to_pylist()]


def without_numbers(rows):
    """Rows as they must be equal, and their numbers, which neighbours in a pass may move a little."""
    return [{**row, "angry": None, "angry_confidence": None} for row in rows], [row["angry"] for row in rows]


class TestObjectStore:
    def test_a_job_from_and_to_s3_resumes_and_equals_one_that_was_not_stopped(self, ray_session, s3, tmp_path):
        texts = [f"message {index}: my parcel is {'late' if index % 2 else 'here'}" for index in range(60)]
        plain = "".join(json.dumps({"id": index, "text": text}) + "\n" for index, text in enumerate(texts[:30])).encode()
        storage.write_bytes(f"{s3}/job/in/day=01/a.jsonl", plain)
        pq.write_table(pa.table({"id": list(range(30, 60)), "text": texts[30:]}), tmp_path / "b.parquet")
        storage.put_file(tmp_path / "b.parquet", f"{s3}/job/in/day=02/b.parquet")
        config = job(
            f"{s3}/job/in", f"{s3}/job/out", rows_per_fragment=10, report=True, min_confidence=0.9, abstain_output=f"{s3}/job/review"
        )
        summary = score(config)
        rows = read_all(f"{s3}/job/out")
        assert [(row["id"], row["day"]) for row in rows] == [(index, "01" if index < 30 else "02") for index in range(60)]
        assert summary.tally.rows == 60
        assert b"<html" in storage.read_bytes(f"{s3}/job/out.report.html")
        assert read_all(f"{s3}/job/review") == [row for row in rows if row["angry_abstain"]]
        storage.delete(f"{s3}/job/out/part-00001.parquet")
        storage.delete(f"{s3}/job/out/_laya/part-00003.json")
        storage.write_bytes(f"{s3}/job/out/part-00004.parquet", b"cut short")
        assert committed_parts(f"{s3}/job/out", "parquet") == {0, 2, 5}
        assert score(config).resumed_rows == 30
        again = read_all(f"{s3}/job/out")
        assert without_numbers(again)[0] == without_numbers(rows)[0]
        assert without_numbers(again)[1] == pytest.approx(without_numbers(rows)[1], abs=TOLERANCE)


class TestHostileFolder:
    def test_every_row_comes_out_as_it_went_in_or_says_where_it_is_broken(self, ray_session, tmp_path, mini):
        folder = tmp_path / "in"
        folder.mkdir()
        huge = "late " * 600_000
        lines = [
            b'\xef\xbb\xbf{"id": 9007199254740993, "text": "bom"}\r\n',
            b'{"id": 2, "text": "one\xe2\x80\xa8two"}\n',
            json.dumps({"id": 3, "text": huge}).encode() + b"\n",
            b'{"id": 4, "text": "caf\xe9"}\n',
            b'{"id": 5, "text": "\\ud83d"}\n',
            b'{"id": 6, "text": NaN}\n',
            b"\n",
            b'{"id": 7, "text": null}\n',
            b'{"id": "x8", "text": {"a": [1, null]}, "extra": 0.1}',
        ]
        (folder / "a.jsonl").write_bytes(b"".join(lines))
        (folder / "b.csv").write_bytes(
            b'\xef\xbb\xbfid,text\r\n1,"two\r\nlines, ""quoted"""\r\n2,NA\r\n3,\r\n00123,2026-01-05\r\n4,x,y\r\n'
        )
        (folder / "c.jsonl").write_bytes(b"")
        (folder / "d.jsonl.gz").write_bytes(
            gzip.compress(b'{"id": 1, "text": "zipped"}\n') + gzip.compress(b'{"id": 2, "text": "twice"}\n')
        )
        (folder / "e.txt").write_bytes(b"a line\r\n\r\nanother")
        summary = score(job(str(folder), tmp_path / "out", rows_per_fragment=3))
        rows = read_all(str(tmp_path / "out"))
        texts = [json.loads(row["text"]) if row["text"] is not None else None for row in rows]
        errors: list[str] = [(row["laya"]["error"] or {"message": ""})["message"] for row in rows]
        assert summary.tally.rows == len(rows) == 8 + 5 + 2 + 2
        expected = ["bom", "one\u2028two", huge, None, None, None, None, {"a": [1, None]}]
        expected += ['two\r\nlines, "quoted"', "NA", "", "2026-01-05", None, "zipped", "twice", "a line", "another"]
        assert texts == expected
        ids = [json.loads(row["id"]) if row["id"] is not None else None for row in rows]
        assert ids == [9007199254740993, 2, 3, None, None, None, 7, "x8", "1", "2", "3", "00123", None, 1, 2, None, None]
        for index, told in {
            3: "a.jsonl line 4: not valid UTF-8",
            4: "a.jsonl line 5",
            5: "a.jsonl line 6",
            6: "a.jsonl line 8: `text` is null",
        }.items():
            assert told in errors[index]
        assert "b.csv line 5: `text` is empty" in errors[10]
        assert "b.csv line 7: the header has 2 cells, this row 3" in errors[12]
        for row, text, error in zip(rows, texts, errors, strict=True):
            if not error:
                answer = mini.system_one(text, ANGRY)
                assert row["angry"] == pytest.approx(answer["answers"]["angry"]["noul"], abs=TOLERANCE)
                assert row["laya"]["truncated"] == answer["usage"]["truncated"]


class TestLongDocuments:
    def test_a_long_one_among_short_rows_is_read_whole_and_the_rest_as_ever(self, ray_session, tmp_path, mini):
        long = " ".join(f"Sentence {index} says that everything is fine." for index in range(300)) + " I am furious, this is outrageous!"
        middle = "The parcel is late again. " * 30
        rows = [{"id": index, "text": f"short message {index}"} for index in range(40)]
        rows[11]["text"], rows[20]["text"] = long, middle
        (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        summary = score(
            job(str(tmp_path / "in.jsonl"), tmp_path / "out", long="scan", window=64, stride=32, agents=2, rows_per_fragment=15)
        )
        found = read_all(str(tmp_path / "out"))
        assert [row["id"] for row in found] == list(range(40))
        for row in found:
            expected = mini.predict_long(row["text"], ANGRY, window=64, stride=32)
            assert row["angry"] == pytest.approx(expected["answers"]["angry"]["noul"], abs=TOLERANCE)
            assert row["laya"]["truncated"] is False
            assert (row["laya"]["windows"] or 1) == expected["usage"]["windows"]
        assert found[11]["laya"]["windows"] > 64
        assert (summary.tally.scanned, summary.tally.truncated) == (2, 0)
        assert summary.tally.windows == found[11]["laya"]["windows"] + found[20]["laya"]["windows"]

    @pytest.mark.slow
    def test_hooks_see_a_long_row_once(self, ray_session, tmp_path):
        from tests.pipelines.job_hooks import DIARY

        DIARY.write_text("")
        long = "The parcel is late again. " * 300
        Path(tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in (long, "short")), encoding="utf-8")
        score(job(str(tmp_path / "in.jsonl"), tmp_path / "out", long="scan", hooks="tests.pipelines.job_hooks:Guard"))
        found = read_all(str(tmp_path / "out"))
        ends = [line.split()[1] for line in DIARY.read_text().splitlines() if line.startswith("end")]
        assert sorted(ends) == sorted(row["laya"]["run_id"] for row in found)
        DIARY.unlink()
