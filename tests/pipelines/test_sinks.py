"""The writing side: one schema whatever happens, every row in its place, parts that are whole or absent, folders that never mix."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laya.questions import parse_questions
from pipelines.errors import InputError, RecordError
from pipelines.sinks import (
    Manifest,
    check_output_folder,
    committed_parts,
    fingerprint,
    output_rows,
    output_schema,
    part_name,
    read_manifest,
    remove_unfinished,
    write_manifest,
    write_part,
)
from pipelines.sinks.manifest import MANIFEST_NAME
from pipelines.sources import InputColumns, InputFile, Record, cut, find_inputs, read, read_columns, records_of

QUESTIONS = parse_questions(
    {
        "team": {"type": "choice", "instructions": "Which?", "criteria": ["billing", 7, True, "a.b", ""]},
        "urgency": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
        3: {"type": "noul", "instructions": "Is it?"},
    }
)
COLUMNS = InputColumns({"id": pa.int64(), "text": pa.string()})
RESULT: dict[str, Any] = {
    "model": "laya-rl-agent",
    "answers": {
        "team": {
            "type": "choice",
            "choice": 7,
            "probabilities": {"billing": 0.1, 7: 0.6, True: 0.1, "a.b": 0.1, "": 0.1},
            "confidence": 0.2,
            "answer_confidence": 0.6,
            "action": {"act_probability": 0.5},
        },
        "urgency": {"type": "score", "score": 0.75, "probabilities": {"0": 0.25, "1": 0.75}, "confidence": 0.1, "answer_confidence": 0.75},
        3: {"type": "noul", "noul": 1, "confidence": 1, "answer_confidence": 1},
    },
    "usage": {"input_tokens": 41, "truncated": True, "windows": 3},
    "routing": {"model": "english", "reason": "Latin script"},
}
ANSWERED: dict[str, Any] = {
    "team": "7",
    "team_confidence": 0.6,
    "team_probabilities": {"billing": 0.1, "7": 0.6, "True": 0.1, "a.b": 0.1, "": 0.1},
    "urgency": 0.75,
    "urgency_confidence": 0.75,
    "urgency_probabilities": {"0": 0.25, "1": 0.75},
    "3": 1.0,
    "3_confidence": 1.0,
}
NOTED: dict[str, Any] = {"model": "english", "reason": "Latin script", "tokens": 41, "truncated": True, "windows": 3, "error": None}
FILE = InputFile("/data/a.csv", "csv", 10, 123)


def question(**changes: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": {"a": "x", "b": "y"}, **changes}


def record(number: int, **columns: Any) -> Record:
    return Record("a.jsonl", number, columns)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


class TestSchema:
    def test_it_depends_on_columns_and_questions_only(self):
        schema = output_schema(COLUMNS, QUESTIONS)
        assert [(field.name, str(field.type)) for field in schema] == [
            ("id", "int64"),
            ("text", "string"),
            ("team", "string"),
            ("team_confidence", "double"),
            ("team_probabilities", "struct<billing: double, 7: double, True: double, a.b: double, : double>"),
            ("urgency", "double"),
            ("urgency_confidence", "double"),
            ("urgency_probabilities", "struct<0: double, 1: double>"),
            ("3", "double"),
            ("3_confidence", "double"),
            (
                "laya",
                "struct<run_id: string, model: string, reason: string, tokens: int64, truncated: bool, windows: int32, "
                "error: struct<class: string, message: string>>",
            ),
        ]
        assert output_rows([], [], [], COLUMNS, QUESTIONS).schema == schema
        assert output_rows([record(1)], [ValueError("x")], ["r"], COLUMNS, QUESTIONS).schema == schema
        assert output_rows([record(1)], [RESULT], ["r"], COLUMNS, QUESTIONS).schema == schema

    @pytest.mark.parametrize(
        ("columns", "questions", "message"),
        [
            (
                ["team_confidence"],
                {"team": question()},
                "column `team_confidence` of the output would be both a column of the input and an",
            ),
            (["laya"], {}, "column `laya` of the output would be both a column of the input and the column that says"),
            (
                [],
                {1: question(), "1": question()},
                "column `1` of the output would be both an answer to question 1 and an answer to question '1'",
            ),
            ([], {"a": question(), "a_confidence": question()}, "column `a_confidence` of the output would be both"),
            ([], {"laya": question()}, "rename the question or the column"),
            ([], {"q": question(criteria=[1, "1"])}, "question 'q': two labels are written '1' in the output"),
        ],
    )
    def test_two_columns_of_one_name_are_refused(self, columns, questions, message):
        with pytest.raises(InputError) as caught:
            output_schema(InputColumns(dict.fromkeys(columns, pa.string())), parse_questions(questions))
        assert message in str(caught.value)


class TestRows:
    def test_answers_and_errors_stand_in_their_rows(self):
        problem = RecordError("a.jsonl line 2: not valid JSON")
        broken = Record("a.jsonl", 2, {}, problem)
        table = output_rows(
            [record(1, id=1, text="one"), broken, record(3, text="three", id=None)],
            [RESULT, problem, KeyError("veto")],
            ["r1", "r2", "r3"],
            COLUMNS,
            QUESTIONS,
        )
        nothing = dict.fromkeys(ANSWERED)
        unsaid: dict[str, Any] = {"model": None, "reason": None, "tokens": None, "truncated": None, "windows": None}
        assert rows_of(table) == [
            {"id": 1, "text": "one", **ANSWERED, "laya": {"run_id": "r1", **NOTED}},
            {
                "id": None,
                "text": None,
                **nothing,
                "laya": {"run_id": "r2", **unsaid, "error": {"class": "RecordError", "message": "a.jsonl line 2: not valid JSON"}},
            },
            {
                "id": None,
                "text": "three",
                **nothing,
                "laya": {"run_id": "r3", **unsaid, "error": {"class": "KeyError", "message": "'veto'"}},
            },
        ]

    def test_without_routing_and_windows_the_model_is_the_results_own(self):
        result = {key: RESULT[key] for key in ("model", "answers")} | {"usage": {"input_tokens": 5, "truncated": False}}
        (row,) = rows_of(output_rows([record(1, id=1)], [result], ["r"], COLUMNS, QUESTIONS))
        assert row["laya"] == {
            "run_id": "r",
            "model": "laya-rl-agent",
            "reason": None,
            "tokens": 5,
            "truncated": False,
            "windows": None,
            "error": None,
        }

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ValueError("first line\nsecond line"), "first line"),
            (ValueError("x" * 3000), "x" * 2000),
            (ValueError("half \ud83d of it"), "half ? of it"),
            (TimeoutError(), ""),
        ],
    )
    def test_a_message_is_its_first_line_in_writable_text(self, error, message):
        (row,) = rows_of(output_rows([record(1)], [error], ["r"], COLUMNS, QUESTIONS))
        assert row["laya"]["error"] == {"class": type(error).__name__, "message": message}

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda result: result.pop("answers"),
            lambda result: result["answers"].pop("team"),
            lambda result: result["answers"].update(team="billing"),
            lambda result: result["answers"]["urgency"].update(score="high"),
            lambda result: result["answers"]["team"].update(probabilities=None),
            lambda result: result.pop("model") and result.pop("routing"),
        ],
    )
    def test_a_result_that_a_hook_made_badly_is_an_error_row_of_its_own(self, spoil):
        bad = copy.deepcopy(RESULT)
        spoil(bad)
        first, second = rows_of(output_rows([record(1, id=1), record(2, id=2)], [bad, RESULT], ["r", "s"], COLUMNS, QUESTIONS))
        assert (first["id"], first["team"], first["3"]) == (1, None, None)
        assert first["laya"]["error"]["class"] == "ValueError"
        assert first["laya"]["error"]["message"].startswith("the result does not hold what an answer must: ")
        assert {name: second[name] for name in ANSWERED} == ANSWERED

    def test_a_label_without_a_probability_is_null(self):
        result = copy.deepcopy(RESULT)
        result["answers"]["team"]["probabilities"] = {"billing": 1.0, "unknown": 0.5}
        (row,) = rows_of(output_rows([record(1)], [result], ["r"], COLUMNS, QUESTIONS))
        assert row["team_probabilities"] == {"billing": 1.0, "7": None, "True": None, "a.b": None, "": None}

    def test_uneven_sequences_are_refused(self):
        with pytest.raises(ValueError, match="shorter"):
            output_rows([record(1), record(2)], [RESULT], ["r", "s"], COLUMNS, QUESTIONS)

    def test_jsonl_columns_are_kept_exactly(self, tmp_path):
        rows: list[dict[str, Any]] = [
            {"mixed": "1", "big": 2**70, "wide": 2**60, "text": "a\x00\u2028", "ok": True},
            {"mixed": 1, "big": None, "wide": 0.5, "obj": {"b": 1, "a": [None, "é"]}, "none": None},
            {"mixed": None},
        ]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = find_inputs([str(tmp_path)])
        found = [item for fragment in cut(files) for item in read(fragment)]
        columns = read_columns(files)
        table = output_rows(found, [ValueError("x")] * 3, ["r"] * 3, columns, ())
        assert rows_of(table.select(columns.names)) == [
            {"mixed": '"1"', "big": str(2**70), "wide": float(2**60), "text": "a\x00\u2028", "ok": True, "obj": None, "none": None},
            {"mixed": "1", "big": None, "wide": 0.5, "text": None, "ok": None, "obj": '{"b": 1, "a": [null, "é"]}', "none": None},
            {"mixed": None, "big": None, "wide": None, "text": None, "ok": None, "obj": None, "none": None},
        ]

    def test_parquet_columns_are_kept_as_they_were_read(self, tmp_path):
        source = pa.table(
            {
                "d": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(9, 2)),
                "t": pa.array([1, 2**62, None], pa.timestamp("ns", tz="UTC")),
                "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
                "s": pa.array([{"x": [b"\xff"]}, {"x": None}, None], pa.struct([("x", pa.list_(pa.binary()))])),
                "c": pa.array(["a", None, "b"]).dictionary_encode(),
                "l": pa.array(["a", "b", "c"], pa.large_string()),
                "u": pa.array([b"0" * 16] * 3, pa.uuid()),
                "n": pa.nulls(3),
            }
        )
        pq.write_table(source, tmp_path / "a.parquet", row_group_size=2)
        files = find_inputs([str(tmp_path)])
        columns = read_columns(files)
        found = [item for fragment in cut(files) for item in read(fragment, ())]
        table = output_rows(found, [ValueError("x")] * 3, ["r"] * 3, columns, ())
        expected = source.set_column(4, "c", source["c"].cast(pa.string())).set_column(7, "n", pa.nulls(3, pa.string()))
        assert table.select(columns.names).equals(expected)
        write_part(tmp_path, 7, [table], table.schema)
        assert pq.read_table(tmp_path / part_name(7), columns=list(columns.names)).equals(expected)

    def test_records_of_any_order_and_origin_find_their_row(self):
        batch, other = pa.record_batch({"id": [1, 2, 3], "text": ["a", "b", "c"]}), pa.record_batch({"id": [9]})
        first, second, third = records_of(batch)
        (ninth,) = records_of(other)
        mixed = [third, first, second, record(1, id=5), ninth, Record("a", 1, {}, RecordError("x"))]
        table = output_rows(mixed, [ValueError("x")] * 6, ["r"] * 6, COLUMNS, ())
        assert table["id"].to_pylist() == [3, 1, 2, 5, 9, None]
        assert table["text"].to_pylist() == ["c", "a", "b", None, None, None]


class TestParts:
    def table(self, *numbers: int) -> pa.Table:
        return pa.table({"n": pa.array(numbers, pa.int64())})

    def test_a_part_is_written_under_its_number(self, tmp_path):
        written = write_part(tmp_path, 42, [self.table(1), self.table(), self.table(2, 3)], self.table().schema)
        assert written == 3
        assert [path.name for path in tmp_path.iterdir()] == ["part-00042.parquet"]
        file = pq.ParquetFile(tmp_path / "part-00042.parquet")
        assert file.read()["n"].to_pylist() == [1, 2, 3]
        assert file.metadata.num_row_groups == 1
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"

    def test_rows_are_written_as_they_come(self, tmp_path, monkeypatch):
        monkeypatch.setattr("pipelines.sinks.parts._GROUP_ROWS", 2)
        write_part(tmp_path, 0, (self.table(n) for n in range(5)), self.table().schema)
        assert pq.ParquetFile(tmp_path / part_name(0)).metadata.num_row_groups == 3

    def test_no_rows_still_have_the_schema(self, tmp_path):
        assert write_part(tmp_path, 0, [], self.table().schema) == 0
        assert pq.read_table(tmp_path / part_name(0)).equals(self.table())

    def test_a_part_is_replaced_as_a_whole(self, tmp_path):
        for number in (1, 2):
            write_part(tmp_path, 0, [self.table(number)], self.table().schema)
        assert pq.read_table(tmp_path / part_name(0))["n"].to_pylist() == [2]

    def test_a_footer_is_asked_for_after_the_last_row(self, tmp_path):
        seen: list[int] = []

        def tables() -> Iterator[pa.Table]:
            yield self.table(1)
            seen.append(1)

        write_part(tmp_path, 0, tables(), self.table().schema, lambda: {"seen": str(len(seen))})
        assert (pq.read_metadata(tmp_path / part_name(0)).metadata or {})[b"seen"] == b"1"

    def test_failing_tables_leave_nothing_behind_and_keep_the_old_part(self, tmp_path):
        def tables() -> Iterator[pa.Table]:
            yield self.table(5)
            raise KeyError("no more")

        with pytest.raises(KeyError, match="no more"):
            write_part(tmp_path, 1, tables(), self.table().schema)
        assert list(tmp_path.iterdir()) == []
        write_part(tmp_path, 1, [self.table(4)], self.table().schema)
        with pytest.raises(KeyError):
            write_part(tmp_path, 1, tables(), self.table().schema)
        assert [path.name for path in tmp_path.iterdir()] == [part_name(1)]
        assert pq.read_table(tmp_path / part_name(1))["n"].to_pylist() == [4]

    def test_a_failing_disk_leaves_nothing_behind(self, tmp_path, monkeypatch):
        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_part(tmp_path, 1, [self.table(1)], self.table().schema)
        assert list(tmp_path.iterdir()) == []

    def test_only_complete_parts_are_committed_and_leavings_can_be_removed(self, tmp_path):
        write_part(tmp_path, 3, [], self.table().schema)
        write_part(tmp_path, 123_456, [], self.table().schema)
        for name in ("_unfinished-x-part-00004.parquet", "part-5.parquet", "part-00006.parquet.tmp", "other.parquet"):
            (tmp_path / name).write_bytes(b"")
        assert committed_parts(tmp_path) == {3, 123_456}
        assert [file.path for file in find_inputs([str(tmp_path)]) if "_unfinished" in file.path] == []
        assert remove_unfinished(tmp_path) == 1
        assert not list(tmp_path.glob("_unfinished*"))


class TestManifest:
    def manifest(self, mark: str = "f" * 64) -> Manifest:
        return Manifest(mark, 3, 5001, (FILE,))

    def test_it_is_read_as_it_was_written(self, tmp_path):
        folder = tmp_path / "new" / "out"
        write_manifest(folder, self.manifest())
        write_manifest(folder, self.manifest())
        assert read_manifest(folder) == self.manifest()
        assert [path.name for path in folder.iterdir()] == [MANIFEST_NAME]
        content = json.loads((folder / MANIFEST_NAME).read_text())
        assert (content["version"], content["fragments"]) == (1, {"count": 3, "rows": 5001})

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "not a manifest that can be read"),
            ("[]", "not a manifest that can be read"),
            ('{"version": 1}', "not a manifest that can be read"),
            ('{"version": 99}', "format version 99, not 1"),
            (None, "not a manifest that can be read"),
        ],
    )
    def test_one_that_cannot_be_used_is_refused(self, tmp_path, content, message):
        if content is not None:
            (tmp_path / MANIFEST_NAME).write_text(content)
        with pytest.raises(InputError, match=message):
            read_manifest(tmp_path)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match=r"file: cannot be written to: .*; choose another --output"):
            write_manifest(tmp_path / "file", self.manifest())

    def test_new_and_empty_folders_are_fresh_and_the_same_run_goes_on(self, tmp_path):
        folder = tmp_path / "out"
        assert check_output_folder(folder, "a") == "fresh"
        folder.mkdir()
        (folder / "_unfinished-1-_laya_manifest.json").write_text("")
        assert check_output_folder(folder, "a") == "fresh"
        write_manifest(folder, self.manifest("a"))
        write_part(folder, 0, [], pa.schema([]))
        assert check_output_folder(folder, "a") == "resume"

    def test_other_folders_are_refused_with_the_mend(self, tmp_path):
        write_manifest(tmp_path / "other", self.manifest("b"))
        with pytest.raises(InputError, match=r"other: holds the output of another job .*; choose a new --output, or"):
            check_output_folder(tmp_path / "other", "a")
        with pytest.raises(InputError, match=r"holds something that is no output of this program \(other\)"):
            check_output_folder(tmp_path, "a")
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="file: cannot be an output folder"):
            check_output_folder(tmp_path / "file", "a")


class TestFingerprint:
    def mark(self, **changes: Any) -> str:
        given: dict[str, Any] = {
            "files": [FILE],
            "questions": {"a": question(), "b": question()},
            "model": "english",
            "state_columns": ("text",),
            "rows_per_fragment": 2000,
            "settings": {"long": False},
        }
        return fingerprint(**{**given, **changes})

    def test_it_is_the_same_for_the_same_run(self):
        assert self.mark() == self.mark(state_columns=["text"])
        assert len(self.mark()) == 64

    @pytest.mark.parametrize(
        "changes",
        [
            {"files": []},
            {"files": [InputFile("/data/b.csv", "csv", 10, 123)]},
            {"files": [InputFile("/data/a.csv", "csv", 11, 123)]},
            {"files": [InputFile("/data/a.csv", "csv", 10, 124)]},
            {"questions": {"b": question(), "a": question()}},
            {"questions": {"a": question(criteria={"b": "y", "a": "x"}), "b": question()}},
            {"model": "mini"},
            {"state_columns": ("text", "subject")},
            {"rows_per_fragment": 1000},
            {"settings": None},
        ],
    )
    def test_whatever_decides_the_output_changes_it(self, changes):
        assert self.mark(**changes) != self.mark()

    def test_keys_that_json_writes_alike_are_told_apart(self):
        marks = {self.mark(questions={"a": question(criteria={label: "x"})}) for label in (1, "1", True, "true", 1.5)}
        assert len(marks) == 5

    def test_values_that_json_cannot_hold_count_too(self):
        assert self.mark(settings={"day": date(2026, 1, 5)}) != self.mark(settings={"day": date(2026, 1, 6)})
