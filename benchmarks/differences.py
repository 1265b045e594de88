"""How far two sides' results are apart. The speed of wrong answers means nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-3
"""Largest difference of a number that still counts as the same answer: answers carry 4 decimals, computed in fp32."""
REDUCED_TOLERANCE = 0.01
"""The same where one side computes in half precision."""
REDUCED_MARGIN = 0.02
"""Lead of the likeliest option below which half precision may decide otherwise."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How two lists of results differ.

    Attributes:
        largest: Largest absolute difference of two numbers.
        where: Its place, such as ``[3].answers.topic.confidence``; empty if all numbers are equal.
        unlike: Places where anything else differs: a text, the keys, a length, a number that is not finite.
        flipped: Answers whose decision differs.
        tolerance: Largest difference of a number that is allowed.
    """

    largest: float
    where: str
    unlike: tuple[str, ...]
    flipped: tuple[str, ...]
    tolerance: float = TOLERANCE

    @property
    def same(self) -> bool:
        """Whether both sides gave the same answers."""
        return self.largest <= self.tolerance and not self.unlike and not self.flipped


def compare(ours: Sequence[Any], theirs: Sequence[Any], reduced: bool = False) -> Difference:
    """Compares results: every number, text and key, and the decision of every answer.

    Args:
        ours: Results, computed in fp32.
        theirs: The same of another side.
        reduced: Whether that side computes in half precision: probabilities may move a little then, and decisions change where nearly
            nothing decided them. What is derived from them - confidences, levels - may move more, and is not compared.
    """
    if reduced:
        ours, theirs = _probabilities(ours), _probabilities(theirs)
    found = list(_walk(list(ours), list(theirs), ""))
    numbers = [(distance, place) for distance, place in found if distance is not None]
    largest, where = max(numbers, default=(0.0, ""))
    unlike = tuple(place for distance, place in found if distance is None)
    flipped = tuple(_flipped(ours, theirs, REDUCED_MARGIN if reduced else 0.0))
    return Difference(largest, where, unlike, flipped, REDUCED_TOLERANCE if reduced else TOLERANCE)


def _probabilities(results: Sequence[Any]) -> list[Any]:
    kept = ("type", "choice", "probabilities", "noul")
    return [
        {"answers": {qid: {key: answer[key] for key in kept if key in answer} for qid, answer in result["answers"].items()}}
        for result in results
    ]


def _walk(a: Any, b: Any, path: str) -> Iterator[tuple[float | None, str]]:
    """Yields the places that differ, and by how much; None where that is no finite number."""
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for key in a:
            yield from _walk(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _walk(left, right, f"{path}[{index}]")
    elif _is_finite(a) and _is_finite(b):
        if a != b:
            yield abs(a - b), path
    elif a != b or type(a) is not type(b):
        yield None, path


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flipped(ours: Sequence[Any], theirs: Sequence[Any], margin: float) -> Iterator[str]:
    for index, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        for qid, answer in left["answers"].items():
            other = right["answers"].get(qid)
            if other is None or (_decision(answer) != _decision(other) and _lead(answer) > margin):
                yield f"[{index}].answers.{qid}"


def _decision(answer: Mapping[str, Any]) -> Any:
    """What the answer comes down to: the likeliest option, or whether the statement holds."""
    if answer["type"] == "noul":
        return answer["noul"] > 0.5
    return answer.get("choice"), max(answer["probabilities"], key=answer["probabilities"].__getitem__)


def _lead(answer: Mapping[str, Any]) -> float:
    """By how much the likeliest option leads."""
    if answer["type"] == "noul":
        return abs(2 * float(answer["noul"]) - 1)
    first, second, *_ = [*sorted(answer["probabilities"].values(), reverse=True), 0.0]
    return float(first - second)
