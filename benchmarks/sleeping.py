"""An agent whose forward pass only takes time: what a cluster does round it can be measured without its hardware."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from laya.checkpoint import open_checkpoint
from laya.engine.base import BatchingEngine
from laya.names import find_source
from laya.parts import read_parts
from laya.runtime import AgentRuntime
from laya.sequences import TokenSequence


class SleepingEngine(BatchingEngine):
    """Sleeps for each pass and answers zeros.

    Args:
        pad_id: Token id that fills short rows.
        token_budget: Padded tokens of one pass.
        pass_s: Seconds of one pass.
    """

    def __init__(self, pad_id: int, token_budget: int, pass_s: float) -> None:
        super().__init__(pad_id, token_budget)
        self._pass_s = pass_s

    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        time.sleep(self._pass_s)
        return [[0.0] * len(row.markers) for row in rows], [0.5] * len(rows)

    def describe(self) -> dict[str, str]:
        """Device, precision and kind of the engine."""
        return {"engine": "sleeping", "device": "cpu", "precision": "none"}


class SleepingAgent(AgentRuntime):
    """Tokenizes, packs and queues as every agent does, on a `SleepingEngine`.

    Args:
        location: The checkpoint whose tokenizer it takes.
        subfolder: Of the checkpoint.
        revision: Of the checkpoint.
        device: Not used.
        token: Hub token.
        hooks: See `laya.Agent`.
        pass_s: Seconds of one pass.
        token_budget: Padded tokens of one pass.
    """

    def __init__(
        self,
        location: str,
        subfolder: str | None = None,
        revision: str | None = None,
        device: str | None = None,  # noqa: ARG002 the arguments of every agent
        token: str | None = None,
        hooks: Any = None,
        *,
        pass_s: float = 0.1,
        token_budget: int = 65536,
    ) -> None:
        parts = read_parts(open_checkpoint(find_source(location, subfolder, revision), token, weights=False))
        super().__init__(location, parts, SleepingEngine(parts.tokenizer.pad_id, token_budget, pass_s), hooks)
