"""Which number type a network computes in, and whether it may."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

import torch

from laya.files import CheckpointError

PrecisionName = Literal["auto", "fp32", "bf16", "fp16", "int8"]
"""What a caller may ask for."""
MAX_MOVED = 0.01
"""Most that a probability of the probe set may move for a reduced precision to be chosen."""
WORTH = 1.2
"""How much faster than fp32 a CPU's bf16 products must be to be chosen: less does not pay for the digits."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_CPU_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # as Linux names them, the last on ARM
_TRIAL_S = 60.0
# In a process of its own: a processor that only pretends to have an instruction ends the process that tries it.
_TRIAL = """
import json, time, torch
torch.set_grad_enabled(False)
def seconds(dtype):
    a, w = torch.rand(1024, 768).to(dtype), torch.rand(768, 768).to(dtype)
    best = 1e9
    for _ in range(7):
        begun = time.perf_counter()
        for _ in range(4):
            torch.nn.functional.linear(a, w)
        best = min(best, time.perf_counter() - begun)
    return best
print(json.dumps(seconds(torch.float32) / seconds(torch.bfloat16)))
"""


@dataclass(frozen=True, slots=True)
class Precision:
    """What a network computes in.

    Attributes:
        dtype: The type.
        reason: Why.
    """

    dtype: torch.dtype
    reason: str


def named_dtype(name: object, source: str) -> torch.dtype | None:
    """The torch type that a checkpoint's ``amp_dtype`` names; None where it names none.

    Raises:
        CheckpointError: The name is not one of bf16, fp16, fp32.
    """
    if name is None:
        return None
    if not isinstance(name, str) or name not in _DTYPES:
        raise CheckpointError(f"{source}: amp_dtype must be one of {', '.join(sorted(_DTYPES))}, not {name!r}")
    return _DTYPES[name]


def check_precision(name: object) -> None:
    """Looks a precision's name over before anything is loaded.

    Raises:
        ValueError: It is none, or not one of torch's.
    """
    if name is not None and name not in get_args(PrecisionName):
        raise ValueError(f"precision must be one of {', '.join(get_args(PrecisionName))}, or left out, not {name!r}")
    if name == "int8":
        raise ValueError("int8 is computed by laya.ONNXAgent: write the network with `laya export-onnx --int8`, or give another precision")


def choose_precision(
    name: str | None, fast: bool, device: torch.device, amp: torch.dtype | None, moved: Callable[[torch.dtype], float]
) -> Precision:
    """Decides what a network computes in.

    Args:
        name: What was asked for; None stands for what the published package does: fp32 on a CPU, the checkpoint's amp_dtype on a GPU.
        fast: Without a name: the checkpoint's amp_dtype on a CPU too.
        device: Where it will compute.
        amp: The checkpoint's amp_dtype.
        moved: Says by how much the probabilities of the probe set move in a type, compared with fp32.
    """
    if name is None:
        if device.type == "cuda" or fast:
            return Precision(amp or torch.float32, "the checkpoint's amp_dtype" if amp else "the checkpoint names no amp_dtype")
        return Precision(torch.float32, "the default on this device")
    if name != "auto":
        return Precision(_DTYPES[name], "asked for")
    wanted, reason = _of_hardware(device)
    if wanted == torch.float32:
        return Precision(wanted, reason)
    distance = moved(wanted)
    if not distance < MAX_MOVED:  # not a number is no small distance
        return Precision(torch.float32, f"{reason}, but the probe set's probabilities move by {distance:.4f} there")
    return Precision(wanted, f"{reason}, and the probe set's probabilities move by {distance:.4f} only")


def _of_hardware(device: torch.device) -> tuple[torch.dtype, str]:
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) >= (8, 0):
            return torch.bfloat16, "this GPU has bf16"
        return torch.float16, "this GPU has no bf16"
    if device.type != "cpu":
        return torch.float32, f"nothing else is tried on {device.type}"
    flags = _CPU_FLAGS & cpu_flags()
    if not flags:
        return torch.float32, "this processor has no bf16"
    gain = bf16_gain()
    if gain is None:
        return torch.float32, f"this processor says that it has bf16 ({', '.join(sorted(flags))}), but a trial failed"
    if gain < WORTH:
        return torch.float32, f"this processor's bf16 products are {gain:.1f} times as fast as fp32"
    return torch.bfloat16, f"this processor's bf16 products are {gain:.1f} times as fast as fp32"


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """What the processor says it can do; empty where Linux does not tell."""
    if platform.system() != "Linux":
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(word for line in lines if line.lower().startswith(("flags", "features")) for word in line.partition(":")[2].split())


@lru_cache(maxsize=1)
def bf16_gain() -> float | None:
    """How many times as fast as fp32 this processor multiplies in bf16, tried in a process of its own; None if that failed."""
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=_TRIAL_S, check=True)
        return float(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
