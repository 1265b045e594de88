"""Logits become answers: shapes, roundings, ties, and what is refused rather than reported."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laya.answers import decode_answer, probabilities
from laya.questions import Question, parse_questions


def question(**spec: Any) -> Question:
    return parse_questions({"lane": {"instructions": "x", **spec}})[0]


TEAM = question(type="choice", criteria=["a", "b", "c"])
URGENCY = question(type="score", criteria=["can wait", {"by": "friday"}, "right now"])
REFUND = question(type="noul")


def logits(*p: float) -> list[float]:
    return [math.log(value) for value in p]


class TestShapes:
    def test_choice(self) -> None:
        entropy = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
        assert decode_answer(TEAM, logits(0.25, 0.5, 0.25), 0.12345, 1.0) == {
            "type": "choice",
            "choice": "b",
            "probabilities": {"a": 0.25, "b": 0.5, "c": 0.25},
            "confidence": round(1 - entropy / math.log(3), 4),
            "answer_confidence": 0.5,
            "action": {"act_probability": 0.1235},
        }

    def test_score(self) -> None:
        entropy = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
        assert decode_answer(URGENCY, logits(0.2, 0.3, 0.5), 1.0, 1.0) == {
            "type": "score",
            "score": 1.3,
            "legend": {"0": "can wait", "1": '{"by": "friday"}', "2": "right now"},
            "probabilities": {"0": 0.2, "1": 0.3, "2": 0.5},
            "confidence": round(1 - entropy / math.log(3), 4),
            "answer_confidence": 0.5,
            "action": {"act_probability": 1.0},
        }

    @pytest.mark.parametrize(("p_true", "confidence"), [(0.8, 0.8), (0.3, 0.7), (0.5, 0.5)])
    def test_noul(self, p_true: float, confidence: float) -> None:
        assert decode_answer(REFUND, logits(1 - p_true, p_true), 0.0, 1.0) == {
            "type": "noul",
            "noul": p_true,
            "confidence": confidence,
            "answer_confidence": confidence,
            "action": {"act_probability": 0.0},
        }

    def test_choice_answers_with_the_callers_own_labels(self) -> None:
        found = decode_answer(question(type="choice", criteria=[True, 2, 2.5]), logits(0.5, 0.3, 0.2), 0.0, 1.0)
        assert found["choice"] is True
        assert [(label, type(label)) for label in found["probabilities"]] == [(True, bool), (2, int), (2.5, float)]


class TestOptionOrder:
    def test_logits_come_by_slot_and_answers_in_the_callers_order(self) -> None:
        turned = question(type="choice", criteria=["a", "b", "c"], option_order=[2, 0, 1])
        found = decode_answer(turned, logits(0.6, 0.3, 0.1), 0.0, 1.0)
        assert found["choice"] == "c"
        assert list(found["probabilities"].items()) == [("a", 0.3), ("b", 0.1), ("c", 0.6)]

    def test_noul(self) -> None:
        assert decode_answer(question(type="noul", option_order=[1, 0]), logits(0.9, 0.1), 0.0, 1.0)["noul"] == 0.9

    def test_score(self) -> None:
        turned = question(type="score", criteria=["low", "high"], option_order=[1, 0])
        found = decode_answer(turned, logits(0.75, 0.25), 0.0, 1.0)
        assert (found["score"], found["probabilities"], found["legend"]) == (0.75, {"0": 0.25, "1": 0.75}, {"0": "low", "1": "high"})


class TestTies:
    def test_the_first_in_the_callers_order(self) -> None:
        assert decode_answer(TEAM, [1.0, 2.0, 2.0], 0.0, 1.0)["choice"] == "b"

    def test_whatever_the_slots(self) -> None:
        turned = question(type="choice", criteria=["a", "b", "c"], option_order=[2, 1, 0])
        assert decode_answer(turned, [5.0, 5.0, 5.0], 0.0, 1.0)["choice"] == "a"


class TestOneOption:
    def test_choice(self) -> None:
        found = decode_answer(question(type="choice", criteria={"read": "it was"}), [-3.2], 0.5, 1.3)
        assert (found["choice"], found["probabilities"]) == ("read", {"read": 1.0})
        assert (found["confidence"], found["answer_confidence"]) == (1.0, 1.0)

    def test_score(self) -> None:
        found = decode_answer(question(type="score", criteria=["only"]), [700.0], 0.5, 1.0)
        assert (found["score"], found["probabilities"], found["confidence"]) == (0.0, {"0": 1.0}, 1.0)


class TestRounding:
    @pytest.mark.parametrize("n", [2, 3, 5, 7, 10, 11, 64])
    def test_equal_options_have_a_confidence_of_plain_zero(self, n: int) -> None:
        found = decode_answer(question(type="choice", criteria=[f"l{index}" for index in range(n)]), [0.3] * n, 0.0, 1.0)
        assert found["confidence"] == 0
        assert math.copysign(1, found["confidence"]) == 1

    def test_no_value_is_a_negative_zero(self) -> None:
        found = decode_answer(URGENCY, [0.0, -800.0, -800.0], -0.0, 1.0)
        for value in (found["score"], found["confidence"], found["action"]["act_probability"], *found["probabilities"].values()):
            assert math.copysign(1, value) == 1

    def test_four_decimals(self) -> None:
        found = decode_answer(TEAM, logits(1 / 3, 1 / 3, 1 / 3), 2 / 3, 1.0)
        assert found["probabilities"] == {"a": 0.3333, "b": 0.3333, "c": 0.3333}
        assert (found["answer_confidence"], found["action"]) == (0.3333, {"act_probability": 0.6667})


class TestTemperature:
    def test_it_divides_the_logits(self) -> None:
        assert probabilities([0.0, 2.0], 2.0) == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])

    def test_it_reaches_the_answer(self) -> None:
        assert decode_answer(REFUND, [0.0, 2.0], 0.0, 2.0)["noul"] == round(math.e / (1 + math.e), 4)

    def test_huge_logits_do_not_overflow(self) -> None:
        assert probabilities([1e4, 0.0, -1e4], 0.5) == [1.0, 0.0, 0.0]


class TestBrokenModel:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_logit_that_is_not_finite(self, bad: float, place: int) -> None:
        row = [0.1, 0.2, 0.3]
        row[place] = bad
        with pytest.raises(ArithmeticError, match="'lane'"):
            decode_answer(TEAM, row, 0.5, 1.0)

    def test_an_act_probability_that_is_not_a_number(self) -> None:
        with pytest.raises(ArithmeticError, match="'lane'"):
            decode_answer(TEAM, [0.1, 0.2, 0.3], math.nan, 1.0)


@given(
    row=st.lists(st.floats(-50, 50), min_size=1, max_size=30),
    temperature=st.floats(0.5, 5.0),
    act=st.floats(0, 1),
    kind=st.sampled_from(["choice", "score"]),
)
def test_any_answer_is_sound(row: list[float], temperature: float, act: float, kind: str) -> None:
    asked = question(type=kind, criteria=[f"l{index}" for index in range(len(row))])
    found = decode_answer(asked, row, act, temperature)
    shares = list(found["probabilities"].values())
    assert sum(shares) == pytest.approx(1, abs=1e-4 * len(row))
    assert found["answer_confidence"] == max(shares)
    assert 0 <= found["confidence"] <= 1
    json.dumps(found, allow_nan=False)
    if kind == "choice":
        assert found["probabilities"][found["choice"]] == max(shares)
    else:
        assert 0 <= found["score"] <= len(row) - 1
