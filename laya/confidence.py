"""The confidence gate: answers that are less sure than was asked for are marked, so that nobody acts on them unseen."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from laya.answers import Result
from laya.calibration import OPTION_BUCKETS, option_bucket
from laya.hooks.context import PredictContext
from laya.questions import TYPE_IDS

MinConfidence = float | Mapping[str, float] | None
"""None marks nothing. A number from 0 to 1 is the least ``answer_confidence`` of every answer. A mapping holds one for each
"<type>:<bucket>" of question type and number of options ("choice:3-5"; buckets 2, 3-5, 6-10, 11+), and "default" for the others."""

_DEFAULT = "default"
_KEYS = frozenset({_DEFAULT, *(f"{kind}:{bucket}" for kind in TYPE_IDS for bucket in OPTION_BUCKETS)})
_MARKS = frozenset({"abstention", "abstention_threshold", "low_confidence"})


class ConfidenceGate:
    """Marks each answer of a call ``abstention`` "passed" or "abstained", with its ``abstention_threshold``.

    An answer that abstained is ``low_confidence`` too. It did so because its ``answer_confidence`` is below the threshold, or because
    it has none that can be compared or is of no known shape, which hooks may supply. Marks of an earlier call are dropped first; what
    is changed is changed in a copy.

    Args:
        min_confidence: See `MinConfidence`.

    Raises:
        ValueError: It is none of these; the message names the mend.
    """

    def __init__(self, min_confidence: MinConfidence = None) -> None:
        self._thresholds = None if min_confidence is None else _thresholds(min_confidence)

    def complete(self, ctx: PredictContext) -> None:
        """Marks the results of a context, for `laya.hooks.call.run_calls`."""
        ctx.results = [self.apply(result) for result in ctx.results or []]

    def apply(self, result: Result) -> Result:
        """A result with its answers marked; the same object where nothing had to be changed."""
        answers = result.get("answers") if isinstance(result, Mapping) else None
        if not isinstance(answers, Mapping):
            return result
        marked = {qid: self._mark(answer) for qid, answer in answers.items()}
        return result if all(marked[qid] is answer for qid, answer in answers.items()) else {**result, "answers": marked}

    def _mark(self, answer: Any) -> Any:
        if not isinstance(answer, Mapping):
            return answer
        bare = answer if _MARKS.isdisjoint(answer) else {key: value for key, value in answer.items() if key not in _MARKS}
        if self._thresholds is None:
            return bare
        key = _key(answer)
        threshold = self._thresholds.get(key or _DEFAULT, self._thresholds.get(_DEFAULT, 0.0))
        confidence = _share(answer.get("answer_confidence"))
        if key is not None and confidence is not None and confidence >= threshold:
            return {**bare, "abstention": "passed", "abstention_threshold": threshold}
        return {**bare, "abstention": "abstained", "abstention_threshold": threshold, "low_confidence": True}


def _thresholds(min_confidence: Any) -> dict[str, float]:
    given = min_confidence if isinstance(min_confidence, Mapping) else {_DEFAULT: min_confidence}
    unknown = [key for key in given if key not in _KEYS]
    if unknown or not given:
        problem = f"has no key {unknown[0]!r}" if unknown else "must not be empty"
        raise ValueError(f'a min_confidence map {problem}: its keys are "default" and {", ".join(sorted(_KEYS - {_DEFAULT}))}')
    thresholds: dict[str, float] = {}
    for key, value in given.items():
        threshold = _share(value)
        if threshold is None:
            place = f"min_confidence[{key!r}]" if isinstance(min_confidence, Mapping) else "min_confidence"
            raise ValueError(f"{place} must be a number from 0 to 1, not {value!r}; leave it out (None) to mark nothing")
        thresholds[key] = threshold
    return thresholds


def _share(value: Any) -> float | None:
    """A number from 0 to 1, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number: Any = value  # numbers.Real says nothing of comparisons
    return float(number) if 0 <= number <= 1 else None


def _key(answer: Mapping[str, Any]) -> str | None:
    """The "<type>:<bucket>" of an answer, None for one of no known shape."""
    kind = answer.get("type")
    if kind == "noul":
        return f"noul:{option_bucket(2)}"
    options = answer.get("probabilities")
    if kind not in ("choice", "score") or not isinstance(options, Mapping) or not options:
        return None
    return f"{kind}:{option_bucket(len(options))}"
