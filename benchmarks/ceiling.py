"""The machine's own ceiling, and how much of it an engine uses.

The work of a run is counted as

    2 x matrix parameters x real tokens

two operations, a product and a sum, for each parameter of the encoder's layers and of the decision head's layers (the attention
projections and the feed-forward matrices; no embeddings, biases, norms, scorer or act head) and each token that is not padding.
The attention products, which grow with the square of the length, are excluded; at these lengths they would add about a
twentieth. It is the work of the plain network: a side that pads computes more than that, and a side that skips positions which
no answer depends on computes less, so `executed_parameters` tells how much of it our engine really does.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 8
_SIZE = 1536


@dataclass(frozen=True, slots=True)
class Matrices:
    """Matrix parameters that each token meets.

    Attributes:
        useful: Of all encoder and head layers.
        executed: Of those, the ones our engine applies to every token: of the last head layer, only keys and values.
    """

    useful: int
    executed: int


def matrices(checkpoint: Path) -> Matrices:
    """Counts the matrix parameters of a checkpoint whose encoder is a BERT or a ModernBERT."""
    encoder = json.loads((checkpoint / "encoder" / "config.json").read_text(encoding="utf-8"))
    head_layers = json.loads((checkpoint / "rl_agent_config.json").read_text(encoding="utf-8"))["head_layers"]
    width, inner = encoder["hidden_size"], encoder["intermediate_size"]
    encoder_layer = 4 * width * width + (3 if encoder["model_type"] == "modernbert" else 2) * width * inner  # one of three is a gate
    head_layer = 4 * width * width + 2 * width * 4 * width
    useful = encoder["num_hidden_layers"] * encoder_layer + head_layers * head_layer
    return Matrices(useful, useful - (head_layer - 2 * width * width if head_layers else 0))


def flops(parameters: int, tokens: int) -> int:
    """Operations of the formula above."""
    return 2 * parameters * tokens


def matmul_rate(seconds: float, dtype: str = "float32") -> float:
    """The matrix multiply rate of this machine with torch's default threads, in FLOP/s.

    The best of many short measurements, because it stands for what the machine can do: whatever else runs can only slow it down.

    Args:
        seconds: How long to measure.
        dtype: Name of the torch type.
    """
    import torch

    a, b = (torch.rand(_SIZE, _SIZE).to(getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(a)
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(_CHUNK):
            torch.mm(a, b, out=out)
        best = max(best, _CHUNK * 2 * _SIZE**3 / (time.perf_counter() - start))
    return best
