"""The decision model: an encoder, a small transformer head, a scorer read at the option markers, an act head at [CLS]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

HEAD_WIDTH = 64
"""Hidden units an attention head of the decision head has."""
_ACT_FEATURES = 4


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


class _SelfAttention(nn.Module):
    """Parameters named as in torch.nn.MultiheadAttention, so that published weights load as they are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)


class HeadLayer(nn.Module):
    """A pre-norm transformer layer with torch.nn.TransformerEncoderLayer's parameters, on scaled_dot_product_attention.

    Written out because the stock layer computes all positions and takes a slow path for padding masks; here the last
    layer is computed at the positions that are read afterwards, and nowhere else.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // HEAD_WIDTH)
        self.self_attn = _SelfAttention(width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, 4 * width)
        self.linear2 = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, mask: Tensor | None, positions: Tensor | None = None) -> Tensor:
        """Computes the layer.

        Args:
            hidden: [B, L, d].
            mask: [B, 1, 1, L] bool, True where a token stands; None if nothing is padded.
            positions: [B, P] of positions whose output is wanted, or None for all L.

        Returns:
            [B, P, d], or [B, L, d].
        """
        width = hidden.shape[-1]
        normed = self.norm1(hidden)
        weight, bias = self.self_attn.in_proj_weight, self.self_attn.in_proj_bias
        if positions is None:
            query, key, value = F.linear(normed, weight, bias).chunk(3, dim=-1)
        else:
            hidden = _gather(hidden, positions)
            query = F.linear(_gather(normed, positions), weight[:width], bias[:width])
            key, value = F.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        attended = F.scaled_dot_product_attention(self._split(query), self._split(key), self._split(value), attn_mask=mask)
        hidden = hidden + self.self_attn.out_proj(attended.transpose(1, 2).flatten(2))
        return cast("Tensor", hidden + self.linear2(F.relu(self.linear1(self.norm2(hidden)))))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class DecisionModel(nn.Module):
    """An encoder with a decision head.

    Args:
        encoder: A Hugging Face encoder with ``config.hidden_size``.
        head_layers: Number of head layers.
        n_act: Outputs of the act head; entry 0 is the probability that acting on the top answer is right.
    """

    def __init__(self, encoder: nn.Module, head_layers: int = 2, n_act: int = 2) -> None:
        super().__init__()
        width = int(cast("Any", encoder).config.hidden_size)
        self.encoder = encoder
        self.head = nn.Module()
        self.head.layers = nn.ModuleList([HeadLayer(width) for _ in range(head_layers)])
        self.type_emb = nn.Embedding(3, width)
        self.scorer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self.act_head = nn.Sequential(nn.Linear(width + _ACT_FEATURES, 256), nn.GELU(), nn.Linear(256, n_act))

    def forward(self, ids: Tensor, mask: Tensor | None, type_ids: Tensor, markers: Tensor, marker_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Scores the options of each row.

        Args:
            ids: [B, L] token ids.
            mask: [B, L] int, 1 where a token stands; None if nothing is padded.
            type_ids: [B] row of the type embedding.
            markers: [B, K] positions of the option markers, 0 where there is no option.
            marker_mask: [B, K] bool, True where there is an option.

        Returns:
            Logits [B, K], -inf where there is no option, and act probabilities [B, n_act]; both fp32.
        """
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        hidden = hidden + self.type_emb(type_ids)[:, None]
        key_mask = None if mask is None else mask.bool()[:, None, None, :]
        # Only [CLS] and the markers are read behind the last layer.
        read = torch.cat([torch.zeros_like(markers[:, :1]), markers], dim=1)
        layers = list(cast("nn.ModuleList", self.head.layers))
        for layer in layers[:-1]:
            hidden = layer(hidden, key_mask)
        hidden = layers[-1](hidden, key_mask, read) if layers else _gather(hidden, read)
        logits = self.scorer(hidden[:, 1:]).squeeze(-1).float().masked_fill(~marker_mask, float("-inf"))
        features = torch.cat([hidden[:, 0].float(), _act_features(logits, marker_mask)], dim=1)
        act = self.act_head(features)
        return logits, act.float().softmax(-1)


def _gather(hidden: Tensor, positions: Tensor) -> Tensor:
    return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))


def _act_features(logits: Tensor, marker_mask: Tensor) -> Tensor:
    """[B, 4]: p1, p1 - p2, H / ln(max(k, 2)) and k / 255 of the untempered softmax; p2 and H are 0 for a single option."""
    p = logits.softmax(-1)
    count = marker_mask.sum(1).float()
    top = F.pad(p, (0, 1)).topk(2, dim=1).values
    entropy = -(p * p.clamp_min(1e-12).log()).sum(-1)
    return torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy / count.clamp_min(2).log(), count / 255], dim=1)
