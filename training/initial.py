"""The model that training starts from: the lower layers of MiniLM, with the vocabulary cut, under an own decision head."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from laya.network.model import DecisionModel, HeadLayer

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"


def build_initial_model(
    minilm: Path, old_ids: Sequence[int], layers: int, head_layers: int, n_act: int, warm_head: bool = True
) -> tuple[DecisionModel, BertConfig]:
    """Builds the model.

    Args:
        minilm: Folder with the config and the weights of MiniLM.
        old_ids: For each piece of the new vocabulary its id in MiniLM's.
        layers: Encoder layers to keep, from the bottom.
        head_layers: Layers of the decision head.
        n_act: Outputs of the act head.
        warm_head: Start the head layers from the encoder layers that are cut off, as far as there are any.

    Returns:
        The model, and the config of its encoder.
    """
    source = BertModel.from_pretrained(minilm)
    weights: dict[str, Tensor] = source.state_dict()
    config = copy.deepcopy(source.config)
    config.num_hidden_layers = layers
    config.vocab_size = len(old_ids)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0  # dropout in the attention keeps the fused kernel out
    encoder = BertModel(config, add_pooling_layer=False)
    weights[WORD_EMBEDDINGS] = weights[WORD_EMBEDDINGS][list(old_ids)]
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
    model = DecisionModel(encoder, head_layers, n_act)
    nn.init.zeros_(model.type_emb.weight)
    if warm_head:
        for number, layer in enumerate(cast("nn.ModuleList", model.head.layers)):
            if layers + number < source.config.num_hidden_layers:
                _warm_start(cast("HeadLayer", layer), weights, layers + number)
                if number == head_layers - 1:
                    _copy(model.scorer[0], weights, f"encoder.layer.{layers + number}.output.LayerNorm")
    return model, config


def _copy(module: Any, weights: Mapping[str, Tensor], name: str) -> None:
    with torch.no_grad():
        module.weight.copy_(weights[f"{name}.weight"])
        module.bias.copy_(weights[f"{name}.bias"])


def _warm_start(layer: HeadLayer, weights: Mapping[str, Tensor], index: int) -> None:
    """Copies an encoder layer into a head layer: only nearly the same function, for the encoder is post-norm, with GELU and other heads."""
    source = f"encoder.layer.{index}"
    attention = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([weights[f"{name}.weight"] for name in attention]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([weights[f"{name}.bias"] for name in attention]))
    _copy(layer.self_attn.out_proj, weights, f"{source}.attention.output.dense")
    _copy(layer.linear1, weights, f"{source}.intermediate.dense")
    _copy(layer.linear2, weights, f"{source}.output.dense")
    _copy(layer.norm2, weights, f"{source}.attention.output.LayerNorm")
    # norm1 restores the scale at which the layer below delivers its output
    below = f"encoder.layer.{index - 1}.output.LayerNorm"
    scale, shift = weights[f"{below}.weight"], weights[f"{below}.bias"]
    with torch.no_grad():
        layer.norm1.weight.fill_(float((scale**2 + shift**2).mean().sqrt()))
        layer.norm1.bias.fill_(float(shift.mean()))
