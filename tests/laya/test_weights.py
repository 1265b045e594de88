"""Building without values and with given weights: the same network, no copies, and buffers that no file holds."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

import laya
from laya.checkpoint import build_model, open_checkpoint, read_weights, weights_size
from laya.names import CheckpointSource
from laya.network.unfilled import Unfilled

QUESTIONS = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}
SIZE = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, dict[str, Any]] = {
    "modernbert": SIZE | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    "bert": SIZE,
    "distilbert": {"vocab_size": 99, "dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "sinusoidal_pos_embds": True},
    "roberta": SIZE,
    "deberta-v2": SIZE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    "mpnet": SIZE,
}


@pytest.fixture
def folder(quiet_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(quiet_folder, tmp_path / "checkpoint"))


@pytest.fixture
def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_weights(folder / "model.safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_built_without_values_has_the_buffers_of_one_built_with_them(kind: str) -> None:
    config = AutoConfig.for_model(kind, **KINDS[kind])
    usual = AutoModel.from_config(config).eval()
    with Unfilled():
        unfilled = AutoModel.from_config(config).eval()
    assert any(parameter.is_meta for parameter in unfilled.parameters())
    buffers = dict(unfilled.named_buffers())
    assert {name: buffer.dtype for name, buffer in usual.named_buffers()} == {name: buffer.dtype for name, buffer in buffers.items()}
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in usual.named_buffers())
    unfilled.load_state_dict(usual.state_dict(), assign=True)
    ids = torch.arange(24).view(2, 12) + 3
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    with torch.inference_mode():
        expected, found = (model(input_ids=ids, attention_mask=mask).last_hidden_state for model in (usual, unfilled))
    assert torch.equal(expected, found)


def test_other_threads_build_as_usual() -> None:
    found: list[bool] = []
    with Unfilled():
        thread = threading.Thread(target=lambda: found.append(torch.nn.Linear(2, 2).weight.is_meta))
        thread.start()
        thread.join()
        assert torch.nn.Linear(2, 2).weight.is_meta
    assert found == [False]
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_an_encoder_that_cannot_be_built_without_values_is_built_with_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, tries = AutoModel.from_config, []

    def picky(*args: Any, **options: Any) -> Any:
        tries.append(torch.empty(1).is_meta)
        torch.empty(1).item()  # no value to be had on the meta device
        return usual(*args, **options)

    def not_here(_: Any) -> Any:
        raise ValueError("for transformers to build")

    monkeypatch.setattr("laya.network.encoders.ModernBertEncoder", not_here)
    monkeypatch.setattr(AutoModel, "from_config", picky)
    model = build_model(open_checkpoint(CheckpointSource(str(folder))))
    assert tries == [True, False]
    assert not any(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])


class TestGivenWeights:
    def test_the_same_answers(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        states = ["hello", "my parcel is late " * 40]
        expected = laya.load(str(folder), device="cpu").predict_batch(states, QUESTIONS)
        assert laya.load(str(folder), device="cpu", weights=weights).predict_batch(states, QUESTIONS) == expected

    def test_they_are_the_models_own_memory(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        checkpoint = open_checkpoint(CheckpointSource(str(folder)))
        for model in (build_model(checkpoint, weights), build_model(checkpoint, weights)):
            assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == {
                name: tensor.data_ptr() for name, tensor in weights.items()
            }
            assert not any(parameter.requires_grad for parameter in model.parameters())

    def test_the_file_is_not_needed(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        (folder / "model.safetensors").unlink()
        assert laya.Agent(str(folder), device="cpu", weights=weights).max_len == 256

    def test_other_types_are_computed_in_fp32(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        halves = {name: tensor.half() for name, tensor in weights.items()}
        model = build_model(open_checkpoint(CheckpointSource(str(folder))), halves)
        assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}

    def test_wrong_ones_are_refused_like_a_wrong_file(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        weights["scorer.renamed"] = weights.pop("scorer.3.bias")
        weights["type_emb.weight"] = torch.zeros(4, 64)
        with pytest.raises(laya.CheckpointError, match="does not fit its config") as caught:
            laya.Agent(str(folder), device="cpu", weights=weights)
        assert all(name in str(caught.value) for name in ("scorer.3.bias", "scorer.renamed", "type_emb.weight (4, 64), not (3, 64)"))


def test_a_running_agent_does_not_notice_a_file_that_is_cut_short(folder: Path) -> None:
    agent = laya.load(str(folder), device="cpu")
    before = agent.system_one("hello", QUESTIONS)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(10)
    assert agent.system_one("hello", QUESTIONS) == before


def test_the_size_is_known_from_the_head(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    assert weights_size(folder / "model.safetensors") == sum(tensor.nbytes for tensor in weights.values())
    assert "temperature" not in weights


@pytest.mark.parametrize("read", [read_weights, weights_size])
def test_a_file_that_is_none_is_named(read: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(laya.CheckpointError, match=r"model\.safetensors"):
        read(tmp_path / "model.safetensors")
