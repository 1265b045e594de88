"""Logits of examples, from the library's own engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from laya.engine.torch_engine import TorchEngine
from laya.network.model import DecisionModel
from training.examples import Example


def predict(model: DecisionModel, examples: Sequence[Example], pad_id: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Returns the logits of each example, [examples, most options], -inf where an example has fewer options.

    Args:
        model: The model.
        examples: The rows.
        pad_id: Token that fills the rows up.
        dtype: What the network computes in; the model itself stays as it is.
    """
    engine = TorchEngine(model, pad_id, torch.device("cpu"), dtype)
    scores = engine.score([example.sequence for example in examples])
    widest = max(len(score.logits) for score in scores)
    return torch.tensor([score.logits + [-math.inf] * (widest - len(score.logits)) for score in scores])
