"""The torch engine: packed micro-batches through a DecisionModel on a CPU or a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch

from laya.engine.base import CPU_TOKEN_BUDGET, GPU_TOKEN_BUDGET, BatchingEngine
from laya.engine.batches import PaddedBatch
from laya.engine.errors import closed
from laya.files import CheckpointError
from laya.model import DecisionModel

_AMP_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed", "cudnn_status_alloc_failed")
"""What errors say that have no class of their own: those of the CPU's allocator, of MPS, and of libraries on a GPU."""
_LOST = ("device-side assert", "an illegal memory access", "uncorrectable ecc")


def pick_device(device: str | None) -> torch.device:
    """The device asked for, or the best one there is.

    Raises:
        ValueError: torch does not know it or cannot use it here.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here ({reason}); leave device out to let it be chosen") from None
    return found


def amp_dtype(name: object, source: str) -> torch.dtype | None:
    """The torch type that a checkpoint's ``amp_dtype`` names; None means full precision.

    Raises:
        CheckpointError: The name is not one of bf16, fp16, fp32.
    """
    if name is None:
        return None
    if not isinstance(name, str) or name not in _AMP_DTYPES:
        raise CheckpointError(f"{source}: amp_dtype must be one of {', '.join(_AMP_DTYPES)}, not {name!r}")
    return _AMP_DTYPES[name]


class TorchEngine(BatchingEngine):
    """Scores rows with torch.

    Args:
        model: The model, with its weights.
        pad_id: Token id that fills short rows.
        device: Where it runs.
        autocast: Type of the matrix products; None computes in fp32.
        compile_model: Whether to run the model through torch.compile.
        token_budget: Padded tokens of one forward pass; None picks one for the device.
    """

    def __init__(
        self,
        model: DecisionModel,
        pad_id: int,
        device: torch.device,
        autocast: torch.dtype | None = None,
        compile_model: bool = False,
        token_budget: int | None = None,
    ) -> None:
        super().__init__(pad_id, token_budget or (CPU_TOKEN_BUDGET if device.type == "cpu" else GPU_TOKEN_BUDGET))
        self.device = device
        self.autocast = autocast
        self.size_bytes = sum(parameter.nbytes for parameter in model.parameters())
        placed = model.eval().requires_grad_(False).to(device)
        self._forward: Any = torch.compile(placed, dynamic=True) if compile_model else placed

    @torch.inference_mode()
    def _run(self, batch: PaddedBatch) -> tuple[list[list[float]], list[float]]:
        forward = self._forward  # read once: `close` may come while the pass runs, which is finished all the same
        if forward is None:
            raise closed()
        ids, type_ids, markers, marker_mask = (
            torch.from_numpy(array).to(self.device) for array in (batch.ids, batch.type_ids, batch.markers, batch.marker_mask)
        )
        mask = None if batch.mask is None else torch.from_numpy(batch.mask).to(self.device)
        with self._precision():
            logits, act = forward(ids, mask, type_ids, markers, marker_mask)
        return logits.tolist(), act[:, 0].tolist()

    def _precision(self) -> AbstractContextManager[object]:
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, self.autocast)

    def _place(self) -> str:
        return str(self.device)

    def _out_of_memory(self, error: Exception) -> bool:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        text = str(error).lower()
        return isinstance(error, RuntimeError) and any(sign in text for sign in _OUT_OF_MEMORY)

    def _device_lost(self, error: Exception) -> bool:
        if isinstance(error, getattr(torch, "AcceleratorError", ())):  # an older torch has none
            return True
        text = str(error).lower()
        return isinstance(error, RuntimeError) and (text.startswith("cuda error") or any(sign in text for sign in _LOST))

    def _free_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "mps":
            torch.mps.empty_cache()

    def describe(self) -> dict[str, str]:
        """Device, precision and kind of the engine."""
        return {"engine": "torch", "device": str(self.device), "precision": str(self.autocast or torch.float32).removeprefix("torch.")}

    def close(self) -> None:
        """Frees the device's memory; the engine cannot be used afterwards."""
        super().close()
        self._forward = None
        with suppress(RuntimeError):  # a device that is lost has nothing to give back
            self._free_memory()
