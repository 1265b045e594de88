"""Windows over a long state: their sizes, that they lose nothing, and which one answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laya.windows import Window, merge, split, window_size, window_stride

Span = tuple[int, int]


class TestWindowSize:
    @pytest.mark.parametrize(
        ("max_len", "head_max_len", "room", "size"),
        [
            pytest.param(512, 192, 400, 312, id="what the budgets leave, less 8"),
            pytest.param(512, 192, 312, 312, id="just the room"),
            pytest.param(512, 192, 311, 311, id="capped at the room"),
            pytest.param(256, 190, 200, 64, id="at least 64"),
            pytest.param(256, 250, 5, 5, id="but never more than the room"),
            pytest.param(100, 300, 90, 64, id="a head budget past max_len"),
        ],
    )
    def test_default(self, max_len: int, head_max_len: int, room: int, size: int) -> None:
        assert window_size(None, room, max_len, head_max_len) == size

    @pytest.mark.parametrize("window", [1, 64, 100])
    def test_a_window_that_fits_is_taken(self, window: int) -> None:
        assert window_size(window, 100, 256, 96) == window

    def test_a_wider_one_is_capped_with_a_warning(self) -> None:
        with pytest.warns(RuntimeWarning, match=r"window=101.*100"):
            assert window_size(101, 100, 256, 96) == 100

    @pytest.mark.parametrize("window", [0, -1, 1.5, "64", True, False])
    def test_refused(self, window: Any) -> None:
        with pytest.raises(ValueError, match="window"):
            window_size(window, 100, 256, 96)

    @pytest.mark.parametrize("window", [None, 64])
    def test_no_room_at_all(self, window: int | None) -> None:
        with pytest.raises(ValueError, match="max_len=256"):
            window_size(window, 0, 256, 96)


class TestWindowStride:
    @pytest.mark.parametrize(("window", "stride"), [(64, 32), (65, 32), (2, 1), (1, 1)])
    def test_default_is_half_the_window(self, window: int, stride: int) -> None:
        assert window_stride(None, window) == stride

    @pytest.mark.parametrize("stride", [1, 63, 64])
    def test_up_to_the_window_it_is_taken(self, stride: int) -> None:
        assert window_stride(stride, 64) == stride

    @pytest.mark.parametrize("stride", [65, 10_000, 0, -1, 1.5, "32", True])
    def test_refused(self, stride: Any) -> None:
        with pytest.raises(ValueError, match="stride"):
            window_stride(stride, 64)


def layout(characters: list[tuple[int, int]]) -> tuple[str, list[Span]]:
    """A text of letters, each after some blanks and each taking some tokens, as a byte-level tokenizer reports them."""
    text, spans = "", []
    for index, (tokens, blanks) in enumerate(characters):
        text += " " * blanks
        spans += [(len(text), len(text) + 1)] * tokens
        text += chr(ord("a") + index % 26)
    return text + " ", spans


CHARACTERS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=60)


@given(characters=CHARACTERS, window=st.integers(1, 40), data=st.data())
def test_windows_hold_every_token_and_none_is_wider_than_asked(characters: list[tuple[int, int]], window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    text, spans = layout(characters)
    windows = split(text, spans, window, stride)
    assert windows[0].token_start == 0
    assert windows[-1].token_end == len(spans)
    for part in windows:
        assert 0 < part.token_end - part.token_start <= window
    for before, after in pairwise(windows):
        assert before.token_start < after.token_start <= before.token_end
        # A stride narrower than a character may have to go past it.
        assert after.token_start - before.token_start <= max(stride, max(tokens for tokens, _ in characters))
        assert before.token_end < len(spans)


@given(characters=CHARACTERS, window=st.integers(4, 40), data=st.data())
def test_no_window_starts_or_ends_inside_a_character(characters: list[tuple[int, int]], window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    text, spans = layout(characters)
    borders = {index for index in range(1, len(spans)) if spans[index] != spans[index - 1]} | {0, len(spans)}
    for part in split(text, spans, window, stride):
        assert {part.token_start, part.token_end} <= borders


@given(characters=CHARACTERS, window=st.integers(4, 40))
def test_the_text_of_a_window_is_that_of_its_tokens(characters: list[tuple[int, int]], window: int) -> None:
    text, spans = layout(characters)
    for part in split(text, spans, window, window):
        start = spans[part.token_start][0] if part.token_start else 0
        end = spans[part.token_end - 1][1] if part.token_end < len(spans) else len(text)
        assert part.text == text[start:end]


def test_a_character_wider_than_the_window_is_cut_rather_than_skipped() -> None:
    windows = split("字", [(0, 1)] * 4, 2, 2)
    assert [(part.token_start, part.token_end) for part in windows] == [(0, 2), (2, 4)]


def test_one_token_a_character() -> None:
    spans = [(index, index + 1) for index in range(7)]
    assert split("abcdefg", spans, 4, 2) == [Window(0, 4, "abcd"), Window(2, 6, "cdef"), Window(4, 7, "efg")]


def test_blanks_at_both_ends_belong_to_the_outer_windows() -> None:
    assert [part.text for part in split("  a b  ", [(2, 3), (4, 5)], 1, 1)] == ["  a", "b  "]


def noul(p: float) -> dict[str, Any]:
    return {"type": "noul", "noul": p, "confidence": max(p, 1 - p), "answer_confidence": max(p, 1 - p)}


def choice(label: str, sure: float, confidence: float = 0.5) -> dict[str, Any]:
    return {"type": "choice", "choice": label, "probabilities": {label: sure}, "confidence": confidence, "answer_confidence": sure}


def score(level: float, sure: float) -> dict[str, Any]:
    return {"type": "score", "score": level, "confidence": 0.5, "answer_confidence": sure}


def result(answers: dict[str, Any], **usage: Any) -> dict[str, Any]:
    return {"model": "laya-rl-agent", "answers": answers, "usage": usage}


WINDOWS = [Window(0, 10, "a"), Window(5, 15, "b"), Window(10, 17, "c")]


class TestMerge:
    def test_noul_takes_the_window_most_in_favour_not_the_surest(self) -> None:
        merged = merge([result({"q": noul(p)}) for p in (0.01, 0.6, 0.3)], 3, WINDOWS)
        assert merged["answers"]["q"] == {**noul(0.6), "window": {"index": 1, "token_start": 5, "token_end": 15, "count": 3}}

    def test_choice_and_score_take_the_highest_answer_confidence(self) -> None:
        results = [
            result({"c": choice("a", 0.5, confidence=0.9), "s": score(1.0, 0.9)}),
            result({"c": choice("b", 0.4), "s": score(2.0, 0.3)}),
            result({"c": choice("c", 0.7, confidence=0.1), "s": score(0.0, 0.8)}),
        ]
        answers = merge(results, 3, WINDOWS)["answers"]
        assert (answers["c"]["choice"], answers["c"]["window"]["index"]) == ("c", 2)
        assert (answers["s"]["score"], answers["s"]["window"]["index"]) == (1.0, 0)

    def test_the_first_of_equals(self) -> None:
        merged = merge([result({"n": noul(0.4), "c": choice(label, 0.7)}) for label in "xyz"], 3, WINDOWS)
        assert merged["answers"]["n"]["window"]["index"] == 0
        assert merged["answers"]["c"]["choice"] == "x"

    def test_without_windows_no_answer_names_one(self) -> None:
        merged = merge([result({"q": noul(0.2)}), result({"q": noul(0.9)})], 2, None)
        assert merged["answers"]["q"] == noul(0.9)

    def test_usage_sums_numbers_and_counts_what_was_scored(self) -> None:
        usages: list[dict[str, Any]] = [
            {"input_tokens": 10, "output_tokens": 0, "state_tokens_dropped": 0, "truncated": False, "truncated_questions": []},
            {"input_tokens": 7, "output_tokens": 0, "state_tokens_dropped": 2, "truncated": True, "truncated_questions": ["q"]},
        ]
        merged = merge([result({"q": noul(0.2)}, **usage) for usage in usages], 2, WINDOWS[:2])
        assert merged["usage"] == {
            "input_tokens": 17,
            "output_tokens": 0,
            "state_tokens_dropped": 2,
            "truncated": True,
            "truncated_questions": ["q"],
            "windows": 2,
        }

    def test_the_callers_results_are_left_alone(self) -> None:
        results = [result({"q": noul(0.2)}, input_tokens=1), result({"q": noul(0.9)}, input_tokens=1)]
        merge(results, 2, WINDOWS[:2])
        assert results == [result({"q": noul(0.2)}, input_tokens=1), result({"q": noul(0.9)}, input_tokens=1)]
        alone = [result({"q": noul(0.2)}, input_tokens=1)]
        assert merge(alone, 0, None)["usage"] == {"input_tokens": 1, "windows": 0}
        assert alone == [result({"q": noul(0.2)}, input_tokens=1)]

    def test_nothing_left_to_answer_from(self) -> None:
        with pytest.raises(ValueError, match="window"):
            merge([], 0, None)
