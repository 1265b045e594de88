"""The probe set: a few rows on which two ways to compute the same network are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from laya.engine.base import Engine
from laya.parts import AgentParts
from laya.questions import parse_questions
from laya.rows import RowBuilder
from laya.sequences import TokenSequence

_STATES = (
    "I was charged twice for the same order and nobody answers my letters.",
    "Thanks, that solved it!",
    {"subject": "Server down", "body": "Since 03:12 UTC every request ends in error 502. Our shop is closed until this works again."},
    [{"role": "user", "content": "Can I still change the address?"}, {"role": "agent", "content": "Yes, until it has been sent."}],
)
_QUESTIONS: dict[str, dict[str, Any]] = {
    "topic": {
        "type": "choice",
        "instructions": "What is the message about?",
        "criteria": {
            "billing": "money, invoices, refunds",
            "delivery": "where an order is",
            "technical": "something is broken",
            "other": None,
        },
    },
    "urgency": {"type": "score", "instructions": "How urgent is it?", "criteria": ["can wait", "this week", "today", "right now"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}


class ProbeSet:
    """The rows of the probe set for one checkpoint, and what an engine says of them.

    Args:
        parts: The checkpoint's tokenizer, temperatures and budgets.
    """

    def __init__(self, parts: AgentParts) -> None:
        builder = RowBuilder(parts.tokenizer)
        questions = parse_questions(_QUESTIONS)
        heads = builder.heads(questions, parts.budgets.positions, parts.budgets.head_max_len)
        rows = [(builder.row(head, state, parts.budgets.positions)[0], head) for state in builder.states(_STATES) for head in heads]
        self.rows: Sequence[TokenSequence] = [row for row, _ in rows]
        self._temperatures = [parts.temperatures.of(head.question) for _, head in rows]

    def probabilities(self, engine: Engine) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        """The calibrated probabilities of each row."""
        found = []
        for score, temperature in zip(engine.score(self.rows), self._temperatures, strict=True):
            logits = np.array(score.logits) / temperature
            weights = np.exp(logits - logits.max())
            found.append(weights / weights.sum())
        return found

    def distance(self, one: Engine, other: Engine) -> float:
        """The largest difference of a probability between two engines."""
        pairs = zip(self.probabilities(one), self.probabilities(other), strict=True)
        return float(np.max([np.abs(left - right).max() for left, right in pairs]))
