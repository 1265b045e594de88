"""The intents of data/intents.txt: what a message is about, and the template lines that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.phrases import DATA
from training.splits import Split


@dataclass(frozen=True)
class Intent:
    """A reason to write. `held_out` intents are never trained on; urgency and sentiment are the usual levels, 0 to 4."""

    domain: str
    key: str
    names: list[str]
    descriptions: list[str]
    urgency: int
    sentiment: int
    kind: str
    held_out: bool
    lines: list[str]


def load_intents(path: Path = DATA / "intents.txt") -> list[Intent]:
    """Reads the intents. The format is told at the top of the file."""
    intents: list[Intent] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("@"):
            domain, key, names, descriptions, usual, *flags = line[1:].split("|")
            urgency, sentiment, kind = usual.split()
            intents.append(
                Intent(domain, key, names.split(";"), descriptions.split(";"), int(urgency), int(sentiment), kind, bool(flags), lines=[])
            )
        elif line and not line.startswith("#"):
            intents[-1].lines.append(line)
    return intents


def usable_lines(intent: Intent, index: int, split: Split) -> Sequence[str]:
    """Returns the template lines of an intent that a split may use.

    Held-out intents, and the last line of every other, are kept from training: a third of the intents (by index) give
    theirs to calibration, the rest to the test.
    """
    if split == "train":
        return [] if intent.held_out else intent.lines[:-1]
    if split != ("calib" if index % 3 == 0 else "test"):
        return []
    return intent.lines if intent.held_out else intent.lines[-1:]
