"""From a config to an encoder: one written here where there is one, else what transformers builds."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laya.network.bert import FIRST_POSITION, BertEncoder
from laya.network.layouts import Layout, Padded
from laya.network.modernbert import ModernBertEncoder
from laya.network.unfilled import Unfilled

OwnEncoder = BertEncoder | ModernBertEncoder
"""Encoders that take their rows in any layout. Others must be padded."""


def encode(encoder: nn.Module, ids: Tensor, layout: Layout) -> Tensor:
    """[N, d]: what an encoder makes of token ids [N]."""
    if isinstance(encoder, OwnEncoder):
        return encoder(ids, layout)  # type: ignore[no-any-return]
    assert isinstance(layout, Padded), "encoders of transformers read padded rows"
    return encoder(input_ids=ids, attention_mask=layout.mask).last_hidden_state  # type: ignore[no-any-return]


def width_of(encoder: nn.Module) -> int:
    """Hidden units of an encoder."""
    return encoder.width if isinstance(encoder, OwnEncoder) else int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]


def build_encoder(folder: Path, config: Mapping[str, Any]) -> nn.Module:
    """An encoder whose parameters have no memory yet, where that can be had.

    Args:
        folder: The folder of its config.json, for transformers.
        config: The content of that file.

    Raises:
        Exception: The config describes no encoder that can be built; transformers raises errors of many kinds.
    """
    try:
        with Unfilled():
            if config.get("model_type") in FIRST_POSITION:
                return BertEncoder(config)
            if config.get("model_type") == "modernbert":
                return ModernBertEncoder(config)
    except (ValueError, KeyError, TypeError):  # something that is not computed here, or a mistake that transformers can name
        pass
    return _foreign(folder)


def _foreign(folder: Path) -> nn.Module:
    # Imported only here: it takes as long as torch itself.
    with _no_collection():
        from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    encoder: nn.Module
    try:
        with Unfilled():
            encoder = _new(config)
        if not any(buffer.is_meta for buffer in encoder.buffers()):
            return encoder
    except (NotImplementedError, RuntimeError):  # it computes with what it has not been given yet
        pass
    encoder = _new(config)
    return encoder


def _new(config: Any) -> Any:
    with _no_collection():
        from transformers import AutoModel

        options: dict[str, Any] = {"dtype": torch.float32, "trust_remote_code": False}
        try:
            return AutoModel.from_config(config, attn_implementation="sdpa", **options)
        except ValueError:  # some encoders (DeBERTa, MPNet) have attention of their own
            return AutoModel.from_config(config, attn_implementation="eager", **options)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Lets no garbage be looked for meanwhile: importing transformers makes some 300,000 objects to look through, none garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
