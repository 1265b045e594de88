"""Questions about a level of 0 to 4, asked on a scale of three, four or five steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from training.asking import ask_choice
from training.phrases import Scale
from training.rows import Asked

Folding = dict[int, list[int]]

URGENCY_FOLDING: Folding = {5: [0, 1, 2, 3, 4], 4: [0, 1, 2, 2, 3], 3: [0, 1, 1, 2, 2]}
SENTIMENT_FOLDING: Folding = {5: [0, 1, 2, 3, 4], 3: [0, 0, 1, 2, 2]}


def ask_level(
    level: int,
    scales: Sequence[Scale],
    folding: Folding,
    instructions: Sequence[str],
    rng: random.Random,
    question_type: Literal["score", "choice"] | None = None,
) -> Asked:
    """Asks for a level, mostly as a score, else as a choice between the names of the levels.

    Args:
        level: The true level, 0 to 4.
        scales: The scales to draw from.
        folding: For each length of a scale, where each of the five levels goes.
        instructions: Wordings to draw from.
        rng: Source of randomness.
        question_type: Fixes the type; drawn at random when None.
    """
    scale = list(rng.choice(scales))
    answer = folding[len(scale)][level]
    if question_type is None:
        question_type = "score" if rng.random() < 0.75 else "choice"
    if question_type == "choice":
        return ask_choice([(step, step) for step in scale], answer, rng.choice(instructions), rng, style="bare")
    if rng.random() < 0.12:
        scale, answer = scale[::-1], len(scale) - 1 - answer
    return Asked({"type": "score", "instructions": rng.choice(instructions), "criteria": scale}, answer)
