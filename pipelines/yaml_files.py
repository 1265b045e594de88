"""YAML as its 1.2 core schema reads it: `no`, `on` and dates are text, so a label is what it looks like."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from pipelines.errors import InputError


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuses a key that stands twice, where YAML would quietly keep the last."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} cannot be a key; write text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_yaml(text: str, source: str) -> Any:
    """Parses YAML, which JSON is too.

    Args:
        text: What to parse.
        source: What to call it in an error ("question file q.yaml").

    Raises:
        InputError: It is not valid, or a key stands twice.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InputError(f"{source} is not valid YAML: {where}{error.problem or error.context}") from None
    except RecursionError:
        raise InputError(f"{source} is nested too deeply, or refers to itself") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
