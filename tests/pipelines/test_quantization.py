"""`laya export-onnx --int8`: what it is measured on, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import laya
from pipelines.cli import main
from pipelines.errors import InputError
from pipelines.quantization import measure_cost, read_labelled_texts

QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
ROWS: list[dict[str, Any]] = [
    {"text": "I was charged twice", "team": "billing", "angry": "yes"},
    {"text": None, "team": "billing", "angry": "yes"},
    {"text": "where is my parcel", "team": "delivery", "angry": "no"},
]


@pytest.fixture
def sample(tmp_path: Path) -> tuple[str, str]:
    """A data set and its questions, as files."""
    texts, questions = tmp_path / "texts.jsonl", tmp_path / "questions.json"
    texts.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    questions.write_text(json.dumps(QUESTIONS), encoding="utf-8")
    return str(texts), str(questions)


class TestTexts:
    def test_those_that_ship_with_the_package_are_labelled(self) -> None:
        found = read_labelled_texts([])
        assert len(found.states) == len(found.truths) == 240
        assert found.states[0].keys() == {"subject", "text"}
        assert found.truths[0].keys() == {str(question.qid) for question in found.questions}

    def test_rows_that_cannot_be_read_are_passed_over(self, sample: tuple[str, str]) -> None:
        found = read_labelled_texts([sample[0]], sample[1], labels={"team": "team"})
        assert found.states == ["I was charged twice", "where is my parcel"]
        assert found.truths == [{"team": "billing"}, {"team": "delivery"}]

    def test_nothing_to_read_is_an_error(self, sample: tuple[str, str], tmp_path: Path) -> None:
        empty = tmp_path / "empty.jsonl"
        empty.write_text('{"text": null}\n')
        with pytest.raises(InputError, match="no row can be read"):
            read_labelled_texts([str(empty)], sample[1])

    @pytest.mark.parametrize("wrong", [{"state": ("txt",)}, {"labels": {"team": "tem"}}, {"labels": {"nope": "team"}}])
    def test_wrong_columns_are_named(self, sample: tuple[str, str], wrong: Any) -> None:
        with pytest.raises(InputError, match=r"txt|tem|nope"):
            read_labelled_texts([sample[0]], sample[1], **wrong)


class TestCost:
    def test_an_agent_against_itself_changes_nothing(self, sample: tuple[str, str], tiny: laya.Agent) -> None:
        cost = measure_cost(tiny, tiny, read_labelled_texts([sample[0]], sample[1], labels={"team": "team", "angry": "angry"}))
        assert dict(cost.changed) == {"team": 0, "angry": 0}
        assert cost.largest == {"team": 0.0, "angry": 0.0}
        assert cost.before == cost.after
        assert cost.before.questions["team"].evaluation.rows == 2

    def test_two_agents_that_differ(self, sample: tuple[str, str], tiny: laya.Agent, mini: laya.Agent) -> None:
        texts = read_labelled_texts([sample[0]], sample[1], labels={"team": "team"})
        cost = measure_cost(tiny, mini, texts)
        decisions = [
            [result["answers"]["team"]["choice"] for result in agent.predict_batch(texts.states, QUESTIONS)] for agent in (tiny, mini)
        ]
        assert cost.changed["team"] == sum(old != new for old, new in zip(*decisions, strict=True))
        assert cost.largest["team"] > 0.01
        assert cost.after.questions["team"].evaluation.right == sum(
            found == truth["team"] for found, truth in zip(decisions[1], texts.truths, strict=True)
        )


class TestCommand:
    @pytest.mark.slow
    def test_int8_says_what_it_costs(
        self, sample: tuple[str, str], quiet_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = tmp_path / "out.onnx"
        main(
            [
                "export-onnx",
                "-m",
                str(quiet_folder),
                "-o",
                str(target),
                "--int8",
                "--texts",
                sample[0],
                "-q",
                sample[1],
                "--labels",
                "team=team",
            ]
        )
        printed = capsys.readouterr()
        assert f"{target}: " in printed.out
        assert "int8" in printed.out
        assert [line.split()[0] for line in printed.out.splitlines()[-2:]] == ["team", "angry"]
        assert "on 2 texts" in printed.err
        assert laya.ONNXAgent(str(quiet_folder), str(target)).describe()["precision"] == "int8"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--texts", "x.jsonl"],
            ["--int8", "--labels", "team=team"],
            ["--int8", "--texts", "nowhere.jsonl"],
            ["--int8", "--questions", "nowhere.yaml"],
            ["--model", "nowhere"],
            ["--output", "."],
        ],
    )
    def test_what_is_wrong_ends_in_one_line(self, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["export-onnx", "--model", "mini", "--output", str(tmp_path / "out.onnx"), *arguments])
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (2, "")
        assert len(printed.err.splitlines()) == 1
        assert not (tmp_path / "out.onnx").exists()
