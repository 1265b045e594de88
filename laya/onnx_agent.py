"""The ONNX agent: one checkpoint, its exported network in onnxruntime. It needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laya.checkpoint import open_checkpoint
from laya.engine.onnx_engine import OnnxEngine
from laya.files import CheckpointError
from laya.hooks.protocol import PredictHooks
from laya.names import find_source
from laya.parts import Calibration, read_parts
from laya.runtime import AgentRuntime


class ONNXAgent(AgentRuntime):
    """Answers typed questions with one checkpoint whose network was exported: the calls of `laya.Agent`, without torch.

    ``laya export-onnx --model NAME --output FILE`` writes the network.

    Args:
        model_id_or_path: The checkpoint, as `laya.Agent` takes it; its tokenizer, budgets and temperatures are read, its weights are not.
        onnx_path: The exported network.
        subfolder: The part of the repository or folder that holds the checkpoint.
        hooks: See `laya.hooks.HookRegistry`, also for the other hook arguments.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        hooks_timeout: Seconds a hook may take, or None.
        device: "cpu", "cuda", or None for the best that this onnxruntime offers.
        threads: Threads of a forward pass on a CPU; None is one a core.
        token: Hub token, for private repositories.
        revision: Branch, tag or commit on the hub.
        sha256: File name inside the checkpoint to the digest it must have.
        token_budget: Padded tokens of one forward pass; None picks one for the device.
        lang_temperatures: See `laya.Agent`.
        calibration: See `laya.Agent`.

    Raises:
        laya.CheckpointError: The checkpoint or the network cannot be found, is not what the format says, or they do not belong together.
        TypeError: Something given as a hook is not one.
        ValueError: The device cannot be used here, or an argument is out of range.
    """

    def __init__(
        self,
        model_id_or_path: str,
        onnx_path: str = "laya.onnx",
        subfolder: str | None = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        *,
        hooks_timeout: float | None = None,
        device: str | None = None,
        threads: int | None = None,
        token: str | None = None,
        revision: str | None = None,
        sha256: Mapping[str, str] | None = None,
        token_budget: int | None = None,
        lang_temperatures: Mapping[str, Any] | None = None,
        calibration: Calibration = None,
    ) -> None:
        path = Path(onnx_path)
        if not path.is_file():
            raise CheckpointError(
                f"the network {path} was not found: write it with `laya export-onnx --model {model_id_or_path} --output {path}` "
                "(ONNXAgent takes the checkpoint first, then the .onnx file)"
            )
        checkpoint = open_checkpoint(find_source(str(model_id_or_path), subfolder, revision), token, sha256, weights=False)
        parts = read_parts(checkpoint, calibration, lang_temperatures)
        engine = OnnxEngine(
            path, checkpoint.fingerprint, checkpoint.weights_digest(), parts.tokenizer.pad_id, device, threads, token_budget
        )
        super().__init__(
            str(model_id_or_path), parts, engine, hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout
        )
