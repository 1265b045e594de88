from __future__ import annotations

import math
import random

import pytest
import torch

from training.batches import plan_batches
from training.measures import area_under_curve, expected_calibration_error, measure


def test_measure_by_hand() -> None:
    logits = torch.tensor([[0.8, 0.2, 0.0], [0.25, 0.25, 0.5]]).log()
    found = measure(logits, torch.tensor([0, 1]), torch.ones(2))
    assert (found.n, found.accuracy, found.majority) == (2, 0.5, 0.5)
    assert found.chance == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found.nll == pytest.approx(-(math.log(0.8) + math.log(0.25)) / 2)
    assert found.brier == pytest.approx((0.04 + 0.04 + 0.0625 + 0.5625 + 0.25) / 2)
    assert found.ece == pytest.approx((0.2 + 0.5) / 2)
    assert found.mean_error == pytest.approx((0.2 + 0.25) / 2)
    assert found.auc is None


def test_area_under_curve() -> None:
    assert area_under_curve(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])) == pytest.approx(0.75)
    assert area_under_curve(torch.tensor([0.5, 0.5]), torch.tensor([0, 1])) == 0.5
    assert area_under_curve(torch.tensor([0.5, 0.5]), torch.tensor([1, 1])) is None


def test_calibrated_answers_have_no_error() -> None:
    assert expected_calibration_error(torch.full((4,), 0.75), torch.tensor([1.0, 1, 1, 0])) == pytest.approx(0)


def test_batches_have_few_shapes_and_lose_little() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(20, 120) for _ in range(500)]
    planned = plan_batches(lengths, rng, 1024)
    assert {length % 16 for length, _ in planned} == {0}
    for length, members in planned:
        assert len(members) == 1024 // length
        assert all(length - 16 < lengths[index] <= length for index in members)
    seen = {index for _, members in planned for index in members}
    assert len(seen) > 450
