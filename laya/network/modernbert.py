"""ModernBERT: rotary positions, gated feed-forward layers, and attention that slides in most layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from laya.network.activations import activation
from laya.network.layouts import Layout

_THETAS = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}


class ModernBertEncoder(nn.Module):
    """The encoder of a Hugging Face config, its parameters named as there.

    Args:
        config: The content of encoder/config.json, in either of the two forms that exist.

    Raises:
        ValueError: It asks for something that is not computed here.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        count = config["num_hidden_layers"]
        every = config.get("global_attn_every_n_layers", 3)
        kinds = config.get("layer_types") or ["sliding_attention" if index % every else "full_attention" for index in range(count)]
        self.width = int(config["hidden_size"])
        self.thetas = {kind: _theta(config, kind) for kind in kinds}
        self.head_width = self.width // config["num_attention_heads"]
        self.embeddings = nn.Module()
        self.embeddings.tok_embeddings = nn.Embedding(config["vocab_size"], self.width)
        self.embeddings.norm = _norm(config)
        self.layers = nn.ModuleList(_Layer(config, index, kinds[index]) for index in range(count))
        self.final_norm = _norm(config)

    def forward(self, ids: Tensor, layout: Layout) -> Tensor:
        """[N, d] of token ids [N]."""
        of = cast("Any", self.embeddings)
        hidden = of.norm(of.tok_embeddings(ids))
        turns = {kind: _turns(layout.positions, theta, self.head_width) for kind, theta in self.thetas.items()}
        for layer in self.layers:
            hidden = layer(hidden, layout, turns[cast("_Layer", layer).kind])
        return cast("Tensor", self.final_norm(hidden))


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any], index: int, kind: str) -> None:
        super().__init__()
        width = config["hidden_size"]
        bias = config.get("attention_bias", False)
        self.kind = kind
        self.heads = config["num_attention_heads"]
        self.window = config.get("local_attention", 128) // 2 if kind == "sliding_attention" else None
        self.attn_norm = _norm(config) if index else nn.Identity()  # the embeddings have been through a norm already
        self.attn = nn.Module()
        self.attn.Wqkv = nn.Linear(width, 3 * width, bias=bias)
        self.attn.Wo = nn.Linear(width, width, bias=bias)
        self.mlp_norm = _norm(config)
        self.mlp = _GatedMlp(config)

    def forward(self, hidden: Tensor, layout: Layout, turns: tuple[Tensor, Tensor]) -> Tensor:
        of = cast("Any", self.attn)
        qkv = of.Wqkv(self.attn_norm(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key = _rotated(qkv[..., :2, :, :], turns).unbind(-3)
        hidden = hidden + of.Wo(layout.attend(query, key, qkv[..., 2, :, :], self.window).flatten(-2))
        return cast("Tensor", hidden + self.mlp(self.mlp_norm(hidden)))


class _GatedMlp(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner, bias = config["hidden_size"], int(config["intermediate_size"]), config.get("mlp_bias", False)
        self.activation = activation(config.get("hidden_activation", "gelu"))
        self.Wi = nn.Linear(width, 2 * inner, bias=bias)
        self.Wo = nn.Linear(inner, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        given, gate = self.Wi(hidden).chunk(2, -1)
        return cast("Tensor", self.Wo(self.activation(given) * gate))


def _norm(config: Mapping[str, Any]) -> nn.LayerNorm:
    return nn.LayerNorm(config["hidden_size"], config.get("norm_eps", 1e-5), bias=config.get("norm_bias", False))


def _theta(config: Mapping[str, Any], kind: str) -> float:
    """The base of a kind of layer's rotary angles: of ``rope_parameters``, or of the key that older configs have."""
    old_key, default = _THETAS.get(kind, (None, 0.0))
    if old_key is None or config.get("rope_scaling"):
        raise ValueError("layers of a kind that is not known, or scaled positions")
    given = (config.get("rope_parameters") or {}).get(kind) or {}
    if given.get("rope_type", "default") != "default":
        raise ValueError("rotary positions of another kind")
    return float(given.get("rope_theta", config.get(old_key, default)))


def _turns(positions: Tensor, theta: float, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, each [N, 1, 1, width / 2]; in fp32, where large positions stay apart."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width
    angles = positions[..., None].float() / theta**exponents
    return angles.cos()[..., None, None, :], angles.sin()[..., None, None, :]


def _rotated(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turns each pair (i, i + width / 2) of the last dimension by its angle."""
    cos, sin = turns
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
