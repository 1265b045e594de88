"""Activation functions by the names that Hugging Face configs give them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor

_TANH_GELU = partial(F.gelu, approximate="tanh")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of a name.

    Raises:
        ValueError: It is not known here.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not known")
    return _ACTIVATIONS[name]
