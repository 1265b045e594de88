"""What a --model names."""

from __future__ import annotations

from laya.names import BUILT_IN, canonical
from pipelines.config import AUTO


def registered(model: str) -> dict[str, str]:
    """What a Router has to be told of a --model: a folder or hub id under its own name; nothing of what it knows or chooses itself."""
    return {} if model == AUTO or canonical(model) in BUILT_IN else {model: model}
