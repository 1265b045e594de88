"""The reference implementation's own answers, case by case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import laya
from laya.checkpoint import build_model, open_checkpoint
from laya.engine import Engine
from laya.engine.onnx_engine import OnnxEngine
from laya.engine.torch_engine import TorchEngine
from laya.names import CheckpointSource
from laya.questions import parse_questions
from laya.sequences import TokenSequence, build_heads, build_sequence
from laya.states import serialize
from laya.tokenizer import Tokenizer

Case = dict[str, Any]

_FILE = Path(__file__).parent.parent / "goldens" / "cases.jsonl"
_CASES: list[Case] = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
ANSWERED = [pytest.param(case, id=case["id"]) for case in _CASES if "error" not in case]
REFUSED = [pytest.param(case, id=case["id"]) for case in _CASES if "error" in case]


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer(tiny_folder / "tokenizer")


@pytest.fixture(scope="module", params=["torch", "onnx"])
def engine(request: pytest.FixtureRequest, tiny_folder: Path, tokenizer: Tokenizer) -> Engine:
    checkpoint = open_checkpoint(CheckpointSource(str(tiny_folder)))
    if request.param == "torch":
        return TorchEngine(build_model(checkpoint), tokenizer.pad_id, torch.device("cpu"))
    return OnnxEngine(request.getfixturevalue("tiny_onnx"), checkpoint.fingerprint, checkpoint.weights_digest(), tokenizer.pad_id, "cpu")


def sequences_of(case: Case, tokenizer: Tokenizer) -> list[TokenSequence]:
    overrides = case.get("overrides") or {}
    max_len, head_max_len = overrides.get("max_len", 256), overrides.get("head_max_len", 96)
    state = tokenizer.encode([serialize(case["state"])])[0]
    heads = build_heads(parse_questions(case["questions"]), tokenizer, max_len, head_max_len)
    return [build_sequence(head, state, isinstance(case["state"], list), tokenizer, max_len)[0] for head in heads]


def assert_same(found: Any, wanted: Any, where: str = "result") -> None:
    """Keys, texts and counts exactly; fractions to 1e-3."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key, value in wanted.items():
            assert_same(found[key], value, f"{where}[{key!r}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-3), where
    else:
        assert found == wanted, where
        assert type(found) is type(wanted), where


def test_the_file_holds_every_case() -> None:
    assert (len(ANSWERED), len(REFUSED)) == (116, 5)


@pytest.mark.parametrize("case", ANSWERED)
def test_token_ids_and_markers(case: Case, tokenizer: Tokenizer) -> None:
    found = [{"ids": row.ids, "markers": row.markers} for row in sequences_of(case, tokenizer)]
    assert found == case["sequences"]


@pytest.mark.parametrize("case", ANSWERED)
def test_logits(case: Case, tokenizer: Tokenizer, engine: Engine) -> None:
    scores = engine.score(sequences_of(case, tokenizer))
    assert len(scores) == len(case["logits"])
    for score, wanted in zip(scores, case["logits"], strict=True):
        assert score.logits == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("case", ANSWERED)
def test_result(case: Case, tiny: laya.Agent) -> None:
    result = tiny.system_one(case["state"], case["questions"], **(case.get("overrides") or {}))
    # As JSON, because that is how the file holds keys that are no strings.
    assert_same(json.loads(json.dumps(result, allow_nan=False)), case["result"])


@pytest.mark.parametrize("case", REFUSED)
def test_error(case: Case, tiny: laya.Agent) -> None:
    with pytest.raises(ValueError) as caught:
        tiny.system_one(case["state"], case["questions"])
    assert type(caught.value).__name__ == case["error"]
    assert "'q'" in str(caught.value)
