"""States: what a question is asked about, and the text that the model reads of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any


def one_line_json(value: Any) -> str:
    """Renders a JSON value on one line, other scripts as they are (``", "`` and ``": "`` as separators).

    Raises:
        TypeError: JSON has no such value.
        ValueError: A number is not finite, or the value contains itself or is nested too deeply.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("nested too deeply for JSON") from None


def check_text(text: str, where: str) -> str:
    """Returns a text as it is.

    Raises:
        ValueError: It holds half of a surrogate pair, which is no character and has no UTF-8 form.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}: lone surrogate {text[error.start]!r} at character {error.start}; replace it before scoring"
            ) from None
    return text


def serialize(state: Any, where: str = "state") -> str:
    """Turns a state into the text that the model reads: a str as it is, anything else as one-line JSON.

    Args:
        state: A str, dict or list (a conversation, oldest first); numbers and bools are rendered as JSON.
        where: What to call the state in an error.

    Raises:
        TypeError: It is None, or a part of it is something that JSON cannot hold; the message says which part.
        ValueError: A part is not a finite number, or holds a lone surrogate.
    """
    if isinstance(state, str):
        return check_text(state, where)
    if not isinstance(state, dict | list | int | float):
        got = "None" if state is None else type(state).__name__
        raise TypeError(f"{where} is {got}: pass a str, a dict or a list")
    try:
        text = one_line_json(state)
    except (TypeError, ValueError) as error:
        path, reason = _find_offender(state, where) or (where, str(error))
        raise type(error)(f"{path}: {reason}") from None
    return check_text(text, where)


def _find_offender(value: Any, path: str, depth: int = 0) -> tuple[str, str] | None:
    """Walks to the part that JSON cannot hold. Only on the way to an error, so it may be slow."""
    if depth > 100:
        return path, "nested too deeply, or contains itself"
    if isinstance(value, dict):
        for key, part in value.items():
            if key is not None and not isinstance(key, str | int | float):
                return path, f"key {key!r} is a {type(key).__name__}; JSON keys are strings"
            if isinstance(key, float) and not math.isfinite(key):
                return path, f"key {key!r} is not a number that JSON can hold"
            if (found := _find_offender(part, f"{path}[{key!r}]", depth + 1)) is not None:
                return found
        return None
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            if (found := _find_offender(part, f"{path}[{index}]", depth + 1)) is not None:
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return path, f"{value!r} is not a number that JSON can hold; use null or leave it out"
    if value is None or isinstance(value, str | int | float):
        return None
    return path, f"a {type(value).__name__} cannot be held by JSON; turn it into a string or a number first"


def as_batch(states: Sequence[Any]) -> list[Any]:
    """The states of a batch as a list.

    Raises:
        TypeError: It is one state, not a sequence of them.
    """
    if isinstance(states, str | dict):
        raise TypeError(f"predict_batch takes a list of states, not one {type(states).__name__}: use system_one for a single state")
    return list(states)
