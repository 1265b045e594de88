"""The torch agent: one checkpoint, loaded in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from laya.checkpoint import CONFIG_FILE, build_model, open_checkpoint
from laya.engine.precision import PrecisionName, check_precision, choose_precision, named_dtype
from laya.engine.torch_engine import TorchEngine, pick_device
from laya.hooks.protocol import PredictHooks
from laya.names import find_source
from laya.parts import Calibration, read_parts
from laya.probes import ProbeSet
from laya.runtime import AgentRuntime


class Agent(AgentRuntime):
    """Answers typed questions with one checkpoint.

    Args:
        model_id_or_path: A name ("english", "multilingual", "typed-decisions", "mini" or an alias), a hub id, or a folder.
        device: "cpu", "cuda", "cuda:1", ...; None takes a GPU if there is one.
        token: Hub token, for private repositories.
        subfolder: The part of the repository or folder that holds the checkpoint.
        fast: Compute in the checkpoint's amp_dtype on a CPU too; faster where the processor has such products, slower elsewhere.
            On a GPU that is always done. ``precision`` counts more.
        compile: Run the model through torch.compile: a slow first call, faster ones after it.
        hooks: See `laya.hooks.HookRegistry`, also for the other hook arguments.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        hooks_timeout: Seconds a hook may take, or None.
        revision: Branch, tag or commit on the hub.
        sha256: File name inside the checkpoint to the digest it must have.
        token_budget: Padded tokens of one forward pass; None picks one for the device.
        lang_temperatures: Language code to ``{"temperature"?: [choice, score, noul], "temperature_by_options"?: {...}}``, in the place
            of what the checkpoint has for those languages.
        calibration: Temperatures, or the path of a file that `laya.Temperatures.save` wrote, in the place of all of the checkpoint's.
        weights: The checkpoint's tensors by name, as `laya.checkpoint.read_weights` gives them, in the place of its file's. On a CPU
            they are shared, not copied: agents of one checkpoint may share them, they may be read-only memory, and must not change.
            In another precision than fp32 they are copied.
        precision: What the network computes in: "fp32", "bf16", "fp16", or "auto", which takes half precision where the hardware has it
            and no probability of a built-in probe set moves by 0.01 or more; `describe` says what was chosen and why. None is fp32 on a
            CPU and the checkpoint's amp_dtype on a GPU. For int8 see `laya.ONNXAgent`.

    Raises:
        laya.CheckpointError: The checkpoint cannot be found, or its files are not what the format says.
        TypeError: Something given as a hook is not one.
        ValueError: The device cannot be used here, or an argument is out of range.
    """

    def __init__(
        self,
        model_id_or_path: str = "convaiinnovations/laya",
        device: str | None = None,
        token: str | None = None,
        subfolder: str | None = None,
        fast: bool = False,
        compile: bool = False,  # noqa: A002 the reference names it so
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
        *,
        revision: str | None = None,
        sha256: Mapping[str, str] | None = None,
        token_budget: int | None = None,
        lang_temperatures: Mapping[str, Any] | None = None,
        calibration: Calibration = None,
        weights: Mapping[str, torch.Tensor] | None = None,
        precision: PrecisionName | None = None,
    ) -> None:
        check_precision(precision)
        place = pick_device(device)
        checkpoint = open_checkpoint(find_source(str(model_id_or_path), subfolder, revision), token, sha256, weights is None)
        amp = named_dtype(checkpoint.config.get("amp_dtype"), str(checkpoint.folder / CONFIG_FILE))
        parts = read_parts(checkpoint, calibration, lang_temperatures)
        model = build_model(checkpoint, weights)

        def engine(dtype: torch.dtype) -> TorchEngine:
            return TorchEngine(model, parts.tokenizer.pad_id, place, dtype, compile, token_budget)

        def moved(dtype: torch.dtype) -> float:
            return ProbeSet(parts).distance(engine(torch.float32), engine(dtype))

        chosen = choose_precision(precision, fast, place, amp, moved)
        self.precision_reason = chosen.reason
        super().__init__(
            str(model_id_or_path),
            parts,
            engine(chosen.dtype),
            hooks,
            on_predict_start,
            on_predict_end,
            hooks_raise,
            hooks_concurrent,
            hooks_timeout,
        )

    def describe(self) -> dict[str, str]:
        """The agent's checkpoint, device and precision, and why it is that precision."""
        return {**super().describe(), "precision_reason": self.precision_reason}


def load(
    model_id_or_path: str = "convaiinnovations/laya",
    device: str | None = None,
    token: str | None = None,
    subfolder: str | None = None,
    fast: bool = False,
    compile: bool = False,  # noqa: A002 the reference names it so
    hooks: Any = None,
    on_predict_start: PredictHooks = None,
    on_predict_end: PredictHooks = None,
    hooks_raise: bool = True,
    hooks_concurrent: bool = True,
    hooks_timeout: float | None = None,
    *,
    revision: str | None = None,
    sha256: Mapping[str, str] | None = None,
    token_budget: int | None = None,
    lang_temperatures: Mapping[str, Any] | None = None,
    calibration: Calibration = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    precision: PrecisionName | None = None,
) -> Agent:
    """Loads a checkpoint; the arguments are those of `Agent`.

    Example:
        >>> agent = laya.load("mini")
        >>> agent.predict("Where is my parcel?", {"angry": {"type": "noul", "instructions": "The writer is angry"}})
    """
    return Agent(
        model_id_or_path,
        device,
        token,
        subfolder,
        fast,
        compile,
        hooks,
        on_predict_start,
        on_predict_end,
        hooks_raise,
        hooks_concurrent,
        hooks_timeout,
        revision=revision,
        sha256=sha256,
        token_budget=token_budget,
        lang_temperatures=lang_temperatures,
        calibration=calibration,
        weights=weights,
        precision=precision,
    )
