"""Inputs that hurt people, from public reports: one JSON object a line, found by its id."""

from __future__ import annotations

import datetime
import decimal
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).parent / "cases.jsonl"

# What JSON cannot hold is written as an object of one key that says how to make it.
_MARKERS = {
    "$repeat": lambda value: value[0] * value[1],
    "$join": "".join,
    "$float": float,
    "$decimal": decimal.Decimal,
    "$timestamp": datetime.datetime.fromisoformat,
    "$np": lambda value: getattr(np, value[0])(value[1]),
}


def expand(value: Any) -> Any:
    """A value with everything made that its markers stand for."""
    if isinstance(value, list):
        return [expand(part) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (make := _MARKERS.get(next(iter(value)))) is not None:
        return make(*value.values())
    return {key: expand(part) for key, part in value.items()}


@lru_cache(maxsize=1)
def _lines() -> dict[str, str]:
    # A line ends with a line feed; other separators may stand inside of texts.
    lines = _FILE.read_text(encoding="utf-8").split("\n")
    return {json.loads(line)["id"]: line for line in lines if line}


def case(name: str) -> dict[str, Any]:
    """The input of a case, its markers expanded; a fresh one each time."""
    found: dict[str, Any] = expand(json.loads(_lines()[name])["input"])
    return found
