"""The torch engine: packed micro-batches through a DecisionModel on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy.typing as npt
import torch

from laya.engine.base import CPU_TOKEN_BUDGET, GPU_TOKEN_BUDGET, BatchingEngine
from laya.engine.batches import pack_batch, pad_batch
from laya.engine.errors import closed
from laya.network.encoders import OwnEncoder
from laya.network.layouts import Packed
from laya.network.model import DecisionModel, in_precision
from laya.network.varying import Varying, can_vary
from laya.sequences import TokenSequence

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


class TorchEngine(BatchingEngine):
    """Scores rows with torch.

    Rows lie one behind the other where the network can read them so, and nothing is computed for padding: on a CPU, and in half precision
    on a GPU, where there is a kernel for it. Elsewhere they are padded: encoders of transformers, compiled networks, fp32 on a GPU.

    Args:
        model: The model, with its weights in fp32. It is moved to the device; in another precision a copy is.
        pad_id: Token id that fills short rows.
        device: Where it runs.
        dtype: What the network computes in. Scorer and act head stay in fp32.
        compile_model: Whether to run the model through torch.compile.
        token_budget: Padded tokens of one forward pass; None picks one for the device.
    """

    def __init__(
        self,
        model: DecisionModel,
        pad_id: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        compile_model: bool = False,
        token_budget: int | None = None,
    ) -> None:
        super().__init__(pad_id, token_budget or (CPU_TOKEN_BUDGET if device.type == "cpu" else GPU_TOKEN_BUDGET))
        self.device = device
        self.dtype = dtype
        placed = in_precision(model, dtype).eval().requires_grad_(False).to(device)
        self.size_bytes = sum(parameter.nbytes for parameter in placed.parameters())
        self.packs = isinstance(placed.encoder, OwnEncoder) and not compile_model and (device.type == "cpu" or can_vary(device, dtype))
        self._forward: Any = torch.compile(placed, dynamic=True) if compile_model else placed.score if self.packs else placed

    @torch.inference_mode()
    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        forward = self._forward  # read once: `close` may come while the pass runs, which is finished all the same
        if forward is None:
            raise closed()
        batch = pack_batch(rows) if self.packs else pad_batch(rows, self._pad_id)
        ids, type_ids, markers, marker_mask = map(self._placed, (batch.ids, batch.type_ids, batch.markers, batch.marker_mask))
        if not self.packs:
            how: Any = None if batch.mask is None else self._placed(batch.mask)
        elif self.device.type == "cpu":
            how = Packed(batch.lengths, self.device)
        else:
            how = Varying(batch.lengths, self.device)
        logits, act = forward(ids, how, type_ids, markers, marker_mask)
        return logits.tolist(), act[:, 0].tolist()

    def _placed(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """An array on the device. A copy to a GPU goes on while the next is made: it reads memory that stays where it is."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor.to(self.device)

    def computed_tokens(self, lengths: Sequence[int]) -> int:
        """Tokens that a pass over rows of these lengths computes; see `BatchingEngine`."""
        return sum(lengths) if self.packs else super().computed_tokens(lengths)

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
        return {"engine": "torch", "device": str(self.device), "precision": str(self.dtype).removeprefix("torch.")}

    def close(self) -> None:
        """Frees the device's memory; the engine cannot be used afterwards."""
        super().close()
        self._forward = None
        with suppress(RuntimeError):  # a device that is lost has nothing to give back
            self._free_memory()
