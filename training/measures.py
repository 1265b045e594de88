"""Accuracy and calibration of a set of answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor

BINS = 10
LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True)
class Measures:
    """How good a set of answers is.

    Attributes:
        n: Number of rows.
        accuracy: Share of rows whose best option is right.
        ece: Expected calibration error of the best option's probability, ten bins.
        brier: Mean squared distance between the probabilities and the truth.
        nll: Mean -log probability of the right option.
        mean_error: Mean distance between the expected and the true level; says something for scores only.
        auc: Area under the ROC curve of the second option's probability; None unless all rows have two options and both occur.
        chance: Accuracy of guessing.
        majority: Accuracy of always giving the slot that is right most often.
    """

    n: int
    accuracy: float
    ece: float
    brier: float
    nll: float
    mean_error: float
    auc: float | None
    chance: float
    majority: float


def measure(logits: Tensor, targets: Tensor, temperatures: Tensor) -> Measures:
    """Measures answers.

    Args:
        logits: [rows, slots], -inf where a row has fewer options.
        targets: [rows], the slot of the right option.
        temperatures: [rows], what the logits are divided by.
    """
    probabilities = (logits / temperatures[:, None]).softmax(-1)
    confidence, best = probabilities.max(1)
    right = (best == targets).float()
    of_target = probabilities.gather(1, targets[:, None]).squeeze(1)
    expected_level = (probabilities * torch.arange(logits.shape[1])).sum(1)
    options = torch.isfinite(logits).sum(1)
    return Measures(
        n=len(targets),
        accuracy=right.mean().item(),
        ece=expected_calibration_error(confidence, right),
        brier=((probabilities - F.one_hot(targets, logits.shape[1])) ** 2).sum(1).mean().item(),
        nll=-of_target.clamp_min(LEAST_PROBABILITY).log().mean().item(),
        mean_error=(expected_level - targets).abs().mean().item(),
        auc=area_under_curve(probabilities[:, 1], targets) if bool((options == 2).all()) else None,
        chance=(1 / options).mean().item(),
        majority=Counter(targets.tolist()).most_common(1)[0][1] / len(targets),
    )


def expected_calibration_error(confidence: Tensor, right: Tensor) -> float:
    """Returns the mean distance between confidence and accuracy over ten bins of confidence, weighted by their rows."""
    error = 0.0
    for number in range(BINS):
        members = (confidence > number / BINS) & (confidence <= (number + 1) / BINS)
        if bool(members.any()):
            error += members.float().mean().item() * abs(confidence[members].mean() - right[members].mean()).item()
    return error


def area_under_curve(scores: Tensor, targets: Tensor) -> float | None:
    """Returns the probability that a random positive row scores higher than a random negative one; None without both."""
    positive, negative = scores[targets == 1], scores[targets == 0]
    if not len(positive) or not len(negative):
        return None
    difference = positive[:, None] - negative[None]
    return ((difference > 0).float() + 0.5 * (difference == 0).float()).mean().item()
