"""The writing side: one schema whatever happens, every row in its place, parts that are whole or absent, folders that never mix."""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laya.questions import parse_questions
from pipelines.errors import InputError, RecordError
from pipelines.sinks import output_rows, output_schema
from pipelines.sources import InputColumns, Record, find_inputs, read, records_of, survey

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
    "team_abstain": True,
    "urgency": 0.75,
    "urgency_confidence": 0.75,
    "urgency_probabilities": {"0": 0.25, "1": 0.75},
    "urgency_abstain": None,
    "3": 1.0,
    "3_confidence": 1.0,
    "3_abstain": False,
}
THRESHOLDS = {"team": 0.61, "3": 1.0}
NOTED: dict[str, Any] = {"model": "english", "reason": "Latin script", "tokens": 41, "truncated": True, "windows": 3, "error": None}


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
            ("team_abstain", "bool"),
            ("urgency", "double"),
            ("urgency_confidence", "double"),
            ("urgency_probabilities", "struct<0: double, 1: double>"),
            ("urgency_abstain", "bool"),
            ("3", "double"),
            ("3_confidence", "double"),
            ("3_abstain", "bool"),
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
            THRESHOLDS,
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
        first, second = rows_of(output_rows([record(1, id=1), record(2, id=2)], [bad, RESULT], ["r", "s"], COLUMNS, QUESTIONS, THRESHOLDS))
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
        surveyed = survey(find_inputs([str(tmp_path)]))
        found = [item for fragment in surveyed.fragments for item in read(fragment)]
        columns = surveyed.columns
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
        surveyed = survey(find_inputs([str(tmp_path)]))
        columns = surveyed.columns
        found = [item for fragment in surveyed.fragments for item in read(fragment, ())]
        table = output_rows(found, [ValueError("x")] * 3, ["r"] * 3, columns, ())
        expected = source.set_column(4, "c", source["c"].cast(pa.string())).set_column(7, "n", pa.nulls(3, pa.string()))
        assert table.select(columns.names).equals(expected)

    def test_records_of_any_order_and_origin_find_their_row(self):
        batch, other = pa.record_batch({"id": [1, 2, 3], "text": ["a", "b", "c"]}), pa.record_batch({"id": [9]})
        first, second, third = records_of(batch)
        (ninth,) = records_of(other)
        mixed = [third, first, second, record(1, id=5), ninth, Record("a", 1, {}, RecordError("x"))]
        table = output_rows(mixed, [ValueError("x")] * 6, ["r"] * 6, COLUMNS, ())
        assert table["id"].to_pylist() == [3, 1, 2, 5, 9, None]
        assert table["text"].to_pylist() == ["c", "a", "b", None, None, None]
