"""The configuration of a job: files, flags over files, and what is refused."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from pipelines import InputError, ScoreConfig
from pipelines.config import load_config

JOBS = sorted(
    (entry for entry in (resources.files("configs") / "jobs").iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
)
LEAST = {"inputs": "in.jsonl", "output": "out", "questions": "tickets"}


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_every_job_that_ships_is_one(job):
    config = load_config(str(job), {})
    assert config.inputs
    assert config.output


def test_every_field_is_described():
    assert [name for name, field in ScoreConfig.model_fields.items() if not field.description] == []


def test_flags_count_more_than_the_file(tmp_path):
    path = written(tmp_path, "inputs: in.jsonl\noutput: out\nquestions: tickets\nagents: 2\nmodel: english\n")
    config = load_config(path, {"agents": 4, "inputs": ("a.csv", "b.csv")})
    assert (config.agents, config.model, config.inputs) == (4, "english", ("a.csv", "b.csv"))


def test_questions_may_stand_in_the_file_and_no_is_a_word_there(tmp_path):
    text = "inputs: in.jsonl\noutput: out\nquestions:\n  answer:\n    type: choice\n    instructions: Which?\n    criteria: [no, yes, on]\n"
    questions = load_config(written(tmp_path, text), {}).questions
    assert isinstance(questions, dict)
    assert questions["answer"]["criteria"] == ["no", "yes", "on"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"agent": 2}, r"agent: no such field; the fields are questions, .*agents"),
        ({"agents": 0}, "agents: .*greater than or equal to 1"),
        ({"questions": None}, "give either questions .* or questions_column"),
        ({"questions_column": "q"}, "give either questions .* or questions_column"),
        ({"output": "  "}, "output is empty"),
        ({"abstain_output": "review"}, "abstain_output needs min_confidence"),
        ({"window": 64}, "window and stride are for long: scan"),
        ({"long": "scan", "window": 64, "stride": 65}, "stride 65 is wider than the window of 64"),
        ({"questions": None, "questions_column": "q", "labels": {"a": "b"}}, "labels need questions that all rows share"),
        ({"min_confidence": 1.5}, "min_confidence.*less than or equal to 1"),
        ({"min_confidence": True}, "min_confidence"),
        ({"min_confidence": {"a": "high"}}, "min_confidence"),
        ({"format": "csv"}, "format: .*'parquet' or 'jsonl'"),
    ],
)
def test_what_is_refused_says_the_field_and_the_mend(change, told):
    with pytest.raises(InputError, match=told) as caught:
        load_config(None, {**LEAST, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n- b\n", "must map field names to values"),
        ("inputs: [\n", "is not valid YAML"),
        ("inputs: a\ninputs: b\n", "key 'inputs' stands twice"),
        ("output: out\nquestions: tickets\n", "inputs: missing"),
        ("{a: 1}: b\n", "line 1, column 1: {'a': 1} cannot be a key"),
        ("&a [*a]\n", "map field names"),
    ],
)
def test_a_file_that_is_no_job_is_named(tmp_path, text, told):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=told) as caught:
        load_config(path, {})
    assert path in str(caught.value)
