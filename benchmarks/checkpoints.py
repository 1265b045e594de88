"""Checkpoints of realistic size with random weights: speed does not depend on what the weights say.

They have the bundled checkpoint's tokenizer, so that a row has the same tokens in each.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

MINI = Path(__file__).parents[1] / "laya" / "checkpoints" / "mini"

ENCODERS: dict[str, dict[str, Any]] = {
    # 6 layers of 384: the size of the small sentence encoders that most people start with.
    "minilm": {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    # 22 layers of 768, two of three with sliding windows: the size of the published checkpoints.
    "modernbert-base": {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}
"""Encoder configurations by name."""


def make_checkpoint(name: str, folder: Path, seed: int = 0) -> Path:
    """Writes a checkpoint of an encoder with random weights and a head of two layers.

    Args:
        name: One of `ENCODERS`.
        folder: Where to write it; it must not be there yet.
        seed: Of the weights.

    Returns:
        The folder.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    from laya.network.model import DecisionModel

    (folder / "encoder").mkdir(parents=True)
    (folder / "encoder" / "config.json").write_text(json.dumps(ENCODERS[name], indent=1), encoding="utf-8")
    shutil.copytree(MINI / "tokenizer", folder / "tokenizer")
    config = {"encoder": f"{name}, random weights", "head_layers": 2, "act_costs": {"defer": 0.1}, "max_len": 512, "head_max_len": 192}
    config |= {"temperature": [1.0, 1.0, 1.0], "amp_dtype": "bf16"}
    (folder / "rl_agent_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    torch.manual_seed(seed)
    model = DecisionModel(AutoModel.from_config(AutoConfig.from_pretrained(str(folder / "encoder"))), head_layers=2, n_act=2)
    tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    tensors["temperature"] = torch.ones(3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
