"""What a caller may say of how a call is scored, looked over before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Lang = str | Sequence[str | None] | None
"""Language code of all states ("de", "de-AT"), or one code (or None) for each of them."""


@dataclass(frozen=True, slots=True)
class Passes:
    """How the rows of a call are cut into forward passes.

    Attributes:
        max_rows: Most rows of a pass (``batch_size``); None leaves it to the engine.
        sort: Whether rows of like length share a pass.

    Raises:
        ValueError: ``max_rows`` is not a positive int.
    """

    max_rows: int | None = None
    sort: bool = True

    def __post_init__(self) -> None:
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 1):
            raise ValueError(f"batch_size must be a positive number of rows, not {self.max_rows!r}")


def checked_lang(lang: Lang) -> Lang:
    """Returns the language of a call as it is.

    Raises:
        TypeError: It is not a code, nor a list of codes.
    """
    for code in lang if isinstance(lang, list | tuple) else [lang]:
        if not isinstance(code, str | None):
            raise TypeError(f"lang must be a language code such as 'de', or None, not {code!r}")
    return lang


def langs_of(lang: Lang, count: int) -> list[str | None]:
    """The language of each of so many states.

    Raises:
        ValueError: There is a list of languages, and it is not of that length.
    """
    if lang is None or isinstance(lang, str):
        return [lang] * count
    if len(lang) != count:
        raise ValueError(f"lang holds {len(lang)} codes for {count} states: give one for each, or one for all")
    return list(lang)
