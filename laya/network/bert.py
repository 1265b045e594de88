"""BERT, and the encoders that differ from it in where they begin to count positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from laya.network.activations import activation
from laya.network.layouts import Layout

FIRST_POSITION = {"bert": 0, "roberta": 2, "xlm-roberta": 2, "camembert": 2}
"""Row of the position table that a row's first token takes. RoBERTa's counting leaves out those up to its padding token's id, 1."""


class BertEncoder(nn.Module):
    """The encoder of a Hugging Face config, its parameters named as there.

    Args:
        config: The content of encoder/config.json.

    Raises:
        ValueError: It asks for something that is not computed here.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        kind = config["model_type"]
        if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder") or config.get("add_cross_attention"):
            raise ValueError("only absolute positions and no decoder")
        if FIRST_POSITION[kind] and config.get("pad_token_id", 1) != FIRST_POSITION[kind] - 1:
            raise ValueError("the padding token is another")
        self.width = int(config["hidden_size"])
        self.embeddings = _Embeddings(config, FIRST_POSITION[kind])
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))

    def forward(self, ids: Tensor, layout: Layout) -> Tensor:
        """[N, d] of token ids [N]."""
        hidden = self.embeddings(ids, layout.positions)
        for layer in cast("nn.ModuleList", self.encoder.layer):
            hidden = layer(hidden, layout)
        return cast("Tensor", hidden)


class _Embeddings(nn.Module):
    def __init__(self, config: Mapping[str, Any], first: int) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.first = first
        self.word_embeddings = nn.Embedding(config["vocab_size"], width)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], width)
        self.token_type_embeddings = nn.Embedding(config.get("type_vocab_size", 2), width)
        self.LayerNorm = nn.LayerNorm(width, config.get("layer_norm_eps", 1e-12))

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        # The text is all of one type. What does not depend on the token is added up first: there is less of it in a padded pass.
        place = self.position_embeddings(positions + self.first) + self.token_type_embeddings.weight[0]
        return cast("Tensor", self.LayerNorm(self.word_embeddings(ids) + place))


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        eps = config.get("layer_norm_eps", 1e-12)
        self.heads = config["num_attention_heads"]
        self.activation = activation(config.get("hidden_act", "gelu"))
        self.attention = nn.Module()
        self.attention.self = nn.Module()
        for name in ("query", "key", "value"):
            setattr(self.attention.self, name, nn.Linear(width, width))
        self.attention.output = _Output(width, width, eps)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(width, inner)
        self.output = _Output(inner, width, eps)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        of = cast("Any", self.attention.self)
        query, key, value = (part(hidden).unflatten(-1, (self.heads, -1)) for part in (of.query, of.key, of.value))
        hidden = cast("Any", self.attention.output)(layout.attend(query, key, value).flatten(-2), hidden)
        return cast("Tensor", self.output(self.activation(cast("Any", self.intermediate).dense(hidden)), hidden))


class _Output(nn.Module):
    def __init__(self, inner: int, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, width)
        self.LayerNorm = nn.LayerNorm(width, eps)

    def forward(self, found: Tensor, hidden: Tensor) -> Tensor:
        return cast("Tensor", self.LayerNorm(self.dense(found) + hidden))
