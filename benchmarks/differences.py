"""How far two sides' results are apart. The speed of wrong answers means nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-3
"""Largest difference of a number that still counts as the same answer: answers carry 4 decimals, computed in fp32."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How two lists of results differ.

    Attributes:
        largest: Largest absolute difference of two numbers.
        where: Its place, such as ``[3].answers.topic.confidence``; empty if all numbers are equal.
        unlike: Places where anything else differs: a text, the keys, a length, a number that is not finite.
        flipped: Answers whose decision differs.
    """

    largest: float
    where: str
    unlike: tuple[str, ...]
    flipped: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both sides gave the same answers."""
        return self.largest <= TOLERANCE and not self.unlike and not self.flipped


def compare(ours: Sequence[Any], theirs: Sequence[Any]) -> Difference:
    """Compares results: every number, text and key, and the decision of every answer."""
    found = list(_walk(list(ours), list(theirs), ""))
    numbers = [(distance, place) for distance, place in found if distance is not None]
    largest, where = max(numbers, default=(0.0, ""))
    unlike = tuple(place for distance, place in found if distance is None)
    return Difference(largest, where, unlike, tuple(_flipped(ours, theirs)))


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


def _flipped(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    for index, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        for qid, answer in left["answers"].items():
            other = right["answers"].get(qid)
            if other is None or _decision(answer) != _decision(other):
                yield f"[{index}].answers.{qid}"


def _decision(answer: Mapping[str, Any]) -> Any:
    """What the answer comes down to: the likeliest option, or whether the statement holds."""
    if answer["type"] == "noul":
        return answer["noul"] > 0.5
    return answer.get("choice"), max(answer["probabilities"], key=answer["probabilities"].__getitem__)
