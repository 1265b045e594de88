"""ONNX: the export, the file that it writes, and the agent that runs it. What every agent does is in tests/conformance."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

import laya
from laya.checkpoint import open_checkpoint
from laya.engine.onnx_engine import INPUTS, OnnxEngine, pick_provider
from laya.names import find_source
from laya.onnx_export import MAX_DIFFERENCE, ExportError, export_onnx
from laya.sequences import TokenSequence

QUESTIONS: dict[str, Any] = {
    "only": {"type": "choice", "instructions": "Note it.", "criteria": ["read"]},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery", "technical"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
STATES: list[Any] = ["I was charged twice!", "", "late again " * 400, {"subject": "parcel"}, [{"role": "user", "content": "hello"}]]


@pytest.fixture(scope="session")
def mini_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = export_onnx("mini", tmp_path_factory.mktemp("onnx") / "mini.onnx")
    assert written.difference <= MAX_DIFFERENCE
    assert written.size == written.path.stat().st_size
    return written.path


def closest(found: Any, wanted: Any) -> float:
    """The largest difference of two results' probabilities; everything else must be equal."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        return max((closest(found[key], value) for key, value in wanted.items()), default=0.0)
    if isinstance(wanted, float):
        return abs(float(found) - wanted)
    assert found == wanted
    return 0.0


class TestParity:
    def test_mini_answers_as_with_torch(self, mini: laya.Agent, mini_onnx: Path) -> None:
        agent = laya.ONNXAgent("mini", str(mini_onnx), device="cpu")
        for batch_size in (None, 1):
            found = agent.predict_batch(STATES, QUESTIONS, batch_size=batch_size)
            wanted = mini.predict_batch(STATES, QUESTIONS, batch_size=batch_size)
            assert max(map(closest, found, wanted)) <= 1e-3

    def test_one_option_alone(self, mini_onnx: Path) -> None:
        answer = laya.ONNXAgent("mini", str(mini_onnx)).system_one("hello", {"only": QUESTIONS["only"]})["answers"]["only"]
        assert (answer["choice"], answer["probabilities"], answer["answer_confidence"]) == ("read", {"read": 1.0}, 1.0)

    @pytest.mark.parametrize(("rows", "length", "options"), [(1, 2, 1), (1, 255, 1), (7, 33, 2), (2, 256, 40)])
    def test_no_axis_is_fixed(self, tiny_folder: Path, tiny_onnx: Path, tiny: laya.Agent, rows: int, length: int, options: int) -> None:
        engine = OnnxEngine(tiny_onnx, open_checkpoint(find_source(str(tiny_folder))).fingerprint, "", 0, "cpu")
        random = np.random.default_rng(0)
        sequences = [
            TokenSequence(random.integers(5, 800, length).tolist(), sorted(random.integers(1, length, options).tolist()), row % 3)
            for row in range(rows)
        ]
        for found, wanted in zip(engine.score(sequences), tiny._engine.score(sequences), strict=True):
            assert found.logits == pytest.approx(wanted.logits, abs=1e-3)
            assert found.act_probability == pytest.approx(wanted.act_probability, abs=1e-3)


