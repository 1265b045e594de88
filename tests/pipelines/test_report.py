"""Counts that add up, and labels in the words of the answers."""

from __future__ import annotations

import pytest
from rich.console import Console

from laya.questions import parse_questions
from pipelines.report import Summary, Tally, decided, label_text, print_summary

TEAM, URGENCY, ANGRY = parse_questions(
    {
        "team": {"type": "choice", "instructions": "?", "criteria": ["billing", 7]},
        "urgency": {"type": "score", "instructions": "?", "criteria": ["low", "middle", "high"]},
        "angry": {"type": "noul", "instructions": "?"},
    }
)


def result(team, urgency, angry, truncated=False):
    return {
        "answers": {
            "team": {"type": "choice", "choice": team, "answer_confidence": 0.5},
            "urgency": {"type": "score", "score": urgency, "answer_confidence": 0.75},
            "angry": {"type": "noul", "noul": angry, "answer_confidence": 0.9},
        },
        "usage": {"input_tokens": 10, "truncated": truncated},
        "routing": {"model": "mini"},
    }


def tally_of(*rows):
    tally = Tally()
    for row, truths in rows:
        tally.add_result(row, (TEAM, URGENCY, ANGRY), truths)
    return tally


@pytest.mark.parametrize(
    ("question", "truth", "text"),
    [
        (TEAM, "billing", "billing"),
        (TEAM, 7, "7"),
        (TEAM, "7", "7"),
        (TEAM, "sales", None),
        (TEAM, None, None),
        (URGENCY, 2, "2"),
        (URGENCY, "2", "2"),
        (URGENCY, 1.0, "1"),
        (URGENCY, 3, None),
        (URGENCY, 0.5, None),
        (URGENCY, "soon", None),
        (ANGRY, True, "yes"),
        (ANGRY, "False", "no"),
        (ANGRY, 1, "yes"),
        (ANGRY, "", None),
        (ANGRY, "maybe", None),
    ],
)
def test_labels_are_read_in_the_words_of_the_answers(question, truth, text):
    assert label_text(question, truth) == text


def test_decisions():
    answers = result(7, 1.6, 0.5)["answers"]
    assert [decided(answers[qid]) for qid in ("team", "urgency", "angry")] == ["7", "2", "yes"]


def test_accuracy_counts_only_labelled_rows():
    tally = tally_of(
        (result("billing", 0.2, 0.9), {"team": "billing", "urgency": 1, "angry": True}),
        (result("billing", 2.0, 0.1), {"team": 7, "urgency": "2", "angry": None}),
    )
    team, urgency, angry = (tally.questions[qid] for qid in ("team", "urgency", "angry"))
    assert (team.right, team.labelled) == (1, 2)
    assert (urgency.right, urgency.labelled, urgency.level_error) == (1, 2, pytest.approx(0.8))
    assert (angry.right, angry.labelled) == (1, 1)


def test_parts_add_up_to_the_whole():
    rows = [
        (result("billing", 0.2, 0.9), {"team": "billing"}),
        (result(7, 2.0, 0.1, truncated=True), {"urgency": 2}),
        (result(7, 1.0, 0.1), {}),
    ]
    whole = tally_of(*rows)
    whole.add_error(KeyError("x"))
    first, second = tally_of(rows[0]), tally_of(*rows[1:])
    second.add_error(KeyError("y"))
    assert Tally.total([first.to_json(), second.to_json()]) == whole


def test_brackets_in_labels_and_paths_are_text():
    tally = tally_of((result("[bold]b", 0.2, 0.9), {}), (result("[/x] a", 0.2, 0.9), {}))
    console = Console(record=True, width=120)
    print_summary(Summary(tally, 0, 1.0, 1.0, "out/[x]", 1), (TEAM, URGENCY, ANGRY), console)
    text = console.export_text()
    for told in ("[bold]b: 1", "[/x] a: 1", "out/[x] (1 part file)"):
        assert told in text


def test_the_summary_says_what_happened():
    tally = tally_of((result("billing", 0.2, 0.9), {"team": "billing"}))
    tally.add_error(TypeError("state is None"))
    console = Console(record=True, width=120)
    print_summary(Summary(tally, 0, 12.0, 4.0, "out/x", 3), (TEAM, URGENCY, ANGRY), console)
    text = console.export_text()
    for told in (
        "rows        2",
        "errors      1  TypeError: 1",
        "0 rows/s",
        "accuracy 1.000 of 1",
        "commonest label 1.000",
        "out/x (3 part files)",
        "yes: 1",
    ):
        assert told in text
