"""Question files: what they may hold, and what is said of those that may not."""

from __future__ import annotations

import json

import pytest

from pipelines.errors import InputError
from pipelines.question_files import bundled_questions, load_questions, parse_question_text


@pytest.mark.parametrize("name", bundled_questions())
def test_every_bundled_file_loads(name):
    questions, parsed = load_questions(name)
    assert [question.qid for question in parsed] == list(questions)


def test_json_is_yaml(tmp_path):
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"angry": {"type": "noul", "instructions": "angry?"}}))
    assert load_questions(str(path))[1][0].type == "noul"


def test_words_that_look_like_booleans_or_dates_stay_words():
    text = "q: {type: choice, instructions: x, criteria: [no, yes, on, 2024-01-01, true]}"
    assert parse_question_text(text, "q.yaml")[0]["q"]["criteria"] == ["no", "yes", "on", "2024-01-01", True]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must map question ids"),
        ("[1, 2]", "must map question ids"),
        ("q: {type: choice", "not valid YAML: line 1, column 17: expected ',' or '}'"),
        ("q: {type: noul, instructions: x}\nq: {}", "line 2, column 1: key 'q' stands twice"),
        ("q: {type: noul, instructions: x, critera: {}}", "question 'q': there is no key 'critera'; did you mean 'criteria'?"),
        ("q: {type: noul, instructions: a}\nq: {type: noul, instructions: b}", "'q' stands twice"),
        ("q: {type: bool, instructions: a}", "question 'q': type must be"),
        ("q: {type: choice, instructions: a, criteria: {a: x, a: y}}", "'a' stands twice"),
    ],
)
def test_refusals_are_one_line_that_names_the_file(text, told):
    with pytest.raises(InputError) as caught:
        parse_question_text(text, "q.yaml")
    message = str(caught.value)
    assert message.startswith("question file q.yaml")
    assert told in message
    assert "\n" not in message


def test_a_key_that_means_nothing_is_told():
    with pytest.warns(
        RuntimeWarning, match="question 'q': the key 'threshold' means nothing and is left out; the keys of a question are type"
    ):
        load_questions({"q": {"type": "noul", "instructions": "x", "threshold": 0.9}})


def test_an_unknown_file_names_the_bundled_ones():
    with pytest.raises(InputError, match="tickets"):
        load_questions("no-such-file.yaml")
