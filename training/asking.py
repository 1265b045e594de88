"""The ways in which one question can be put: bare labels, descriptions, letters, invented ids, other words for yes and no."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from training.rows import Asked

Style = Literal["bare", "described", "lettered", "numbered_ids", "descriptions_only"]
STYLE_WEIGHTS: dict[Style, int] = {"bare": 30, "described": 38, "lettered": 12, "numbered_ids": 8, "descriptions_only": 12}

LETTERS = "ABCDEFGHIJKLMNOP"
ID_PREFIXES = ["queue", "class", "team", "option", "cat"]
YES_NO_WORDS = [("no", "yes"), ("wrong", "right"), ("absent", "present"), ("N", "Y"), ("0", "1"), ("disagree", "agree")]

Option = tuple[str, str]


def ask_choice(options: Sequence[Sequence[str]], answer: int, instructions: str, rng: random.Random, style: Style | None = None) -> Asked:
    """Asks a choice question with its options in random order.

    Args:
        options: (label, description) of each option.
        answer: Index of the right one in `options`.
        instructions: What is asked.
        rng: Source of randomness.
        style: How the options are shown; drawn at random when None.
    """
    if style is None:
        style = rng.choices(list(STYLE_WEIGHTS), list(STYLE_WEIGHTS.values()))[0]
    if len({label for label, _ in options}) < len(options):
        style = "lettered"  # labels must differ, and only letters do whatever the options are
    order = list(range(len(options)))
    rng.shuffle(order)
    shown = [(options[place][0], options[place][1]) for place in order]
    criteria = _criteria(shown, style, rng)
    return Asked({"type": "choice", "instructions": instructions, "criteria": criteria}, order.index(answer))


def _criteria(options: list[Option], style: Style, rng: random.Random) -> list[str] | dict[str, str]:
    if style == "bare":
        return [label for label, _ in options]
    if style == "described":
        return dict(options)
    if style == "descriptions_only":
        descriptions = [description for _, description in options]
        return descriptions if len(set(descriptions)) == len(options) else dict(options)
    if style == "lettered":
        names = list(LETTERS[: len(options)]) if rng.random() < 0.7 else [str(number + 1) for number in range(len(options))]
        return {name: (description if rng.random() < 0.8 else label) for name, (label, description) in zip(names, options, strict=True)}
    prefix = rng.choice(ID_PREFIXES)
    return {
        f"{prefix}_{number}": (f"{label}, {description}" if rng.random() < 0.5 else description)
        for number, (label, description) in enumerate(options, start=1)
    }


def ask_yes_no(statement: str, holds: bool, rng: random.Random, criteria: dict[str, str] | None = None) -> Asked:
    """Asks a noul question: does the statement hold?

    Args:
        statement: The instructions of the question, a statement or a yes/no question.
        holds: The right answer.
        rng: Source of randomness.
        criteria: What true and false mean; shown in about a third of the questions.
    """
    question: dict[str, Any] = {"type": "noul", "instructions": statement}
    if criteria and rng.random() < 0.35:
        question["criteria"] = criteria
    if rng.random() < 0.12:
        word_for_no, word_for_yes = rng.choice(YES_NO_WORDS)
        question["labels"] = {"false": word_for_no, "true": word_for_yes}
    return Asked(question, int(holds))
