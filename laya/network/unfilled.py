"""Building a network without memory for its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Unfilled(TorchFunctionMode):
    """While it is entered, what this thread builds has parameters without memory or values, on torch's meta device.

    Parameters start as ``torch.empty``, and buffers, which no file holds, from numbers (arange, zeros, full): so taking the memory
    from the former alone leaves the latter real and right, where building on the meta device would lose them. Other threads
    notice nothing.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.empty:
            options["device"] = "meta"
        return func(*args, **options)
