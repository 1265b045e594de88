"""One training or evaluation row: a state, a question about it and the right answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A question and the index of its right option, in the order in which the question lists its options."""

    question: dict[str, Any]
    answer: int


@dataclass(frozen=True)
class Row:
    """A state, what is asked about it, and the index of the right option. `group` names the kind of row."""

    state: Any
    question: dict[str, Any]
    answer: int
    group: str
