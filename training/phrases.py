"""The hand-written phrases of data/*.yaml as typed objects, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"

Scale = list[str]


@dataclass(frozen=True)
class Facet:
    """A debtags facet: how to ask for it, and a label and a statement for each of its tags."""

    instructions: list[str]
    values: dict[str, list[str]]


@dataclass(frozen=True)
class Domain:
    """A department: the names that are trained on, one that is not, and descriptions."""

    names: list[str]
    held_out_name: str
    descriptions: list[str]


@dataclass(frozen=True)
class Kind:
    """A kind of message (complaint, question...)."""

    names: list[str]
    description: str


@dataclass(frozen=True)
class Cue:
    """Something that a message may say besides its topic, such as a deadline, and the statements that ask for it."""

    rate: float
    present: list[str]
    near_misses: list[str]
    statements: list[str]
    held_out_statement: str


@dataclass(frozen=True)
class Register:
    """A formal or an informal way to open and close a message."""

    name: str
    openers: list[str]
    closers: list[str]


def read_phrases(name: str) -> dict[str, Any]:
    """Reads one of the YAML files of the data folder."""
    loaded: dict[str, Any] = yaml.safe_load((DATA / name).read_text(encoding="utf-8"))
    return loaded


def read_words() -> list[str]:
    """Reads the everyday words that the vocabulary keeps whatever their frequency is."""
    return (DATA / "words.txt").read_text(encoding="utf-8").split()


DEBIAN = read_phrases("debian.yaml")
SECTIONS: dict[str, list[str]] = DEBIAN["sections"]
FACETS = {name: Facet(**facet) for name, facet in DEBIAN["facets"].items()}
HELD_OUT_FACETS = frozenset(DEBIAN["held_out_facets"])

MESSAGES = read_phrases("messages.yaml")
SLOTS: dict[str, list[str]] = MESSAGES["slots"]
URGENCY: list[list[str]] = MESSAGES["urgency"]
SENTIMENT: list[list[str]] = MESSAGES["sentiment"]
CUES = {name: Cue(**cue) for name, cue in MESSAGES["cues"].items()}
REGISTERS = [Register(**register) for register in MESSAGES["registers"]]

LABELS = read_phrases("labels.yaml")
DOMAINS = {name: Domain(**domain) for name, domain in LABELS["domains"].items()}
KINDS = {name: Kind(**kind) for name, kind in LABELS["kinds"].items()}
INSTRUCTIONS: dict[str, list[str]] = LABELS["instructions"]
STATEMENTS: dict[str, list[str]] = LABELS["statements"]
URGENCY_SCALES: list[Scale] = LABELS["urgency_scales"]
HELD_OUT_URGENCY_SCALES: list[Scale] = LABELS["held_out_urgency_scales"]
SENTIMENT_SCALES: list[Scale] = LABELS["sentiment_scales"]
HELD_OUT_SENTIMENT_SCALES: list[Scale] = LABELS["held_out_sentiment_scales"]

LOGS = read_phrases("logs.yaml")
