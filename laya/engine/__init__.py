"""Engines: sequences in, logits out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laya.engine.base import Engine
    from laya.engine.batches import RowScore
    from laya.engine.stats import EngineStats, PassReport

# Looked up when they are asked for: a Router needs the errors of this package, and not the arrays.
_HOMES = {
    "Engine": "laya.engine.base",
    "EngineStats": "laya.engine.stats",
    "PassReport": "laya.engine.stats",
    "RowScore": "laya.engine.batches",
}

__all__ = ["Engine", "EngineStats", "PassReport", "RowScore"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'laya.engine' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
