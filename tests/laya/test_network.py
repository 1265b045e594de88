"""The encoders written here against those of transformers, and rows that lie padded, packed or varying against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from laya.network.bert import BertEncoder
from laya.network.encoders import build_encoder, encode
from laya.network.layouts import Layout, Packed, Padded
from laya.network.model import DecisionModel, in_precision
from laya.network.modernbert import ModernBertEncoder
from laya.network.varying import Varying, can_vary

CPU = torch.device("cpu")
SIZE = {"vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
BERT = {**SIZE, "model_type": "bert", "max_position_embeddings": 600, "hidden_act": "gelu", "pad_token_id": 0}
MODERN = {**SIZE, "model_type": "modernbert", "max_position_embeddings": 600, "local_attention": 32, "pad_token_id": 0}
MODERN |= {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
ROPES = {"full_attention": {"rope_type": "default", "rope_theta": 5e4}, "sliding_attention": {"rope_type": "default", "rope_theta": 2e3}}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "bert, tanh": {**BERT, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    "roberta": {**BERT, "model_type": "roberta", "pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": {**BERT, "model_type": "xlm-roberta", "pad_token_id": 1, "type_vocab_size": 1},
    "camembert": {**BERT, "model_type": "camembert", "pad_token_id": 1, "type_vocab_size": 1},
    "modernbert": {**MODERN, "global_attn_every_n_layers": 3, "global_rope_theta": 1e4, "local_rope_theta": 1e3},
    "modernbert, all said": {**MODERN, "rope_parameters": ROPES, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "modernbert, biases": {**MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "hidden_activation": "relu"},
}
LENGTHS = [9, 40, 40, 12, 17, 18, 66, 400, 400, 3]
"""Alone and in runs; no longer than half the sliding window, a little longer, and so long that blocks of it are computed."""


def written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def both(folder: Path, config: dict[str, Any]) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The encoder written here and that of transformers, with the same weights, none of them like another."""
    torch.manual_seed(7)
    written(folder, config)
    theirs = AutoModel.from_config(AutoConfig.from_pretrained(str(folder)), attn_implementation="sdpa").eval()
    if hasattr(theirs, "pooler"):
        theirs.pooler = None
    for parameter in theirs.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    ours = build_encoder(folder, config)
    ours.load_state_dict(theirs.state_dict(), assign=True)
    return ours.eval(), theirs


def padded_rows() -> tuple[Tensor, Tensor]:
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return torch.randint(3, 50, mask.shape) * mask + (1 - mask), mask


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_encoders_compute_what_those_of_transformers_do(tmp_path: Path, name: str) -> None:
    ours, theirs = both(tmp_path, CONFIGS[name])
    assert isinstance(ours, BertEncoder | ModernBertEncoder)
    ids, mask = padded_rows()
    there = mask.bool()
    expected = theirs(input_ids=ids, attention_mask=mask).last_hidden_state[there]
    assert expected.std() > 0.1
    padded = encode(ours, ids, Padded(ids.shape[1], mask, CPU))[there]
    packed = encode(ours, ids[there], Packed(LENGTHS, CPU))
    assert (padded - expected).abs().max() < 1e-4
    assert (packed - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    "config",
    [
        {**BERT, "hidden_act": "mish"},
        {**BERT, "model_type": "roberta", "pad_token_id": 0},
        {**BERT, "model_type": "electra", "embedding_size": 64},
        {**MODERN, "rope_parameters": {**ROPES, "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}},
    ],
    ids=["activation", "padding", "kind", "rope"],
)
@torch.inference_mode()
def test_what_is_not_written_here_transformers_builds(tmp_path: Path, config: dict[str, Any]) -> None:
    encoder = build_encoder(written(tmp_path, config), config)
    assert not isinstance(encoder, BertEncoder | ModernBertEncoder)
    ids, mask = padded_rows()
    encoder.load_state_dict({name: torch.zeros(tensor.shape) for name, tensor in encoder.state_dict().items()}, assign=True)
    assert encode(encoder, ids[:2, :9], Padded(9, mask[:2, :9], CPU)).shape == (2, 9, 64)


def kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    q_bounds: Tensor,
    k_bounds: Tensor,
    longest_q: int,
    longest_k: int,
    window_size: Any = (-1, -1),
) -> Tensor:
    """What the kernel for rows of any lengths is documented to compute, row by row."""
    found = []
    assert q_bounds.dtype == k_bounds.dtype == torch.int32
    assert (int(q_bounds.diff().max()), int(k_bounds.diff().max())) == (longest_q, longest_k)
    for row in range(len(q_bounds) - 1):
        q, k, v = query[q_bounds[row] : q_bounds[row + 1]], key[k_bounds[row] : k_bounds[row + 1]], value[k_bounds[row] : k_bounds[row + 1]]
        apart = torch.arange(len(k)) - torch.arange(len(q))[:, None]
        seen = torch.ones(len(q), len(k), dtype=torch.bool)
        if window_size != (-1, -1):
            seen = (apart >= -window_size[0]) & (apart <= window_size[1])
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        found.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, float("-inf")).softmax(-1), v))
    return torch.cat(found)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@torch.inference_mode()
def test_decisions_do_not_depend_on_how_rows_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    encoder, _ = both(tmp_path, CONFIGS[name])
    model = DecisionModel(encoder, head_layers=2).eval()
    ids, mask = padded_rows()
    rows = len(LENGTHS)
    marker_mask = torch.arange(3) < torch.tensor([3, 2, 1] * rows)[:rows, None]
    markers = torch.tensor([[0, 1, 2]] * rows) * marker_mask
    given = (torch.arange(rows) % 3, markers, marker_mask)
    expected = model(ids, mask, *given)
    assert expected[0][marker_mask].std() > 0.05
    layouts: list[Layout] = [Packed(LENGTHS, CPU), Varying(LENGTHS, CPU)]
    for layout in layouts:
        for found, wanted in zip(model.score(ids[mask.bool()], layout, *given), expected, strict=True):
            assert torch.allclose(found, wanted, atol=1e-5)


def test_no_kernel_for_varying_rows_on_a_cpu() -> None:
    assert not can_vary(CPU, torch.bfloat16)


class TestPrecision:
    def test_scorer_and_act_head_stay_and_the_model_too(self, tmp_path: Path) -> None:
        model = DecisionModel(both(tmp_path, BERT)[0], head_layers=1)
        half = in_precision(model, torch.bfloat16)
        kinds = {name: parameter.dtype for name, parameter in half.named_parameters()}
        kept = {name for name, kind in kinds.items() if kind == torch.float32}
        assert kept == {name for name in kinds if name.startswith(("scorer.", "act_head."))}
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert half.scorer[1].weight is model.scorer[1].weight
        assert in_precision(model, torch.float32) is model
