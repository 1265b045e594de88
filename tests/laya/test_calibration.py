"""Temperatures of a checkpoint: which one a question gets, and what happens to unusable ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

from laya.calibration import Temperatures, option_bucket
from laya.questions import Question, parse_questions

SOURCE = "some/rl_agent_config.json"


def choice(n: int) -> Question:
    return parse_questions({"q": {"type": "choice", "instructions": "x", "criteria": [f"l{index}" for index in range(n)]}})[0]


def score(n: int) -> Question:
    return parse_questions({"q": {"type": "score", "instructions": "x", "criteria": [f"l{index}" for index in range(n)]}})[0]


NOUL = parse_questions({"q": {"type": "noul", "instructions": "x"}})[0]


@pytest.mark.parametrize(
    ("n", "bucket"), [(1, "2"), (2, "2"), (3, "3-5"), (5, "3-5"), (6, "6-10"), (10, "6-10"), (11, "11+"), (400, "11+")]
)
def test_buckets(n: int, bucket: str) -> None:
    assert option_bucket(n) == bucket


def test_one_temperature_a_type() -> None:
    temperatures = Temperatures.from_config({"temperature": [1.2, 1.1, 0.9]}, SOURCE)
    assert [temperatures.of(question) for question in (choice(3), score(3), NOUL)] == [1.2, 1.1, 0.9]


def test_that_of_the_options_comes_first() -> None:
    by_options = {"choice:2": 1.3, "choice:3-5": 1.5, "score:6-10": 0.8, "choice:11+": 2.5, "noul:2": 3.0}
    temperatures = Temperatures.from_config({"temperature": [1.2, 1.1, 0.9], "temperature_by_options": by_options}, SOURCE)
    assert [temperatures.of(choice(n)) for n in (1, 2, 3, 5, 6, 10, 11)] == [1.3, 1.3, 1.5, 1.5, 1.2, 1.2, 2.5]
    assert [temperatures.of(score(n)) for n in (2, 5, 6, 10, 11)] == [1.1, 1.1, 0.8, 0.8, 1.1]
    assert temperatures.of(NOUL) == 3.0


def test_without_any_it_is_one() -> None:
    assert [Temperatures.from_config({}, SOURCE).of(question) for question in (choice(2), score(2), NOUL)] == [1.0] * 3


@pytest.mark.parametrize(
    ("value", "used"),
    [
        pytest.param(0.1006, 0.5, id="too small"),
        pytest.param(9.0, 5.0, id="too large"),
        pytest.param(0, 0.5, id="zero"),
        pytest.param(-2, 0.5, id="negative"),
        pytest.param(True, 1.0, id="a bool is no number"),
        pytest.param(None, 1.0, id="null"),
        pytest.param("warm", 1.0, id="text"),
        pytest.param([1.0], 1.0, id="list"),
        pytest.param(math.nan, 1.0, id="NaN"),
        pytest.param(math.inf, 1.0, id="infinity"),
        pytest.param(-math.inf, 1.0, id="negative infinity"),
        pytest.param(10**400, 1.0, id="an int beyond any float"),
    ],
)
def test_unusable_ones_are_replaced_and_named(value: Any, used: float) -> None:
    with pytest.warns(RuntimeWarning) as caught:
        temperatures = Temperatures.from_config({"temperature": [2.0, value, 2.0]}, SOURCE)
    assert temperatures.by_type == (2.0, used, 2.0)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert SOURCE in message
    assert "temperature[1]" in message
    assert "temperature[0]" not in message
    assert f"by {used}" in message


@pytest.mark.parametrize("value", [0.5, 5.0, 1, "1.5"])
def test_what_float_takes_is_a_number(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        temperatures = Temperatures.from_config({"temperature": [value, 1.0, 1.0]}, SOURCE)
    assert temperatures.of(choice(3)) == float(value)


def test_one_warning_names_everything_that_was_replaced() -> None:
    config = {"temperature": [0.1, 1.0, None], "temperature_by_options": {"choice:2": 70, "score:2": 1.5, "noul:2": False}}
    with pytest.warns(RuntimeWarning) as caught:
        temperatures = Temperatures.from_config(config, SOURCE)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert all(name in message for name in ("temperature[0]", "temperature[2]", "choice:2", "noul:2"))
    assert "score:2" not in message
    assert (temperatures.of(choice(2)), temperatures.of(score(2)), temperatures.of(NOUL)) == (5.0, 1.5, 1.0)


@pytest.mark.parametrize("listed", [[], [1.0], [1.0, 1.0], [1.0] * 4, 1.0, "1.0", {"choice": 1.0}, None])
def test_wrong_length_is_refused(listed: Any) -> None:
    with pytest.raises(ValueError, match=rf"{SOURCE}.*temperature"):
        Temperatures.from_config({"temperature": listed}, SOURCE)


@pytest.mark.parametrize("named", [[], 1.0, "choice:2"])
def test_temperature_by_options_is_a_mapping(named: Any) -> None:
    with pytest.raises(ValueError, match=rf"{SOURCE}.*temperature_by_options"):
        Temperatures.from_config({"temperature_by_options": named}, SOURCE)
