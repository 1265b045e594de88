"""Rows about log lines: how severe, is it a failure, which component."""

from __future__ import annotations

import random

from training.asking import ask_choice, ask_yes_no
from training.messages import expand
from training.phrases import LOGS
from training.rows import Asked, Row
from training.splits import Split, share

LEVELS = len(LOGS["lines"])
FAILURE = 3
THREE_STEPS = [0, 0, 1, 2, 2]


def log_row(rng: random.Random, split: Split) -> Row:
    """Writes a log line and asks one question about it."""
    while True:
        level = rng.randrange(LEVELS)
        text = expand(rng.choice(share(LOGS["lines"][level], split)), rng)
        line = rng.choice(LOGS["formats"]).format(d=rng.randint(1, 9), w=LOGS["level_names"][level], t=text)
        asked = _ask(level, text, rng)
        if asked is not None:
            return Row(line, asked.question, asked.answer, "log")


def _ask(level: int, text: str, rng: random.Random) -> Asked | None:
    draw = rng.random()
    if draw < 0.45:
        scale = rng.choice(LOGS["scales"])
        question = {"type": "score", "instructions": rng.choice(LOGS["severity_instructions"]), "criteria": scale}
        return Asked(question, level if len(scale) == LEVELS else THREE_STEPS[level])
    if draw < 0.7:
        return ask_yes_no(rng.choice(LOGS["failure_statements"]), level >= FAILURE, rng)
    mentioned = [name for name, words in LOGS["components"].items() if any(word in text for word in words)]
    if not mentioned:
        return None
    others = [name for name in LOGS["components"] if name not in mentioned]
    names = [mentioned[0], *rng.sample(others, rng.randint(1, len(others)))]
    return ask_choice([(name, f"events of {name}") for name in names], 0, rng.choice(LOGS["component_instructions"]), rng)
