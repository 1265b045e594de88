"""States: the text that the model reads, and what is refused instead of being scored as something else."""

from __future__ import annotations

import datetime
import decimal
import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laya.states import serialize

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("text", ["", "  ", "plain", "two\nlines", '"quoted"', "Grüße 退款 👍🏽", "\u2028\x00"])
def test_a_text_stays_as_it_is(text: str) -> None:
    assert serialize(text) == text


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ({"b": 1, "a": "ü"}, '{"b": 1, "a": "ü"}'),
        ([{"role": "user", "content": "退款"}], '[{"role": "user", "content": "退款"}]'),
        ({"n": 12, "x": 12.0, "t": True, "none": None}, '{"n": 12, "x": 12.0, "t": true, "none": null}'),
        ("12", "12"),
        (12, "12"),
        (12.5, "12.5"),
        (True, "true"),
        (OrderedDict(z=1), '{"z": 1}'),
    ],
)
def test_anything_else_is_one_line_json_with_keys_in_order(state: Any, text: str) -> None:
    assert serialize(state) == text


@given(JSON_VALUES.filter(lambda value: value is not None and not isinstance(value, str)))
def test_json_survives(state: Any) -> None:
    text = serialize(state)
    assert json.loads(text) == state
    assert "\n" not in text


@pytest.mark.parametrize("state", [None, ("a", "b"), b"bytes", {"a"}, object(), datetime.date(2026, 1, 5), 1 + 2j])
def test_not_a_state(state: Any) -> None:
    with pytest.raises(TypeError, match=r"states\[3\]"):
        serialize(state, "states[3]")


@pytest.mark.parametrize(
    "part",
    [
        np.int64(7),
        np.bool_(True),
        np.array([1, 2]),
        decimal.Decimal("12.50"),
        datetime.datetime(2026, 1, 5, 10),
        b"bytes",
        {1, 2},
        float("nan"),
        float("inf"),
        np.float64("nan"),
    ],
    ids=str,
)
def test_what_json_cannot_hold_is_named_and_never_scored_as_text(part: Any) -> None:
    state = {"fine": [1, "two"], "row": [{"ok": 1}, {"field": part}]}
    with pytest.raises((TypeError, ValueError)) as caught:
        serialize(state, "states[1]")
    assert "states[1]['row'][1]['field']" in str(caught.value)


def test_a_key_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(TypeError, match=r"state\['a'\].*\(1, 2\)"):
        serialize({"a": {(1, 2): "x"}})


def test_a_key_that_is_not_finite_is_named() -> None:
    with pytest.raises(ValueError, match=r"state\['a'\].*nan"):
        serialize({"a": {float("nan"): "x"}})


def test_a_state_that_holds_itself() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(ValueError, match="state"):
        serialize(state)


def test_a_state_nested_beyond_any_limit() -> None:
    state: list[Any] = []
    for _ in range(200_000):
        state = [state]
    with pytest.raises(ValueError, match="state"):
        serialize(state)


@pytest.mark.parametrize("state", ["half \ud83d here", {"a": "\ud83d"}, {"\udc00": 1}, ["x", {"y": "\ud83d"}]])
def test_half_an_emoji_is_refused(state: Any) -> None:
    with pytest.raises(ValueError, match=r"states\[0\].*surrogate"):
        serialize(state, "states[0]")


def test_a_whole_emoji_is_not() -> None:
    assert serialize({"a": "\U0001f600"}) == '{"a": "😀"}'
