"""Logits become typed, calibrated answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from laya.questions import Question

MODEL_NAME = "laya-rl-agent"
"""What every result says in ``model``."""

Answer = dict[str, Any]
Result = dict[str, Any]


def rounded(value: float) -> float:
    """Rounds to the 4 decimals that answers carry; never -0.0."""
    return round(value, 4) + 0.0


def probabilities(logits: Sequence[float], temperature: float) -> list[float]:
    """Softmax of ``logits / temperature``.

    Raises:
        ArithmeticError: A logit is not finite, so the model is broken for this input.
    """
    scaled = [logit / temperature for logit in logits]
    top = max(scaled)
    if not all(math.isfinite(value) for value in scaled):
        raise ArithmeticError(f"the model returned a logit that is not finite: {list(logits)}")
    weights = [math.exp(value - top) for value in scaled]
    total = sum(weights)
    return [weight / total for weight in weights]


def decode_answer(question: Question, logits: Sequence[float], act_probability: float, temperature: float) -> Answer:
    """Builds the answer of one question from one row of logits.

    Args:
        question: The question.
        logits: One logit a slot, in slot order.
        act_probability: How likely it is right to act on the top answer.
        temperature: What the logits are divided by.

    Returns:
        A dict with type, the decision (``choice``, ``score`` or ``noul``), confidences in [0, 1] and ``action``. ``confidence`` of
        choice and score is 1 - entropy / ln(k); ``answer_confidence`` is the top probability, the calibrated one.

    Raises:
        ArithmeticError: A logit or the act probability is not finite.
    """
    try:
        if not math.isfinite(act_probability):
            raise ArithmeticError(f"the model returned an act probability that is not finite: {act_probability}")
        by_slot = probabilities(logits, temperature)
    except ArithmeticError as error:
        raise ArithmeticError(f"question {question.qid!r}: {error}") from None
    p = [0.0] * question.n
    for slot, index in enumerate(question.order):
        p[index] = by_slot[slot]
    best = max(range(question.n), key=p.__getitem__)  # the first of equals, in the caller's order
    top = rounded(p[best])
    action = {"act_probability": rounded(act_probability)}
    if question.type == "noul":
        return {"type": "noul", "noul": rounded(p[1]), "confidence": top, "answer_confidence": top, "action": action}
    sureness = {"confidence": rounded(_concentration(p)), "answer_confidence": top, "action": action}
    if question.type == "choice":
        shares = {label: rounded(value) for label, value in zip(question.labels, p, strict=True)}
        return {"type": "choice", "choice": question.labels[best], "probabilities": shares, **sureness}
    return {
        "type": "score",
        "score": rounded(sum(level * value for level, value in enumerate(p))),
        "legend": {str(level): text for level, text in enumerate(question.labels)},
        "probabilities": {str(level): rounded(value) for level, value in enumerate(p)},
        **sureness,
    }


def _concentration(p: Sequence[float]) -> float:
    """1 - H(p) / ln(k): 1 when one option has it all, 0 when all are equal; 1 for a single option."""
    if len(p) < 2:
        return 1.0
    entropy = -sum(value * math.log(value) for value in p if value > 0)
    return 1.0 - entropy / math.log(len(p))
