"""Temperatures: what the logits of a question are divided by before they become probabilities."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laya.files import CheckpointError
from laya.questions import TYPE_IDS, Question

MIN_TEMPERATURE = 0.5
MAX_TEMPERATURE = 5.0


def option_bucket(n: int) -> str:
    """The bucket of a number of options: "2" (also for one option), "3-5", "6-10" or "11+"."""
    if n <= 2:
        return "2"
    if n <= 5:
        return "3-5"
    return "6-10" if n <= 10 else "11+"


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Temperatures by question type, and by type and option bucket where a checkpoint has them.

    Attributes:
        by_type: One each for choice, score and noul.
        by_options: "<type>:<bucket>" to temperature; these come first.
    """

    by_type: tuple[float, float, float] = (1.0, 1.0, 1.0)
    by_options: Mapping[str, float] | None = None

    def of(self, question: Question) -> float:
        """The temperature of one question."""
        found = (self.by_options or {}).get(f"{question.type}:{option_bucket(question.n)}")
        return self.by_type[question.type_id] if found is None else found

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str) -> Temperatures:
        """Reads ``temperature`` and ``temperature_by_options`` of a checkpoint's config.

        What is not a number becomes 1.0, and a number outside 0.5 to 5.0 is clamped; a RuntimeWarning names what was replaced.

        Args:
            config: The content of rl_agent_config.json.
            source: Where it was read, for messages.

        Raises:
            CheckpointError: ``temperature`` does not have three entries, or ``temperature_by_options`` is not a mapping.
        """
        listed = config.get("temperature", [1.0] * len(TYPE_IDS))
        if not isinstance(listed, list) or len(listed) != len(TYPE_IDS):
            raise CheckpointError(f"{source}: temperature must hold three numbers (choice, score, noul), not {listed!r}")
        named = config.get("temperature_by_options", {})
        if not isinstance(named, Mapping):
            raise CheckpointError(f'{source}: temperature_by_options must map "<type>:<bucket>" to a number, not {named!r}')
        replaced: list[str] = []
        choice, score, noul = (_usable(f"temperature[{index}]", value, replaced) for index, value in enumerate(listed))
        by_options = {key: _usable(f"temperature_by_options[{key!r}]", value, replaced) for key, value in named.items()}
        if replaced:
            warnings.warn(f"{source}: temperatures replaced: {'; '.join(replaced)}", RuntimeWarning, stacklevel=2)
        return cls((choice, score, noul), by_options)


def _usable(name: str, value: Any, replaced: list[str]) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    usable = min(MAX_TEMPERATURE, max(MIN_TEMPERATURE, number)) if math.isfinite(number) else 1.0
    if usable != number:
        replaced.append(f"{name} {value!r} by {usable}")
    return usable
