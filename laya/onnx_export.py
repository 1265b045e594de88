"""Writing a checkpoint's network as an ONNX file, for `laya.ONNXAgent`."""

from __future__ import annotations

import logging
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from laya.checkpoint import Checkpoint, build_model, open_checkpoint
from laya.engine.onnx_engine import CHECKPOINT_KEY, INPUTS, OUTPUTS, PRECISION_KEY, WEIGHTS_KEY
from laya.names import find_source

if TYPE_CHECKING:
    import onnx
    import torch

    from laya.network.model import DecisionModel

MAX_DIFFERENCE = 1e-3
"""Most that a logit of an exported network may differ from torch's, in full precision."""
_OPSET = 18
_PROBES = ((1, 12, 1), (1, 37, 2), (3, 40, 5), (2, 200, 12))  # rows, tokens, options
_turn = threading.Lock()  # torch traces one network at a time, and what is kept quiet meanwhile is the process's own


class ExportError(RuntimeError):
    """A network cannot be exported, or what was written computes something else."""


@dataclass(frozen=True, slots=True)
class ExportedNetwork:
    """A network that was written.

    Attributes:
        path: The file.
        precision: float32 or int8.
        size: Bytes.
        difference: The largest difference of a logit, or of an act probability, from torch's.
    """

    path: Path
    precision: str
    size: int
    difference: float


def export_onnx(
    model: str,
    output: str | Path,
    int8: bool = False,
    *,
    subfolder: str | None = None,
    token: str | None = None,
    revision: str | None = None,
) -> ExportedNetwork:
    """Writes the network of a checkpoint; batch size, sequence length and number of options stay free.

    The file holds the network alone: a `laya.ONNXAgent` takes the tokenizer, budgets and temperatures from the checkpoint itself. What
    was written is run and compared with torch before it is put in its place.

    Args:
        model: A name, hub id or folder, as `laya.Agent` takes it.
        output: The file to write; one that is there is replaced in one step.
        int8: Store the weights of the matrix products as 8-bit integers and compute with them (dynamic quantization). The file is smaller;
            what it costs in accuracy is to be measured.
        subfolder: The part of the repository or folder that holds the checkpoint.
        token: Hub token, for private repositories.
        revision: Branch, tag or commit on the hub.

    Raises:
        laya.CheckpointError: The checkpoint cannot be found, or its files are not what the format says.
        ExportError: The network cannot be exported, or what was written computes something else; nothing is kept.
        OSError: The file cannot be written.
    """
    path = Path(output)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file to write")
    checkpoint = open_checkpoint(find_source(model, subfolder, revision), token)
    network = build_model(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    precision = "int8" if int8 else "float32"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".laya-export-") as scratch:
        fresh = Path(scratch) / "network.onnx"
        try:
            with _turn:
                _write(checkpoint, network, fresh, precision)
            difference = _difference(network, fresh, checkpoint)
        except OSError:
            raise
        except Exception as error:  # torch, onnx and onnxruntime raise classes of their own for what they cannot do
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ExportError(f"the network of {model!r} cannot be exported: {reason}") from error
        if not difference <= (np.inf if int8 else MAX_DIFFERENCE):  # not a number is no small difference
            raise ExportError(f"the exported network of {model!r} differs from torch by {difference:.2g}: it cannot be used")
        fresh.replace(path)
    return ExportedNetwork(path, precision, path.stat().st_size, difference)


def _write(checkpoint: Checkpoint, model: DecisionModel, path: Path, precision: str) -> None:
    import onnx

    network = _trace(model)
    if precision == "int8":
        network = _quantized(network, path.parent)
    facts = {CHECKPOINT_KEY: checkpoint.fingerprint, WEIGHTS_KEY: checkpoint.weights_digest(), PRECISION_KEY: precision}
    onnx.helper.set_model_props(network, facts)
    onnx.save(network, str(path))


def _trace(model: DecisionModel) -> onnx.ModelProto:
    import torch

    batch, length, options = (torch.export.Dim(name) for name in ("batch", "length", "options"))
    program = None
    with _quiet():
        program = torch.onnx.export(
            model,
            _rows(3, 37, 4, 2),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            opset_version=_OPSET,
            dynamo=True,
            dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}, {0: batch}, {0: batch, 1: options}, {0: batch, 1: options}),
            verbose=False,
        )
    assert program is not None
    network: onnx.ModelProto = program.model_proto
    return network


def _rows(rows: int, length: int, options: int, vocabulary: int) -> tuple[torch.Tensor, ...]:
    """Arbitrary rows; with several, of different lengths and numbers of options, so that padding is tried too."""
    import torch

    random = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (rows, length), generator=random)
    mask = torch.ones_like(ids)
    markers = torch.randint(1, length // 2, (rows, options), generator=random)
    present = torch.ones(rows, options, dtype=torch.bool)
    for row in range(1, rows):
        mask[row, length - row * (length // (2 * rows)) :] = 0
        present[row, 1 + options // (row + 1) :] = False
    return ids, mask, torch.arange(rows) % 3, markers * present, present


def _difference(model: DecisionModel, path: Path, checkpoint: Checkpoint) -> float:
    """The largest difference of a logit or an act probability between torch and what stands in a file; not a number if one is none."""
    import onnxruntime as ort
    import torch

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    vocabulary = checkpoint.encoder_number("vocab_size", 2)
    differences = []
    for rows, length, options in _PROBES:
        arrays = _rows(rows, min(length, checkpoint.positions(length)), options, vocabulary)
        present = arrays[-1].numpy()
        with torch.inference_mode():
            logits, act = (part.numpy() for part in model(*arrays))
        found_logits, found_act = session.run(OUTPUTS, {name: array.numpy() for name, array in zip(INPUTS, arrays, strict=True)})
        differences += [np.abs(found_logits[present] - logits[present]).max(), np.abs(found_act - act).max()]
    return float(np.max(differences))


def _quantized(network: onnx.ModelProto, scratch: Path) -> onnx.ModelProto:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, target = scratch / "float32.onnx", scratch / "int8.onnx"
    onnx.save(network, str(source))
    with _quiet():
        # Seven bits of the eight: processors without VNNI instructions overflow on full ones, and the file may travel to one.
        quantize_dynamic(
            source, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"]
        )
    return onnx.load(str(target))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps back what the exporters say of their own internals: none of it is about the checkpoint."""
    root, torch_onnx = logging.getLogger(), logging.getLogger("torch.onnx")
    level = torch_onnx.level
    root.addFilter(_nothing)  # what is logged at the root itself; other loggers do not pass through it
    torch_onnx.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch_onnx.setLevel(level)
        root.removeFilter(_nothing)


def _nothing(_: logging.LogRecord) -> bool:
    return False
