"""The confidence that answers must have: one threshold for all questions, or one by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laya.questions import Question
from pipelines.errors import InputError, suggestion

Thresholds = float | Mapping[str, float] | None
"""The least ``answer_confidence`` of all questions, or by question id as text; None, and ids that are not named, have none."""


def threshold_of(thresholds: Thresholds, qid: object) -> float | None:
    """The threshold of one question; None where it has none."""
    return thresholds.get(str(qid)) if isinstance(thresholds, Mapping) else thresholds


def abstained(result: Mapping[str, Any], thresholds: Thresholds) -> frozenset[str]:
    """The questions of a result whose answers are less sure than they must be; an answer without a confidence is."""
    if thresholds is None:
        return frozenset()
    return frozenset(str(qid) for qid, answer in result["answers"].items() if is_below(answer, threshold_of(thresholds, qid)))


def is_below(answer: Mapping[str, Any], threshold: float | None) -> bool:
    """Whether an answer is less sure than it must be."""
    return threshold is not None and not answer.get("answer_confidence", -1.0) >= threshold


def check_thresholds(thresholds: Thresholds, questions: Sequence[Question] | None) -> None:
    """Checks that thresholds by question id are of questions that there are; rows with questions of their own may have any.

    Raises:
        InputError: One is not.
    """
    if questions is None or not isinstance(thresholds, Mapping):
        return
    known = [str(question.qid) for question in questions]
    for qid in thresholds:
        if qid not in known:
            raise InputError(f"--min-confidence {qid}: there is no question {qid!r}; {suggestion(qid, known, 'questions')}")
