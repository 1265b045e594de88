"""Long states: cutting them into windows, and choosing the window that answers each question."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laya.answers import MODEL_NAME, Answer, Result

MIN_WINDOW = 64
"""Fewest tokens of a default window, where the questions leave that much room."""
_HEAD_SLACK = 8


@dataclass(frozen=True, slots=True)
class Window:
    """One part of a long state.

    Attributes:
        token_start: First token of the state in it.
        token_end: One past its last token.
        text: What it says, cut out of the state's own text.
    """

    token_start: int
    token_end: int
    text: str


def check_aggregate(aggregate: str) -> None:
    """Checks how the windows of a state are to be put together.

    Raises:
        ValueError: It is not "auto", the only way there is.
    """
    if aggregate != "auto":
        raise ValueError(f'aggregate must be "auto", not {aggregate!r}')


def window_size(window: int | None, room: int, max_len: int, head_max_len: int) -> int:
    """The window to use.

    Args:
        window: Tokens asked for, or None for the default.
        room: The fewest tokens of state that fit behind any of the questions.
        max_len: Longest sequence, in tokens.
        head_max_len: Tokens for instructions and options.

    Raises:
        ValueError: The window is not positive, or the questions leave no room at all.
    """
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(f"window must be a positive number of tokens, not {window!r}")
    if room < 1:
        raise ValueError(
            f"the questions leave no room for the state within max_len={max_len}: use fewer or shorter options, or raise max_len"
        )
    if window is None:
        return min(room, max(MIN_WINDOW, max_len - head_max_len - _HEAD_SLACK))
    if window > room:
        warnings.warn(f"window={window} is more than the questions leave room for; {room} tokens are used", RuntimeWarning, stacklevel=2)
    return min(window, room)


def window_stride(stride: int | None, window: int) -> int:
    """The stride to use: half the window unless asked otherwise.

    Raises:
        ValueError: It is not positive, or wider than the window, so that some tokens would be read by no window.
    """
    if stride is None:
        return max(1, window // 2)
    if type(stride) is not int or stride < 1:
        raise ValueError(f"stride must be a positive number of tokens, not {stride!r}")
    if stride > window:
        raise ValueError(f"stride={stride} is wider than the window of {window} tokens: the tokens between would be read by nobody")
    return stride


def split(text: str, spans: Sequence[tuple[int, int]], window: int, stride: int) -> list[Window]:
    """Cuts a state into overlapping windows that together hold every token.

    Args:
        text: The state's text.
        spans: Characters (start, end) of ``text`` that each token stands for.
        window: Most tokens of a window.
        stride: Tokens from one window's start to the next, at most.

    Returns:
        Windows in order. None starts or ends inside a character that takes several tokens.
    """
    windows: list[Window] = []
    start = 0
    while True:
        limit = min(start + window, len(spans))
        end = _last_border(spans, start, limit) or limit
        text_start = spans[start][0] if start else 0
        text_end = spans[end - 1][1] if end < len(spans) else len(text)
        windows.append(Window(start, end, text[text_start:text_end]))
        if end == len(spans):
            return windows
        step = min(start + stride, end)
        start = _last_border(spans, start, step) or _first_border(spans, step, end) or step


def _last_border(spans: Sequence[tuple[int, int]], low: int, high: int) -> int | None:
    """The last token in (low, high] that begins a character; None if there is none (a character wider than the window)."""
    return next((cut for cut in range(high, low, -1) if _is_border(spans, cut)), None)


def _first_border(spans: Sequence[tuple[int, int]], low: int, high: int) -> int | None:
    return next((cut for cut in range(low + 1, high + 1) if _is_border(spans, cut)), None)


def _is_border(spans: Sequence[tuple[int, int]], cut: int) -> bool:
    return cut == len(spans) or spans[cut][0] >= spans[cut - 1][1]


def merge(results: Sequence[Result], scored: int, windows: Sequence[Window] | None) -> Result:
    """Chooses, question by question, the window whose answer stands for the whole state; see `WindowMerger`.

    Args:
        results: One result a text.
        scored: How many texts the model read; 0 if a hook answered instead.
        windows: The windows, or None where the texts are not `split`'s: then no answer names a window.

    Returns:
        One result; its usage sums the numbers of all, and ``windows`` is ``scored``.

    Raises:
        ValueError: There is no result, because a hook left nothing to score.
    """
    merger = WindowMerger()
    for result in results:
        merger.add(result)
    return merger.result(scored, windows)


class WindowMerger:
    """Merges the results of windows as they come, in the order of the windows; it keeps no more than the best answers.

    A noul is decided by the window with the largest P(true), a choice or score by the one with the highest answer_confidence; the
    first of equals. That window's answer is taken whole.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first: Result = {}
        self._best: dict[Any, tuple[float, int, Answer]] = {}
        self._usage: dict[str, Any] = {}

    def add(self, result: Result) -> None:
        """Takes the result of the next window."""
        answers = result.get("answers") or {}
        if not self._count:
            self._first = result
        for qid in self._first.get("answers") or {}:
            answer = answers.get(qid)
            if isinstance(answer, Mapping):
                weight = _weight(answer)
                if qid not in self._best or weight > self._best[qid][0]:
                    self._best[qid] = (weight, self._count, dict(answer))
        self._usage = _sum_usage([self._usage, result.get("usage") or {}])
        self._count += 1

    def result(self, scored: int, windows: Sequence[Window] | None) -> Result:
        """The merged result; see `merge`."""
        if not self._count:
            raise ValueError("no window was left to answer from: a hook emptied ctx.states or ctx.results")
        usage = {**self._usage, "windows": scored}
        if self._count == 1:
            return {**without_windows(self._first), "usage": usage}
        # Whether a hook has added or dropped results cannot be told window by window, so none is named then; nor is one of which the model
        # read a part only, because a hook that changed questions or budgets has left less room than the windows were cut for.
        named = windows is not None and len(windows) == self._count and not usage.get("truncated")
        spans = windows if named else None
        answers: dict[Any, Answer] = {}
        for qid in self._first.get("answers") or {}:
            if qid not in self._best:
                continue
            _, best, answer = self._best[qid]
            answers[qid] = _without_window(answer)
            if spans is not None:
                span = {"token_start": spans[best].token_start, "token_end": spans[best].token_end}
                answers[qid]["window"] = {"index": best, **span, "count": len(spans)}
        return {"model": self._first.get("model", MODEL_NAME), "answers": answers, "usage": usage}


def without_windows(result: Result) -> Result:
    """A result whose answers name no window: nobody has read one for it. A copy, where one does."""
    answers = result.get("answers")
    if not isinstance(answers, Mapping) or not any(isinstance(answer, Mapping) and "window" in answer for answer in answers.values()):
        return result
    bare = {qid: _without_window(answer) if isinstance(answer, Mapping) else answer for qid, answer in answers.items()}
    return {**result, "answers": bare}


def _without_window(answer: Mapping[str, Any]) -> Answer:
    return {key: value for key, value in answer.items() if key != "window"}


def _weight(answer: Mapping[str, Any]) -> float:
    """What an answer counts for among those of other windows; one that a hook supplied without a number counts last."""
    value = answer.get("noul" if answer.get("type") == "noul" else "answer_confidence")
    return float(value) if isinstance(value, int | float) else -1.0


def _sum_usage(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage.items():
            if isinstance(value, bool):
                total[name] = total.get(name, False) or value
            elif isinstance(value, int):
                total[name] = total.get(name, 0) + value
            elif isinstance(value, list):
                total[name] = list(dict.fromkeys([*total.get(name, []), *value]))
            else:
                total.setdefault(name, value)
    return total
