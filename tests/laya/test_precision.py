"""What a network computes in: what is asked for, what the hardware has, and what the probe set says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import laya
from laya.checkpoint import open_checkpoint
from laya.engine import precision
from laya.engine.precision import bf16_gain, check_precision, choose_precision, cpu_flags
from laya.names import CheckpointSource
from laya.parts import read_parts
from laya.probes import ProbeSet

CPU = torch.device("cpu")


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A processor that says it has bf16, and whose bf16 is 4 times as fast."""
    monkeypatch.setattr(precision, "cpu_flags", lambda: frozenset({"fma", "amx_bf16"}))
    monkeypatch.setattr(precision, "bf16_gain", lambda: 4.0)
    return monkeypatch


def chosen(name: str | None, moved: float = 0.002, *, fast: bool = False, amp: torch.dtype | None = torch.bfloat16) -> tuple[str, str]:
    found = choose_precision(name, fast, CPU, amp, lambda _: moved)
    return str(found.dtype).removeprefix("torch."), found.reason


class TestAsked:
    @pytest.mark.parametrize(("name", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")])
    def test_a_name_is_taken_at_its_word(self, name: str, dtype: str) -> None:
        assert chosen(name) == (dtype, "asked for")

    def test_none_is_what_the_published_package_does(self) -> None:
        assert chosen(None)[0] == "float32"
        assert chosen(None, fast=True)[0] == "bfloat16"
        assert chosen(None, fast=True, amp=None)[0] == "float32"
        assert chosen("fp32", fast=True)[0] == "float32"

    def test_what_is_no_precision_is_refused_before_anything_is_loaded(self) -> None:
        with pytest.raises(ValueError, match="one of auto, fp32, bf16, fp16, int8, or left out, not 'fp8'"):
            laya.load("nowhere/at-all", precision="fp8")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"laya\.ONNXAgent.*laya export-onnx --int8"):
            check_precision("int8")


class TestAuto:
    def test_bf16_where_it_pays_and_the_answers_stay(self, hardware: pytest.MonkeyPatch) -> None:
        assert chosen("auto") == (
            "bfloat16",
            "this processor's bf16 products are 4.0 times as fast as fp32, and the probe set's probabilities move by 0.0020 only",
        )

    @pytest.mark.parametrize("moved", [0.01, 0.5, float("nan")])
    def test_fp32_where_the_answers_move(self, hardware: pytest.MonkeyPatch, moved: float) -> None:
        dtype, reason = chosen("auto", moved)
        assert dtype == "float32"
        assert reason.endswith(f"but the probe set's probabilities move by {moved:.4f} there")

    @pytest.mark.parametrize(
        ("gain", "reason"),
        [
            (1.1, "this processor's bf16 products are 1.1 times as fast as fp32"),
            (None, "says that it has bf16 (amx_bf16), but a trial failed"),
        ],
    )
    def test_fp32_where_it_does_not_pay_or_ends_the_process(self, hardware: pytest.MonkeyPatch, gain: float | None, reason: str) -> None:
        hardware.setattr(precision, "bf16_gain", lambda: gain)
        assert chosen("auto")[0] == "float32"
        assert reason in chosen("auto")[1]

    def test_nothing_is_tried_where_the_processor_says_it_has_none(self, hardware: pytest.MonkeyPatch) -> None:
        hardware.setattr(precision, "cpu_flags", lambda: frozenset({"avx2"}))
        hardware.setattr(precision, "bf16_gain", lambda: pytest.fail("tried"))
        assert chosen("auto") == ("float32", "this processor has no bf16")


class TestTrial:
    @pytest.fixture(autouse=True)
    def again(self) -> None:
        bf16_gain.cache_clear()

    def test_it_measures_this_processor(self) -> None:
        gain = bf16_gain()
        assert gain is not None
        assert 0.01 < gain < 100
        assert (gain > 1) == bool({"amx_bf16", "avx512_bf16"} & cpu_flags())

    def test_a_process_that_dies_is_no_gain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        assert bf16_gain() is None

    @pytest.mark.parametrize("trial", ["print('fast')", "while True: pass"])
    def test_nor_is_one_that_says_nothing_or_hangs(self, monkeypatch: pytest.MonkeyPatch, trial: str) -> None:
        monkeypatch.setattr(precision, "_TRIAL", trial)
        monkeypatch.setattr(precision, "_TRIAL_S", 1.0)
        assert bf16_gain() is None

    def test_no_interpreter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        assert bf16_gain() is None


class TestAgents:
    def test_an_agent_says_what_it_computes_in_and_why(self, hardware: pytest.MonkeyPatch) -> None:
        agent = laya.load("mini", "cpu", precision="auto")
        told = agent.describe()
        assert told["precision"] == "bfloat16"
        assert "4.0 times as fast" in told["precision_reason"]

    def test_bf16_answers_are_near(self) -> None:
        questions = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
        states = ["Where is my parcel? This is the third time I ask!", "All is well, thank you.", "Please call me back. " * 40]
        exact, half = (laya.load("mini", "cpu", precision=name).predict_batch(states, questions) for name in ("fp32", "bf16"))
        apart = [abs(one["answers"]["angry"]["noul"] - other["answers"]["angry"]["noul"]) for one, other in zip(exact, half, strict=True)]
        assert 0 < max(apart) < 0.05

    def test_the_probe_set_fits_a_checkpoint_of_small_budgets(self, quiet_folder: Path) -> None:
        probes = ProbeSet(read_parts(open_checkpoint(CheckpointSource(str(quiet_folder)))))
        assert len(probes.rows) == 12
        agent = laya.load(str(quiet_folder), "cpu")
        assert [round(float(shares.sum()), 6) for shares in probes.probabilities(agent._engine)] == [1.0] * 12
        assert probes.distance(agent._engine, agent._engine) == 0.0
