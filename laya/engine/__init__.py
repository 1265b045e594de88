"""Engines: sequences in, logits out."""

from laya.engine.base import Engine, RowScore

__all__ = ["Engine", "RowScore"]
