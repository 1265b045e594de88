"""Counts that add up, answers against labels, and the summary that is printed."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from random import Random
from statistics import mean

import pytest
from rich.console import Console

from laya.questions import parse_questions
from pipelines.evaluation import RELIABILITY_BINS, decided, label_text
from pipelines.summary import Summary, print_summary
from pipelines.tally import EXAMPLES, Tally

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
            "team": {"type": "choice", "choice": team, "answer_confidence": 0.5, "probabilities": {"billing": 0.5, 7: 0.5}},
            "urgency": {"type": "score", "score": urgency, "answer_confidence": 0.75, "probabilities": {"0": 0.05, "1": 0.2, "2": 0.75}},
            "angry": {"type": "noul", "noul": angry, "answer_confidence": 0.9},
        },
        "usage": {"input_tokens": 10, "truncated": truncated},
        "routing": {"model": "mini", "reason": "asked for"},
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
        (URGENCY, 10**400, None),
        (URGENCY, float("inf"), None),
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
    team, urgency, angry = team.evaluation, urgency.evaluation, angry.evaluation
    assert (team.right, team.rows) == (1, 2)
    assert (urgency.right, urgency.rows, urgency.level_error) == (1, 2, pytest.approx(0.8))
    assert (angry.right, angry.rows) == (1, 1)


def test_a_column_of_whole_numbers_with_gaps_may_be_one_of_floats():
    labelled = (result("billing", 0.2, 0.9), {"team": 7.0, "urgency": float("nan"), "angry": 1.0})
    found = {qid: counts.evaluation for qid, counts in tally_of(labelled).questions.items()}
    assert [(found[qid].rows, found[qid].unusable) for qid in ("team", "urgency", "angry")] == [(1, 0), (0, 0), (1, 0)]
    assert found["team"].confusion["7", "billing"] == 1


def test_labels_that_are_no_answer_are_counted_apart_and_told():
    rows = [(result("billing", 0.2, 0.9), {"team": label}) for label in ("Billing", "billing", "", None, "Help")]
    tally = tally_of(*rows)
    found = tally.questions["team"].evaluation
    assert (found.rows, found.right, found.unusable, found.unusable_example) == (1, 1, 2, "Billing")
    again = Tally.from_dict(json.loads(json.dumps(tally.to_dict())))
    both = Tally.total([tally_of((result("billing", 0.2, 0.9), {})), again])
    assert (both.questions["team"].evaluation.unusable, both.questions["team"].evaluation.unusable_example) == (2, "Billing")
    console = Console(record=True, width=120)
    print_summary(Summary(tally_of(rows[0]), 0, 1.0, 1.0, "out", 1, (TEAM,)), console)
    assert "1 labels are no answer, e.g. 'Billing'" in console.export_text()


def test_brier_and_calibration_error_are_those_of_the_textbook():
    random = Random(7)
    confusion, brier, by_bin, tally = Counter[tuple[str, str]](), 0.0, defaultdict(list), Tally()
    for _ in range(500):
        share = round(random.random(), 4)
        label = random.choice(["billing", "7"])
        decision, confidence = ("billing", share) if share >= 0.5 else (7, 1 - share)
        answer = {"type": "choice", "choice": decision, "answer_confidence": confidence, "probabilities": {"billing": share, 7: 1 - share}}
        tally.add_result({"answers": {"team": answer}}, (TEAM,), {"team": label})
        brier += (share - (label == "billing")) ** 2 + (1 - share - (label == "7")) ** 2
        confusion[label, str(decision)] += 1
        by_bin[math.floor(confidence * RELIABILITY_BINS)].append((confidence, str(decision) == label))
    error = sum(len(rows) * abs(mean(row[0] for row in rows) - mean(row[1] for row in rows)) for rows in by_bin.values()) / 500
    found = tally.questions["team"].evaluation
    assert found.confusion == confusion
    assert found.mean_brier == pytest.approx(brier / 500)
    assert found.calibration_error == pytest.approx(error)
    assert found.accuracy == pytest.approx((confusion["billing", "billing"] + confusion["7", "7"]) / 500)


def test_a_sure_noul_that_is_wrong_costs_one():
    answer = {"type": "noul", "noul": 1.0, "answer_confidence": 1.0}
    tally = Tally()
    tally.add_result({"answers": {"angry": answer}}, (ANGRY,), {"angry": False})
    found = tally.questions["angry"].evaluation
    assert (found.mean_brier, found.calibration_error, found.confusion) == (1.0, 1.0, {("no", "yes"): 1})


def test_a_few_errors_are_kept_word_for_word_with_where_they_were():
    tally = Tally()
    for line in range(1, 10):
        tally.add_error(KeyError(f"veto {line}"), f"a.jsonl line {line}")
    tally.add_error(ValueError("a.jsonl line 11: half \ud83d of it"), "a.jsonl line 11")
    assert tally.errors == {"KeyError": 9, "ValueError": 1}
    assert tally.examples["KeyError"] == [f"a.jsonl line {line}: 'veto {line}'" for line in range(1, EXAMPLES + 1)]
    assert tally.examples["ValueError"] == ["a.jsonl line 11: half ? of it"]


def test_parts_add_up_to_the_whole():
    rows = [
        (result("billing", 0.2, 0.9), {"team": "billing"}),
        (result(7, 2.0, 0.1, truncated=True), {"urgency": 2}),
        (result(7, 1.0, 0.1), {}),
    ]
    whole = tally_of(*rows)
    whole.add_error(KeyError("x"), "a line 4")
    first, second = tally_of(rows[0]), tally_of(*rows[1:])
    second.add_error(KeyError("x"), "a line 4")
    assert Tally.total(Tally.from_dict(json.loads(json.dumps(part.to_dict()))) for part in (first, second)) == whole


def test_brackets_in_labels_and_paths_are_text():
    tally = tally_of((result("[bold]b", 0.2, 0.9), {}), (result("[/x] a", 0.2, 0.9), {}))
    console = Console(record=True, width=120)
    print_summary(Summary(tally, 0, 1.0, 1.0, "out/[x]", 1, (TEAM, URGENCY, ANGRY)), console)
    text = console.export_text()
    for told in ("[bold]b: 1", "[/x] a: 1", "out/[x] (1 part file)"):
        assert told in text


def test_the_summary_says_what_happened():
    tally = tally_of((result("billing", 0.2, 0.9), {"team": "billing"}))
    tally.add_error(TypeError("state is None"), "a line 2")
    console = Console(record=True, width=120)
    print_summary(Summary(tally, 0, 12.0, 4.0, "out/x", 3, (TEAM, URGENCY, ANGRY)), console)
    text = console.export_text()
    for told in (
        "rows        2",
        "errors      1  TypeError: 1",
        "e.g. a line 2: state is None",
        "0 rows/s",
        "accuracy 1.000 of 1",
        "commonest label 1.000",
        "out/x (3 part files)",
        "yes: 1",
    ):
        assert told in text


def test_the_summary_tells_how_sure_and_how_right_and_where_the_rest_lies():
    tally = Tally()
    for label in ("billing", 7):
        tally.add_result(result("billing", 0.2, 0.9), (TEAM, URGENCY, ANGRY), {"team": label}, {"team"})
    console = Console(record=True, width=120)
    print_summary(Summary(tally, 0, 1.0, 1.0, "out", 1, (TEAM,), "review", "out.report.html"), console)
    text = console.export_text()
    for told in ("unsure", "Brier score 0.500", "calibration error 0.000", "review      review (copies", "report      out.report.html"):
        assert told in text
