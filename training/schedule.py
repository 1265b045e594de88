"""The learning rate: a short warm-up by steps, then a cosine by the clock, so that a run ends where its time budget ends."""

from __future__ import annotations

import math

WARM_UP_STEPS = 100
LOWEST_SHARE = 0.02


def learning_rate(peak: float, step: int, elapsed: float) -> float:
    """Returns the learning rate of a step.

    Args:
        peak: The highest rate.
        step: Steps done so far.
        elapsed: Share of the time budget that is used up; more than 1 counts as 1.
    """
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, elapsed)))
    return peak * warm_up * (LOWEST_SHARE + (1 - LOWEST_SHARE) * cosine)
