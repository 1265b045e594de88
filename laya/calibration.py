"""Temperatures: what the logits of a question are divided by before they become probabilities."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from laya.files import CheckpointError, read_object, write_object
from laya.language import primary_language
from laya.questions import TYPE_IDS, Question

MIN_TEMPERATURE = 0.5
MAX_TEMPERATURE = 5.0
OPTION_BUCKETS = ("2", "3-5", "6-10", "11+")


def option_bucket(n: int) -> str:
    """The bucket of a number of options: "2" (also for one option), "3-5", "6-10" or "11+"."""
    if n <= 2:
        return "2"
    if n <= 5:
        return "3-5"
    return "6-10" if n <= 10 else "11+"


@dataclass(frozen=True, slots=True)
class LangTemperatures:
    """What one language has of its own; for what it lacks, the general temperatures count.

    Attributes:
        by_type: One each for choice, score and noul; None where the language has none.
        by_options: "<type>:<bucket>" to temperature; these come first.
    """

    by_type: tuple[float | None, float | None, float | None] = (None, None, None)
    by_options: Mapping[str, float] = field(default_factory=dict)


_NO_OWN = LangTemperatures()


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Temperatures by question type, and by type and option bucket and by language where there are some.

    Attributes:
        by_type: One each for choice, score and noul.
        by_options: "<type>:<bucket>" to temperature; these come first.
        by_lang: Language, as `laya.language.primary_language` gives it, to what it has of its own; that comes before all else.
    """

    by_type: tuple[float, float, float] = (1.0, 1.0, 1.0)
    by_options: Mapping[str, float] = field(default_factory=dict)
    by_lang: Mapping[str, LangTemperatures] = field(default_factory=dict)

    def of(self, question: Question, lang: str | None = None) -> float:
        """The temperature of one question about a state in a language ("de", "de-AT", ...; None where it is not known)."""
        language = None if lang is None else primary_language(lang)
        own = _NO_OWN if language is None else self.by_lang.get(language, _NO_OWN)
        bucket = f"{question.type}:{option_bucket(question.n)}"
        for found in (own.by_options.get(bucket), own.by_type[question.type_id], self.by_options.get(bucket)):
            if found is not None:
                return found
        return self.by_type[question.type_id]

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str) -> Temperatures:
        """Reads ``temperature``, ``temperature_by_options`` and ``lang_temperatures`` of a checkpoint's config.

        What is not a number becomes 1.0, and a number outside 0.5 to 5.0 is clamped; a RuntimeWarning names what was replaced. A null
        in a language's ``temperature`` is none of its own.

        Args:
            config: The content of rl_agent_config.json.
            source: Where it was read, for messages.

        Raises:
            CheckpointError: ``temperature`` does not have three entries, or one of the others is not a mapping of the right form.
        """
        reader = _Reader(source)
        choice, score, noul = reader.listed("temperature", config.get("temperature", [1.0] * len(TYPE_IDS)))
        by_options = reader.named("temperature_by_options", config.get("temperature_by_options", {}))
        by_lang = reader.languages("lang_temperatures", config.get("lang_temperatures", {}))
        reader.warn()
        return cls((choice, score, noul), by_options, by_lang)

    @classmethod
    def load(cls, path: str | Path) -> Temperatures:
        """Reads a calibration file that `save` wrote; values are taken as in `from_config`.

        Raises:
            CheckpointError: The file cannot be read, or is none.
        """
        content = read_object(Path(path))
        if "temperature" not in content:
            raise CheckpointError(f"{path} is no calibration file: it has no temperature; write one with Temperatures.save()")
        return cls.from_config(content, str(path))

    def save(self, path: str | Path) -> None:
        """Writes a calibration file, for ``laya.load(..., calibration=path)``. A file of that name is replaced as a whole."""
        write_object(Path(path), self.to_config())

    def to_config(self) -> dict[str, Any]:
        """The temperatures as a checkpoint's config holds them."""
        content: dict[str, Any] = {"temperature": list(self.by_type), "temperature_by_options": dict(self.by_options)}
        if self.by_lang:
            content["lang_temperatures"] = {
                lang: {"temperature": list(own.by_type), "temperature_by_options": dict(own.by_options)}
                for lang, own in self.by_lang.items()
            }
        return content

    def with_languages(self, lang_temperatures: Mapping[str, Any]) -> Temperatures:
        """These temperatures with some languages' own in the place of those they had.

        Args:
            lang_temperatures: Language to ``{"temperature"?, "temperature_by_options"?}``, as in a config.

        Raises:
            CheckpointError: It is not of that form.
        """
        reader = _Reader("Agent")
        by_lang = reader.languages("lang_temperatures", lang_temperatures)
        reader.warn()
        return replace(self, by_lang={**self.by_lang, **by_lang})


class _Reader:
    """Reads temperatures out of JSON, and collects what it had to replace."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._replaced: list[str] = []

    def listed(self, name: str, value: Any) -> list[float]:
        """One temperature a question type."""
        self._check_list(name, value)
        return [self._usable(f"{name}[{index}]", number) for index, number in enumerate(value)]

    def named(self, name: str, value: Any) -> dict[str, float]:
        """Temperatures by "<type>:<bucket>"."""
        if not isinstance(value, Mapping):
            raise CheckpointError(f'{self._source}: {name} must map "<type>:<bucket>" to a number, not {value!r}')
        return {key: self._usable(f"{name}[{key!r}]", number) for key, number in value.items()}

    def languages(self, name: str, value: Any) -> dict[str, LangTemperatures]:
        """The temperatures that languages have of their own."""
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{self._source}: {name} must map language codes to temperatures, not {value!r}")
        found: dict[str, LangTemperatures] = {}
        for code, own in value.items():
            language = primary_language(code) if isinstance(code, str) else None
            if language is None or language in found:
                problem = "names no language" if language is None else f"is a second entry for {language!r}"
                raise CheckpointError(f"{self._source}: {name}: {code!r} {problem}; use one code a language, such as 'de'")
            found[language] = self._language(f"{name}[{code!r}]", own)
        return found

    def warn(self) -> None:
        """Tells what was replaced, if anything was."""
        if self._replaced:
            warnings.warn(f"{self._source}: temperatures replaced: {'; '.join(self._replaced)}", RuntimeWarning, stacklevel=3)

    def _language(self, name: str, value: Any) -> LangTemperatures:
        if not isinstance(value, Mapping) or not value.keys() <= {"temperature", "temperature_by_options"}:
            raise CheckpointError(f"{self._source}: {name} must hold temperature, temperature_by_options or both, not {value!r}")
        listed = value.get("temperature", [None] * len(TYPE_IDS))
        self._check_list(f"{name}.temperature", listed)
        choice, score, noul = (
            None if number is None else self._usable(f"{name}.temperature[{index}]", number) for index, number in enumerate(listed)
        )
        return LangTemperatures(
            (choice, score, noul), self.named(f"{name}.temperature_by_options", value.get("temperature_by_options", {}))
        )

    def _check_list(self, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(TYPE_IDS):
            raise CheckpointError(f"{self._source}: {name} must hold three numbers (choice, score, noul), not {value!r}")

    def _usable(self, name: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        usable = min(MAX_TEMPERATURE, max(MIN_TEMPERATURE, number)) if math.isfinite(number) else 1.0
        if usable != number:
            self._replaced.append(f"{name} {value!r} by {usable}")
        return usable
