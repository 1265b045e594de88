"""Proper scoring rules: what training minimises. Each returns one number a row; slots without an option hold -inf logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from laya.questions import TYPE_IDS

SPHERICAL_WEIGHT = 0.5

LossName = Literal["proper", "cross-entropy"]


def log_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns -log of the probability of the right option."""
    return -logits.float().log_softmax(-1).gather(1, targets[:, None]).squeeze(1)


def spherical_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns 1 - p(right) / |p|: like the log loss it is least for the true probabilities, but it is bounded."""
    probabilities = logits.float().softmax(-1)
    length: Tensor = torch.linalg.vector_norm(probabilities, dim=1)
    return 1 - probabilities.gather(1, targets[:, None]).squeeze(1) / length


def ranked_probability_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean squared difference of the cumulative distributions: a level that is far off costs more than the next one.

    Args:
        logits: [rows, slots], level 0 first.
        targets: [rows], the right level.
    """
    levels = torch.isfinite(logits).sum(1)
    steps = torch.arange(logits.shape[1], device=logits.device)[None]
    reached = (steps >= targets[:, None]).float()
    inner = steps < (levels - 1)[:, None]  # the last cumulative probability is 1 whatever the model says
    squared = (logits.float().softmax(-1).cumsum(1) - reached) ** 2
    return (squared * inner).sum(1) / (levels - 1).clamp_min(1)


def proper_loss(logits: Tensor, targets: Tensor, type_ids: Tensor) -> Tensor:
    """Returns the mean of log loss + half the spherical loss, with the ranked probability loss added for scores."""
    loss = log_loss(logits, targets) + SPHERICAL_WEIGHT * spherical_loss(logits, targets)
    scores = (type_ids == TYPE_IDS["score"]).nonzero().squeeze(1)
    if len(scores):
        loss = loss.index_add(0, scores, ranked_probability_loss(logits[scores], targets[scores]))
    return loss.mean()


def cross_entropy(logits: Tensor, targets: Tensor, type_ids: Tensor) -> Tensor:  # noqa: ARG001 all losses are called alike
    """Returns the mean log loss."""
    return log_loss(logits, targets).mean()


LOSSES: dict[LossName, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"proper": proper_loss, "cross-entropy": cross_entropy}
