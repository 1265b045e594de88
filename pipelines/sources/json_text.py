"""JSON as it was written: what cannot be held exactly, or would be lost, is refused with its reason."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 200
"""Objects and lists inside one another."""

_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


def parse_object(line: bytes) -> dict[str, Any]:
    """Parses one line of JSONL.

    Raises:
        ValueError: It is not UTF-8, or not an object, or `parse_json` refuses it.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"a record must be a JSON object, not {json_name(value)}")
    return value


def parse_json(text: str) -> Any:
    """Parses JSON: keys in order, whole numbers exact.

    Raises:
        ValueError: It is not JSON (NaN and infinities included), an object has two equal keys, it is nested too deeply, or it holds half of
            a surrogate pair, which no file can hold.
    """
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    # Both checks look at few texts closely: deep nesting takes many brackets, and half a pair can only be written as an escape.
    if len(text) > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(value):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if "\\" in text and ("\\ud" in text or "\\uD" in text) and _has_half_pair(value):
        raise ValueError("an escape such as \\ud83d stands for half a character; write both halves, or the character itself")
    return value


def json_name(value: Any) -> str:
    """What a JSON value is called, with its article."""
    return _NAMES[type(value)]


def not_utf8(error: UnicodeDecodeError) -> ValueError:
    """Says which byte of a line or cell is no UTF-8."""
    return ValueError(f"not valid UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start + 1}; convert the file to UTF-8")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; write null or a string")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:20]} is too large; write it as a string")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        shown = json.dumps(name, ensure_ascii=False)[:60].encode(errors="replace").decode()
        raise ValueError(f"key {shown} is there twice in one object; rename one of them")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_distinct)


def _is_too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        level = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
    return any(isinstance(part, dict | list) for part in level)


def _has_half_pair(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
