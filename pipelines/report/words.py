"""Numbers and the user's texts as a reader wants them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

_LONGEST = 2000
_SECRET = re.compile(r"(\w+://)[^/@\s?]+@")
_SECRET_OPTION = re.compile(r"((?:access_key|secret_key|session_token)=)[^&\s]+")


def shown(value: Any) -> str:
    """A value as text that can be shown: keys in locations are left out, and what is very long is cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = _SECRET_OPTION.sub(r"\1...", _SECRET.sub(r"\1...@", text))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def count(number: float) -> str:
    """A whole number, in groups of three digits."""
    return f"{number:,.0f}"


def short(number: float) -> str:
    """A number for a headline: four digits at most, then k, M, G."""
    for unit in ("", "k", "M"):
        if abs(number) < (10_000 if not unit else 999.5):
            return f"{number:,.0f}{unit}" if not unit or number >= 99.5 else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:,.1f}G"


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; never 0 % or 100 % where it is something else."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %"


def rate(number: float) -> str:
    """Something a second."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def size(number: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float) -> str:
    """A time, with its two largest units."""
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h" + (f" {rest} min" if rest else "")
    return f"{hours // 24:.0f} d" + (f" {hours % 24:.0f} h" if hours % 24 else "")


def moment(seconds: float) -> str:
    """A point in time, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
