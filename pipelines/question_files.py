"""Question files: YAML or JSON, from a path or from those that ship with the package."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from laya.questions import Question, parse_questions
from pipelines.errors import InputError, suggestion
from pipelines.yaml_files import load_yaml

_KEYS = ("type", "instructions", "criteria", "labels", "option_order")


def bundled_questions() -> list[str]:
    """Names of the question files that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml") for entry in (resources.files("configs") / "questions").iterdir() if entry.name.endswith(".yaml")
    )


def load_questions(source: str | Mapping[Any, Any]) -> tuple[dict[Any, Any], tuple[Question, ...]]:
    """Reads questions.

    Args:
        source: Path of a YAML or JSON file that maps question ids to questions, the name of a bundled one, or the questions themselves.

    Returns:
        The questions as they were given, and parsed.

    Raises:
        InputError: There is no such file, or the questions are not valid; one line names the file and the mend.
    """
    if isinstance(source, Mapping):
        return _parsed(dict(source), "questions")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"question file {source} cannot be read: {error}") from None
    if text is None and source in bundled_questions():
        text = (resources.files("configs") / "questions" / f"{source}.yaml").read_text(encoding="utf-8")
    if text is None:
        raise InputError(f"question file {source} was not found; give a YAML or JSON file, or one of: {', '.join(bundled_questions())}")
    return parse_question_text(text, source)


def parse_question_text(text: str, source: str) -> tuple[dict[Any, Any], tuple[Question, ...]]:
    """Parses the text of a question file; see `load_questions`."""
    return _parsed(load_yaml(text, f"question file {source}"), f"question file {source}")


def _parsed(questions: Any, source: str) -> tuple[dict[Any, Any], tuple[Question, ...]]:
    if not isinstance(questions, dict) or not questions:
        raise InputError(f"{source} must map question ids to questions (type, instructions, criteria)")
    for qid, question in questions.items():
        for key in question if isinstance(question, Mapping) else ():
            if key not in _KEYS:
                _doubt(key, f"{source}: question {qid!r}")
    try:
        return questions, parse_questions(questions)
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None


def _doubt(key: Any, where: str) -> None:
    """Refuses what looks like a slip of the pen; of anything else that means nothing here, it only says so."""
    told = suggestion(str(key), _KEYS, "keys of a question")
    if told.startswith("did you mean"):
        raise InputError(f"{where}: there is no key {key!r}; {told}")
    warnings.warn(f"{where}: the key {key!r} means nothing and is left out; {told}", RuntimeWarning, stacklevel=4)
