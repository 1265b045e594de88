"""Packed rows on a GPU: one attention kernel for rows of any lengths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from laya.network.layouts import Packed


def can_vary(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is a kernel: flash attention, in half precision, on GPUs from Ampere on."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16) or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from torch.nn.attention import varlen  # noqa: F401 an older torch has none
    except ImportError:
        return False
    return True


class Varying(Packed):
    """Rows one behind the other, all of them attended to by one kernel that is told where each begins.

    Args:
        lengths: Tokens of each row.
        device: Where the tensors are.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        super().__init__(lengths, device)
        self._longest = max(lengths)
        self._bounds = torch.cat([self._starts, self._starts.new_tensor([self.total])]).to(torch.int32)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> Tensor:
        """Attention within each row; see `laya.network.layouts.Layout`."""
        from torch.nn.attention.varlen import varlen_attn

        around = (-1, -1) if window is None else (window, window)
        found = varlen_attn(query, key, value, self._bounds, self._bounds, self._longest, self._longest, window_size=around)
        assert isinstance(found, Tensor)
        return found

    def attend_from(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention from some places of each row; see `laya.network.layouts.Layout`."""
        from torch.nn.attention.varlen import varlen_attn

        rows, places = query.shape[:2]
        bounds = torch.arange(0, (rows + 1) * places, places, dtype=torch.int32, device=query.device)
        found = varlen_attn(query.flatten(0, 1), key, value, bounds, self._bounds, places, self._longest)
        assert isinstance(found, Tensor)
        return found.view(rows, places, *found.shape[1:])