class TestExport:
    def test_says_what_it_belongs_to_and_has_free_axes(self, tiny_onnx: Path) -> None:
        network = onnx.load(str(tiny_onnx))
        shapes = {part.name: [axis.dim_param for axis in part.type.tensor_type.shape.dim] for part in network.graph.input}
        assert tuple(shapes) == INPUTS
        assert shapes["ids"] == shapes["mask"] == ["batch", "length"]
        assert shapes["markers"] == shapes["marker_mask"] == ["batch", "options"]
        assert {"laya.checkpoint", "laya.precision"} <= {part.key for part in network.metadata_props}

    def test_int8_is_smaller_and_answers_alike(self, mini: laya.Agent, mini_onnx: Path, tmp_path: Path) -> None:
        written = export_onnx("mini", tmp_path / "new folder" / "mini.onnx", int8=True)
        assert written.size < 0.6 * mini_onnx.stat().st_size
        agent = laya.ONNXAgent("mini", str(written.path), device="cpu")
        assert agent.describe()["precision"] == "int8"
        found, wanted = (made.predict_batch(STATES, QUESTIONS) for made in (agent, mini))
        assert 1e-3 < max(map(_shift, found, wanted)) < 0.3

    @pytest.fixture
    def traced(self, tiny_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The golden checkpoint's network as it was traced already, which takes most of an export's time."""
        monkeypatch.setattr("laya.onnx_export._trace", lambda model: onnx.load(str(tiny_onnx)))

    @pytest.mark.usefixtures("traced")
    def test_a_file_that_is_there_is_replaced_and_nothing_else_is_left(self, tiny_folder: Path, tmp_path: Path) -> None:
        target = tmp_path / "laya.onnx"
        target.write_text("something older")
        export_onnx(str(tiny_folder), target)
        assert [entry.name for entry in tmp_path.iterdir()] == ["laya.onnx"]
        onnx.checker.check_model(str(target))

    def test_a_checkpoint_that_is_none_leaves_the_file_alone(self, tmp_path: Path) -> None:
        target = tmp_path / "laya.onnx"
        target.write_text("something older")
        with pytest.raises(laya.CheckpointError, match="nowhere"):
            export_onnx(str(tmp_path / "nowhere"), target)
        assert target.read_text() == "something older"

    @pytest.mark.usefixtures("traced")
    def test_a_network_that_computes_something_else_is_not_kept(
        self, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("laya.onnx_export.MAX_DIFFERENCE", 0.0)
        with pytest.raises(ExportError, match="differs from torch"):
            export_onnx(str(tiny_folder), tmp_path / "laya.onnx")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("part", ["scorer.3.bias", pytest.param("act_head.2.bias", marks=pytest.mark.slow)])
    def test_a_network_that_returns_no_numbers_is_not_kept(self, quiet_folder: Path, tmp_path: Path, part: str) -> None:
        folder = tmp_path / "broken"
        shutil.copytree(quiet_folder, folder)
        tensors = load_file(str(folder / "model.safetensors"))
        tensors[part] = torch.full_like(tensors[part], float("nan"))
        save_file(tensors, str(folder / "model.safetensors"))
        with pytest.raises(ExportError, match="differs from torch by nan"):
            export_onnx(str(folder), tmp_path / "laya.onnx")
        assert not (tmp_path / "laya.onnx").exists()

    def test_what_torch_cannot_trace_is_told_in_one_line(self, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("laya.onnx_export._trace", lambda model: 1 / 0)
        with pytest.raises(ExportError, match=r"cannot be exported: division by zero$"):
            export_onnx(str(tiny_folder), tmp_path / "laya.onnx")
        assert list(tmp_path.iterdir()) == []


def _shift(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    answers = found["answers"]
    return max(abs(float(answers[qid]["answer_confidence"] - answer["answer_confidence"])) for qid, answer in wanted["answers"].items())


class TestAgent:
    def test_needs_no_weights_and_no_torch(self, quiet_folder: Path, tiny_onnx: Path, tmp_path: Path) -> None:
        folder = tmp_path / "without weights"
        for path in quiet_folder.rglob("*"):
            if path.is_file() and path.suffix != ".safetensors":
                copy = folder / path.relative_to(quiet_folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
        program = (
            "import sys, laya\n"
            "agent = laya.ONNXAgent(sys.argv[1], sys.argv[2])\n"
            "answer = agent.predict('hello', {'q': {'type': 'noul', 'instructions': 'x'}})['answers']['q']\n"
            "assert 0 <= answer['noul'] <= 1, answer\n"
            "print([name for name in ('torch', 'transformers', 'ray') if name in sys.modules])\n"
        )
        run = subprocess.run([sys.executable, "-c", program, str(folder), str(tiny_onnx)], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout, run.stderr) == (0, "[]\n", "")

    def test_a_network_that_is_not_there_names_the_command(self, quiet_folder: Path, tmp_path: Path) -> None:
        with pytest.raises(laya.CheckpointError, match=r"laya export-onnx --model .* --output"):
            laya.ONNXAgent(str(quiet_folder), str(tmp_path / "laya.onnx"))

    def test_a_network_of_older_weights_is_refused(self, quiet_folder: Path, tiny_onnx: Path, tmp_path: Path) -> None:
        folder = tmp_path / "trained further"
        shutil.copytree(quiet_folder, folder)
        tensors = load_file(str(folder / "model.safetensors"))
        save_file({**tensors, "scorer.3.bias": tensors["scorer.3.bias"] + 1}, str(folder / "model.safetensors"))
        with pytest.raises(laya.CheckpointError, match="other weights than it has now: export it again"):
            laya.ONNXAgent(str(folder), str(tiny_onnx))

    def test_a_closed_agent_says_so(self, quiet_folder: Path, tiny_onnx: Path) -> None:
        for agent in (laya.ONNXAgent(str(quiet_folder), str(tiny_onnx)), laya.Agent(str(quiet_folder), device="cpu")):
            agent.close()
            agent.close()
            with pytest.raises(RuntimeError, match="was closed"):
                agent.system_one("hello", QUESTIONS)

    def test_a_network_of_another_checkpoint_is_refused(self, tiny_onnx: Path) -> None:
        with pytest.raises(laya.CheckpointError, match="another checkpoint"):
            laya.ONNXAgent("mini", str(tiny_onnx))

    @pytest.mark.parametrize("content", [b"", b"no network", b"\x08\x07"])
    def test_a_file_that_is_no_network_is_refused(self, quiet_folder: Path, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "laya.onnx"
        path.write_bytes(content)
        with pytest.raises(laya.CheckpointError, match=r"no ONNX network|not exported by this package"):
            laya.ONNXAgent(str(quiet_folder), str(path))

    def test_a_network_from_elsewhere_is_refused(self, quiet_folder: Path, tmp_path: Path) -> None:
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        copied = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "other", [value], [copied])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
        onnx.save(model, str(tmp_path / "laya.onnx"))
        with pytest.raises(laya.CheckpointError, match="not exported by this package"):
            laya.ONNXAgent(str(quiet_folder), str(tmp_path / "laya.onnx"))

    def test_says_what_it_runs_on(self, quiet_folder: Path, tiny_onnx: Path) -> None:
        agent = laya.ONNXAgent(str(quiet_folder), str(tiny_onnx), device="cpu", threads=1)
        assert agent.describe() == {"model_id": str(quiet_folder), "engine": "onnxruntime", "device": "cpu", "precision": "float32"}
        agent.close()

    def test_a_device_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(ValueError, match="must be one of cpu, cuda"):
            pick_provider("tpu")
        with pytest.raises(ValueError, match="cannot be used here"):
            pick_provider("cuda")
