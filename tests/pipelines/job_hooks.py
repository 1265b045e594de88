"""Hooks that the tests of jobs name by import path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from laya import BaseHook

# Agents are started by a Ray that was there before the test, so nothing of the test but this place is known to them.
DIARY = Path(tempfile.gettempdir()) / f"laya-test-diary-{os.getuid()}.txt"


def _write(line: str) -> None:
    with DIARY.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


class Guard(BaseHook):
    """Refuses texts about weapons, answers those about the weather, and writes a diary of the rest."""

    def on_predict_start(self, ctx):
        (state,) = ctx.states
        if "weapon" in state:
            raise PermissionError("not this one")
        if "weather" in state:
            answer = {"type": "noul", "noul": 0.25, "confidence": 0.75, "answer_confidence": 0.75, "action": {"act_probability": 1.0}}
            ctx.skip([{"model": "weather", "answers": {"angry": answer}, "usage": {"input_tokens": 0}}])

    def on_predict_end(self, ctx):
        _write(f"end {ctx.run_id} {ctx.states[0]}")

    def on_load(self, ctx):
        _write(f"load {ctx.model}")


class Batches(BaseHook):
    """Writes down what agents are asked."""

    def on_predict_start(self, ctx):
        _write(f"batch {len(ctx.states)}")


class Spoil(BaseHook):
    """Makes results that hold no answers."""

    def on_predict_end(self, ctx):
        ctx.results = [{"model": "spoilt", "answers": {}, "usage": {}}]
