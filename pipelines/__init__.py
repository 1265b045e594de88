"""Jobs over data sets: read, route, score, write, report; and the command line for them.

>>> import pipelines
>>> pipelines.score(pipelines.ScoreConfig(inputs="mails.parquet", questions="tickets", output="out"))
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.config import ScoreConfig
    from pipelines.errors import InputError
    from pipelines.score import score
    from pipelines.scorer import Scorer
    from pipelines.summary import Summary

__all__ = ["InputError", "ScoreConfig", "Scorer", "Summary", "score"]

_HOMES = {
    "InputError": "pipelines.errors",
    "ScoreConfig": "pipelines.config",
    "Scorer": "pipelines.scorer",
    "Summary": "pipelines.summary",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: the command line answers --help without Ray and Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Door(ModuleType):
    """``pipelines.score`` is the function, although the module that holds it has the same name."""

    @property
    def score(self) -> Any:
        """Scores files into part files; see `pipelines.score.score`."""
        return import_module("pipelines.score").score

    @score.setter
    def score(self, module: ModuleType) -> None:
        """The import system would put the module here."""


sys.modules[__name__].__class__ = _Door
