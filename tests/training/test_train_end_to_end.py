from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from laya.checkpoint import build_model, open_checkpoint
from laya.names import CheckpointSource
from laya.tokenizer import Tokenizer
from training import train as train_module
from training.debian import debian_rows
from training.evaluate import Evaluator
from training.examples import encode_rows
from training.fetch import MINILM_FOLDER, minilm_folder
from training.held_out import hand_written_sets
from training.initial import build_initial_model
from training.packages import Package
from training.phrases import FACETS, SECTIONS
from training.splits import SPLITS, Split
from training.train import build_parser, train
from training.vocabulary import SPECIAL_TOKENS

CHARACTERS = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
PIECES = [*SPECIAL_TOKENS, *CHARACTERS, *(f"##{character}" for character in CHARACTERS), *(f"word{number}" for number in range(60))]
WIDTH = 64
BODY = "a body " * 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, make_tokenizer: Callable[[Sequence[str]], dict[str, Any]]) -> Path:
    """A data folder with a MiniLM of two thin layers."""
    folder = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(PIECES), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=4 * WIDTH)
    BertModel(config).save_pretrained(folder / MINILM_FOLDER)
    (folder / MINILM_FOLDER / "tokenizer.json").write_text(json.dumps(make_tokenizer(PIECES)))
    return folder


def packages_of_each_split(*_: object) -> dict[Split, list[Package]]:
    rng = random.Random(0)
    tags = [f"{facet}::{value}" for facet in FACETS for value in FACETS[facet].values]
    return {
        split: [
            Package(f"name{number}", split, rng.choice(list(SECTIONS)), f"synopsis {number}", BODY, frozenset(rng.sample(tags, 4)))
            for number in range(120)
        ]
        for split in SPLITS
    }


@pytest.fixture(scope="module")
def checkpoint(data: Path) -> Path:
    """A checkpoint that was trained for a second."""
    out = data / "checkpoint"
    command = f"--data {data} --out {out} --minutes 0.01 --rows 150 --calibration-rows 84 --evaluation-rows 4 --vocabulary 190 --layers 1"
    arguments = build_parser().parse_args([*command.split(), "--tokens", "2048"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "load_packages", packages_of_each_split)
        with pytest.warns(RuntimeWarning, match="fewer than 150 records"):
            train(arguments)
    return out


def test_the_checkpoint_is_one_that_laya_loads(checkpoint: Path) -> None:
    opened = open_checkpoint(CheckpointSource(str(checkpoint)))
    assert opened.config["option_layout"] == "sequential"
    assert opened.config["act_costs"] == {"defer": 0.1}
    assert Tokenizer(opened.tokenizer_folder).vocabulary_size == 190
    logits, act = build_model(opened)(
        torch.tensor([[2, 7, 3, 4, 8, 4, 9, 3]]), None, torch.tensor([0]), torch.tensor([[3, 5]]), torch.tensor([[True, True]])
    )
    assert torch.isfinite(logits).all()
    assert act.sum().item() == pytest.approx(1)


def test_the_file_holds_fp16_weights_and_no_pooler(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    assert not [name for name in tensors if "pooler" in name]
    assert tensors.pop("temperature").dtype == torch.float32
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}


def test_the_results_stand_beside_the_checkpoint(checkpoint: Path) -> None:
    written = json.loads(checkpoint.with_name("checkpoint.evaluation.json").read_text())
    assert written["fit"]["steps"] >= 1
    assert len(written["results"]) == 16
    assert all(0 <= result["measures"]["accuracy"] <= 1 for result in written["results"].values())


def test_evaluation_does_not_depend_on_what_is_beside_a_row(checkpoint: Path) -> None:
    evaluator = Evaluator.open(str(checkpoint), "fp32")
    rows = debian_rows(packages_of_each_split()["test"], random.Random(1), 20, ["section"])
    both = evaluator.evaluate(rows).measures
    halves = [evaluator.evaluate(rows[:10]).measures, evaluator.evaluate(rows[10:]).measures]
    assert both.nll == pytest.approx(sum(part.nll for part in halves) / 2, abs=1e-5)


def test_the_warm_head_is_the_layer_that_was_cut_off(data: Path) -> None:
    source = BertModel.from_pretrained(minilm_folder(data))
    model, _ = build_initial_model(minilm_folder(data), list(range(100)), layers=1, head_layers=1, n_act=2)
    state, cut = model.state_dict(), source.encoder.layer[1]
    assert torch.equal(state["head.layers.0.linear1.weight"], cut.intermediate.dense.weight)
    assert torch.equal(state["head.layers.0.self_attn.in_proj_weight"][WIDTH : 2 * WIDTH], cut.attention.self.key.weight)
    assert torch.equal(state["encoder.embeddings.word_embeddings.weight"], source.embeddings.word_embeddings.weight[:100])
    assert not state["type_emb.weight"].any()
    cold, _ = build_initial_model(minilm_folder(data), list(range(100)), layers=1, head_layers=1, n_act=2, warm_head=False)
    assert not torch.equal(cold.state_dict()["head.layers.0.linear1.weight"], cut.intermediate.dense.weight)


def test_minilm_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"training\.fetch"):
        minilm_folder(tmp_path)


def test_hand_written_messages(tmp_path: Path, checkpoint: Path) -> None:
    questions = {
        "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "shipping"]},
        "leaves": {"type": "noul", "instructions": "Does the customer leave?"},
    }
    messages = [
        {"state": "Where is my parcel?", "answers": {"team": "shipping", "leaves": False}},
        {"state": "Bye.", "answers": {"leaves": True}},
    ]
    (tmp_path / "hand.json").write_text(json.dumps({"questions": questions, "messages": messages}))
    sets = hand_written_sets(tmp_path / "hand.json")
    assert {name: [row.answer for row in rows] for name, rows in sets.items()} == {"hand: team": [1], "hand: leaves": [0, 1]}
    assert [example.target for example in encode_rows(sets["hand: leaves"], Tokenizer(checkpoint / "tokenizer"))] == [0, 1]


def test_options_in_another_order_move_the_target(checkpoint: Path) -> None:
    row = debian_rows(packages_of_each_split()["test"], random.Random(2), 1, ["section_of_8"])[0]
    row.question["option_order"] = [7, 6, 5, 4, 3, 2, 1, 0]
    (example,) = encode_rows([row], Tokenizer(checkpoint / "tokenizer"))
    assert example.target == 7 - row.answer


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    told = capsys.readouterr().out
    assert "training.fetch" in told
    assert "--cold-head" in told
