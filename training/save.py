"""Write a checkpoint in the format that laya loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from laya.checkpoint import CONFIG_FILE, WEIGHTS_FILE
from laya.network.model import DecisionModel
from training.examples import MAX_LEN

if TYPE_CHECKING:
    from transformers import BertConfig

ENCODER_KEYS = (
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "model_max_length": MAX_LEN,
}


def save_tokenizer(folder: Path, tokenizer: Mapping[str, Any]) -> Path:
    """Writes the tokenizer of a checkpoint and returns its folder."""
    target = folder / "tokenizer"
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    _write_json(target / "tokenizer_config.json", TOKENIZER_CONFIG)
    return target


def save_model(folder: Path, model: DecisionModel, config: Mapping[str, Any], encoder_config: BertConfig) -> Path:
    """Writes the weights, in fp16, and the configs of a checkpoint.

    Args:
        folder: Where to; it is made if need be.
        model: The trained model.
        config: Content of rl_agent_config.json.
        encoder_config: Config of the encoder; what inference does not need is left out.

    Returns:
        The file of the weights.
    """
    (folder / "encoder").mkdir(parents=True, exist_ok=True)
    _write_json(folder / CONFIG_FILE, config)
    described = encoder_config.to_dict()
    _write_json(folder / "encoder" / "config.json", {key: described[key] for key in ENCODER_KEYS})
    tensors = {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in model.state_dict().items()}
    tensors["temperature"] = torch.tensor(config["temperature"], dtype=torch.float32)
    path = folder / WEIGHTS_FILE
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable for its owner only
    return path


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
