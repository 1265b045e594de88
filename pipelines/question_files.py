"""Question files: YAML or JSON, from a path or from those that ship with the package."""

from __future__ import annotations

import re
from collections.abc import Hashable
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from laya.questions import Question, parse_questions
from pipelines.errors import InputError


class _Loader(yaml.SafeLoader):
    """YAML as its 1.2 core schema reads it: `no`, `on` and dates are text, so a label is what it looks like."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuses a key that stands twice, where YAML would quietly keep the last."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def bundled_questions() -> list[str]:
    """Names of the question files that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml") for entry in (resources.files("configs") / "questions").iterdir() if entry.name.endswith(".yaml")
    )


def load_questions(source: str) -> tuple[dict[Any, Any], tuple[Question, ...]]:
    """Reads a question file.

    Args:
        source: Path of a YAML or JSON file that maps question ids to questions, or the name of a bundled one.

    Returns:
        The questions as they stand in the file, and parsed.

    Raises:
        InputError: There is no such file, or it does not hold valid questions; one line names the file and the mend.
    """
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"question file {source} cannot be read: {error}") from None
    if text is not None:
        return parse_question_text(text, source)
    if source in bundled_questions():
        text = (resources.files("configs") / "questions" / f"{source}.yaml").read_text(encoding="utf-8")
    else:
        raise InputError(f"question file {source} was not found; give a YAML or JSON file, or one of: {', '.join(bundled_questions())}")
    return parse_question_text(text, source)


def parse_question_text(text: str, source: str) -> tuple[dict[Any, Any], tuple[Question, ...]]:
    """Parses the text of a question file; see `load_questions`."""
    try:
        questions = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise InputError(f"question file {source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(questions, dict) or not questions:
        raise InputError(f"question file {source} must map question ids to questions (type, instructions, criteria)")
    try:
        return questions, parse_questions(questions)
    except ValueError as error:
        raise InputError(f"question file {source}: {error}") from None
