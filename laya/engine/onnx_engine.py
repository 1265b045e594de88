"""The ONNX engine: packed micro-batches through an exported network in onnxruntime, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from laya.engine.base import CPU_TOKEN_BUDGET, GPU_TOKEN_BUDGET, BatchingEngine
from laya.engine.batches import pad_batch
from laya.engine.errors import closed
from laya.files import CheckpointError
from laya.sequences import TokenSequence

INPUTS = ("ids", "mask", "type_ids", "markers", "marker_mask")
"""The network's inputs, as in `laya.network.model.DecisionModel.forward`."""
OUTPUTS = ("logits", "act")
"""Logits [B, K] and act probabilities [B, n_act]."""
CHECKPOINT_KEY = "laya.checkpoint"
"""Metadata of the file: the fingerprint of the checkpoint that it was exported from."""
WEIGHTS_KEY = "laya.weights"
"""Metadata of the file: the SHA-256 of the weights."""
PRECISION_KEY = "laya.precision"
"""Metadata of the file: float32 or int8."""

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

_OUT_OF_MEMORY = ("failed to allocate memory", "bfcarena", "out of memory", "bad_alloc")
_LOST = ("cuda failure", "cuda error", "device-side assert", "an illegal memory access", "uncorrectable ecc")


def pick_provider(device: str | None) -> tuple[str, str]:
    """The device asked for, or the best one there is, and the execution provider that runs on it.

    Raises:
        ValueError: The device is neither "cpu" nor "cuda", or this onnxruntime cannot use it.
    """
    available = ort.get_available_providers()
    if device is None:
        device = "cuda" if _PROVIDERS["cuda"] in available else "cpu"
    provider = _PROVIDERS.get(device)
    if provider is None:
        raise ValueError(f"device must be one of {', '.join(_PROVIDERS)}, not {device!r}")
    if provider not in available:
        raise ValueError(f"device {device!r} cannot be used here: this onnxruntime offers {', '.join(available)}")
    return device, provider


class OnnxEngine(BatchingEngine):
    """Scores rows with onnxruntime.

    Args:
        path: The exported network; see `laya.onnx_export`.
        fingerprint: What the file must say of the checkpoint that it was exported from.
        weights: SHA-256 of the weights that it must be of; "" where they are not known.
        pad_id: Token id that fills short rows.
        device: "cpu", "cuda", or None for the best one there is.
        threads: Threads of a forward pass on a CPU; None leaves it to onnxruntime (one a core).
        token_budget: Padded tokens of one forward pass; None picks one for the device.

    Raises:
        CheckpointError: The file cannot be read, is not an exported network, or belongs to another checkpoint.
        ValueError: The device cannot be used here.
    """

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        weights: str,
        pad_id: int,
        device: str | None = None,
        threads: int | None = None,
        token_budget: int | None = None,
    ) -> None:
        self.device, provider = pick_provider(device)
        super().__init__(pad_id, token_budget or (CPU_TOKEN_BUDGET if self.device == "cpu" else GPU_TOKEN_BUDGET))
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or 0
        try:
            session = ort.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # onnxruntime raises a class of its own for each kind of broken file
            raise CheckpointError(f"{path} is no ONNX network that onnxruntime can run: {error}") from None
        known = session.get_modelmeta().custom_metadata_map
        if tuple(part.name for part in session.get_inputs()) != INPUTS or CHECKPOINT_KEY not in known:
            raise CheckpointError(f"{path} was not exported by this package: write it with `laya export-onnx`")
        if known[CHECKPOINT_KEY] != fingerprint:
            raise CheckpointError(f"{path} was exported from another checkpoint (other encoder or tokenizer): export this one's")
        if weights and known.get(WEIGHTS_KEY) != weights:
            raise CheckpointError(f"{path} was exported from this checkpoint with other weights than it has now: export it again")
        self.size_bytes = path.stat().st_size
        self.precision = known.get(PRECISION_KEY, "float32")
        self._session: ort.InferenceSession | None = session

    def _run(self, rows: Sequence[TokenSequence]) -> tuple[list[list[float]], list[float]]:
        session = self._session  # read once: `close` may come while the pass runs, which is finished all the same
        if session is None:
            raise closed()
        batch = pad_batch(rows, self._pad_id)
        mask = np.ones_like(batch.ids) if batch.mask is None else batch.mask
        arrays = (batch.ids, mask, batch.type_ids, batch.markers, batch.marker_mask)
        logits, act = session.run(OUTPUTS, dict(zip(INPUTS, arrays, strict=True)))
        return logits.tolist(), act[:, 0].tolist()

    def _place(self) -> str:
        return self.device

    def _out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or _says(error, _OUT_OF_MEMORY)

    def _device_lost(self, error: Exception) -> bool:
        return _says(error, _LOST)

    def describe(self) -> dict[str, str]:
        """Device, precision and kind of the engine."""
        return {"engine": "onnxruntime", "device": self.device, "precision": self.precision}

    def close(self) -> None:
        """Frees the network's memory; the engine cannot be used afterwards."""
        super().close()
        self._session = None


def _says(error: Exception, signs: tuple[str, ...]) -> bool:
    """Whether an error that onnxruntime raised says one of these; its classes stand for kinds of calls, not of troubles."""
    text = str(error).lower()
    return (isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")) and any(sign in text for sign in signs)
