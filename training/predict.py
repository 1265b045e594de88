"""Logits of examples, from the library's own engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from laya.engine.torch_engine import TorchEngine
from laya.model import DecisionModel
from training.examples import Example


def predict(model: DecisionModel, examples: Sequence[Example], pad_id: int, autocast: torch.dtype | None = torch.bfloat16) -> Tensor:
    """Returns the logits of each example, [examples, most options], -inf where an example has fewer options.

    Args:
        model: The model.
        examples: The rows.
        pad_id: Token that fills the rows up.
        autocast: Type of the matrix products; None computes in fp32.
    """
    engine = TorchEngine(model, pad_id, torch.device("cpu"), autocast)
    scores = engine.score([example.sequence for example in examples])
    widest = max(len(score.logits) for score in scores)
    return torch.tensor([score.logits + [-math.inf] * (widest - len(score.logits)) for score in scores])
