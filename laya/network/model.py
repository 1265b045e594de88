"""The decision model: an encoder, a small transformer head, a scorer read at the option markers, an act head at [CLS]."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor, nn

from laya.network.encoders import encode, width_of
from laya.network.layouts import Layout, Padded

HEAD_WIDTH = 64
"""Hidden units an attention head of the decision head has."""
_ACT_FEATURES = 4


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

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """[N, d] of [N, d]: the layer at every token."""
        weight, bias = self.self_attn.in_proj_weight, self.self_attn.in_proj_bias
        query, key, value = self._split(F.linear(self.norm1(hidden), weight, bias), 3)
        return self._behind(hidden, layout.attend(query, key, value))

    def at(self, places: Tensor, hidden: Tensor, layout: Layout) -> Tensor:
        """[B, P, d] of [N, d]: the layer at the places [B, P] alone, each of which still sees its whole row."""
        width = hidden.shape[-1]
        weight, bias = self.self_attn.in_proj_weight, self.self_attn.in_proj_bias
        normed = self.norm1(hidden)
        (query,) = self._split(F.linear(layout.read(normed, places), weight[:width], bias[:width]), 1)
        key, value = self._split(F.linear(normed, weight[width:], bias[width:]), 2)
        return self._behind(layout.read(hidden, places), layout.attend_from(query, key, value))

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.view(*x.shape[:-1], parts, self.heads, -1).unbind(-3)

    def _behind(self, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + self.self_attn.out_proj(attended.flatten(-2))
        return cast("Tensor", hidden + self.linear2(F.relu(self.linear1(self.norm2(hidden)))))


class DecisionModel(nn.Module):
    """An encoder with a decision head.

    Args:
        encoder: One of `laya.network.encoders`, or a Hugging Face encoder with ``config.hidden_size``.
        head_layers: Number of head layers.
        n_act: Outputs of the act head; entry 0 is the probability that acting on the top answer is right.
    """

    def __init__(self, encoder: nn.Module, head_layers: int = 2, n_act: int = 2) -> None:
        super().__init__()
        width = width_of(encoder)
        self.encoder = encoder
        self.head = nn.Module()
        self.head.layers = nn.ModuleList([HeadLayer(width) for _ in range(head_layers)])
        self.type_emb = nn.Embedding(3, width)
        self.scorer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self.act_head = nn.Sequential(nn.Linear(width + _ACT_FEATURES, 256), nn.GELU(), nn.Linear(256, n_act))

    def forward(self, ids: Tensor, mask: Tensor | None, type_ids: Tensor, markers: Tensor, marker_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Scores the options of padded rows.

        Args:
            ids: [B, L] token ids.
            mask: [B, L] int, 1 where a token stands; None if nothing is padded.
            type_ids: [B] row of the type embedding.
            markers: [B, K] positions of the option markers, 0 where there is no option.
            marker_mask: [B, K] bool, True where there is an option.

        Returns:
            Logits [B, K], -inf where there is no option, and act probabilities [B, n_act]; both fp32.
        """
        return self.score(ids, Padded(ids.shape[1], mask, ids.device), type_ids, markers, marker_mask)

    def score(self, ids: Tensor, layout: Layout, type_ids: Tensor, markers: Tensor, marker_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Scores the options of rows that lie as a layout says: ids are [N], all else and what is returned as in `forward`."""
        hidden = encode(self.encoder, ids, layout) + layout.spread(self.type_emb(type_ids))
        # Only [CLS] and the markers are read behind the last layer.
        read = torch.cat([torch.zeros_like(markers[:, :1]), markers], dim=1)
        layers = [cast("HeadLayer", layer) for layer in cast("nn.ModuleList", self.head.layers)]
        for layer in layers[:-1]:
            hidden = layer(hidden, layout)
        found = layers[-1].at(read, hidden, layout) if layers else layout.read(hidden, read)
        found = found.to(next(self.scorer.parameters()).dtype)  # what decides is computed in full precision, however the rest is
        logits = self.scorer(found[:, 1:]).squeeze(-1).float().masked_fill(~marker_mask, float("-inf"))
        act = self.act_head(torch.cat([found[:, 0], _act_features(logits, marker_mask).to(found.dtype)], dim=1))
        return logits, act.float().softmax(-1)


def in_precision(model: DecisionModel, dtype: torch.dtype) -> DecisionModel:
    """The model with encoder and head layers in another type, as a copy that shares the rest; the very same one for fp32.

    Scorer and act head stay as they are: they are small, and what they say is the answer.
    """
    if dtype == torch.float32:
        return model
    known: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for part in (model.encoder, model.head, model.type_emb):
        for parameter in part.parameters():
            known[id(parameter)] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
    return copy.deepcopy(model, known)


def _act_features(logits: Tensor, marker_mask: Tensor) -> Tensor:
    """[B, 4]: p1, p1 - p2, H / ln(max(k, 2)) and k / 255 of the untempered softmax; p2 and H are 0 for a single option."""
    p = logits.softmax(-1)
    count = marker_mask.sum(1).float()
    top = F.pad(p, (0, 1)).topk(2, dim=1).values
    entropy = -(p * p.clamp_min(1e-12).log()).sum(-1)
    return torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy / count.clamp_min(2).log(), count / 255], dim=1)
