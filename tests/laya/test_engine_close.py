"""A pass that runs is finished, though its engine is closed meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from laya.engine.base import BatchingEngine
from laya.engine.onnx_engine import OnnxEngine
from laya.engine.torch_engine import TorchEngine
from tests.laya.engines import PAD, marks, rows


class Echo(torch.nn.Module):
    """Scores a row with its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Identity()

    def forward(self, ids: torch.Tensor, _mask: Any, _types: Any, markers: torch.Tensor, _there: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return ids[:, :1].float().expand(markers.shape), torch.ones(len(ids), 1)


class ClosedAmid(TorchEngine):
    """Is closed by somebody once the rows of a pass lie on the device."""

    def _placed(self, array: npt.NDArray[Any]) -> torch.Tensor:
        self.close()
        return super()._placed(array)


def assert_closed(engine: BatchingEngine) -> None:
    with pytest.raises(RuntimeError, match="closed"):
        engine.score(rows(4))


def test_torch() -> None:
    engine = ClosedAmid(Echo(), PAD, torch.device("cpu"))  # type: ignore[arg-type]
    assert marks(engine.score(rows(2, 3))) == [2, 3]
    assert_closed(engine)


def test_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Any, arrays: dict[str, Any]) -> list[Any]:
        return [arrays["ids"][:, :1], np.ones((len(arrays["ids"]), 1))]

    ones = np.ones_like

    def closing(like: Any) -> Any:
        engine.close()
        return ones(like)

    engine = OnnxEngine.__new__(OnnxEngine)
    BatchingEngine.__init__(engine, PAD, 1000)
    engine._session = SimpleNamespace(run=run)
    monkeypatch.setattr(np, "ones_like", closing)
    assert marks(engine.score(rows(2, 3))) == [2, 3]
    assert_closed(engine)
