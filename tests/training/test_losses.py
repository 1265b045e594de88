from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from training.losses import cross_entropy, log_loss, proper_loss, ranked_probability_loss, spherical_loss
from training.schedule import learning_rate

NO_OPTION = -math.inf


def logits_of(*rows: list[float]) -> torch.Tensor:
    """Logits whose softmax is the given probabilities; 0 stands for a slot without an option."""
    return torch.tensor([[math.log(p) if p else NO_OPTION for p in row] for row in rows])


def test_log_loss() -> None:
    assert log_loss(logits_of([0.5, 0.25, 0.25], [0.8, 0.2, 0]), torch.tensor([1, 0])).tolist() == pytest.approx(
        [-math.log(0.25), -math.log(0.8)]
    )


def test_spherical_loss() -> None:
    found = spherical_loss(logits_of([0.6, 0.4, 0], [0.6, 0.4, 0]), torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([1 - 0.6 / math.sqrt(0.52), 1 - 0.4 / math.sqrt(0.52)])


def test_ranked_probability_loss() -> None:
    # cumulative 0.2, 0.5, (1) against 0, 1, (1): (0.04 + 0.25) / 2
    assert ranked_probability_loss(logits_of([0.2, 0.3, 0.5, 0]), torch.tensor([1])).item() == pytest.approx(0.145)


def test_a_far_level_costs_more_than_the_next_one() -> None:
    near, far = ranked_probability_loss(logits_of([0.1, 0.8, 0.1], [0.8, 0.1, 0.1]), torch.tensor([2, 2])).tolist()
    assert near < far


def test_a_score_of_one_level_costs_nothing() -> None:
    assert ranked_probability_loss(logits_of([1.0, 0, 0]), torch.tensor([0])).item() == 0


def test_proper_loss_adds_the_ranked_loss_to_scores_only() -> None:
    logits = logits_of([0.2, 0.3, 0.5], [0.2, 0.3, 0.5])
    targets = torch.tensor([1, 1])
    each = -math.log(0.3) + 0.5 * (1 - 0.3 / math.sqrt(0.38))
    assert proper_loss(logits, targets, torch.tensor([0, 2])).item() == pytest.approx(each)
    assert proper_loss(logits, targets, torch.tensor([0, 1])).item() == pytest.approx(each + 0.145 / 2)
    assert cross_entropy(logits, targets, torch.tensor([0, 1])).item() == pytest.approx(-math.log(0.3))


@pytest.mark.parametrize("loss", [log_loss, spherical_loss, ranked_probability_loss])
def test_the_truth_costs_least(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    truth = [0.5, 0.3, 0.2]

    def expected(claimed: list[float]) -> float:
        costs = loss(logits_of(*[claimed] * 3), torch.tensor([0, 1, 2])).tolist()
        return sum(float(p * cost) for p, cost in zip(truth, costs, strict=True))

    others = [[0.6, 0.2, 0.2], [0.45, 0.35, 0.2], [0.34, 0.33, 0.33], [0.9, 0.05, 0.05]]
    assert all(expected(truth) < expected(other) for other in others)


def test_gradients_are_finite_with_free_slots() -> None:
    logits = logits_of([0.2, 0.8, 0], [0.5, 0.5, 0]).requires_grad_()
    (gradient,) = torch.autograd.grad(proper_loss(logits, torch.tensor([0, 1]), torch.tensor([0, 1])), logits)
    assert torch.isfinite(gradient).all()


def test_learning_rate() -> None:
    assert learning_rate(1.0, 0, 0.0) == pytest.approx(0.01)
    assert learning_rate(1.0, 99, 0.0) == pytest.approx(1.0)
    assert learning_rate(1.0, 500, 0.5) == pytest.approx(0.51)
    assert learning_rate(1.0, 500, 1.0) == learning_rate(1.0, 500, 1.7) == pytest.approx(0.02)
