"""Fit the temperatures of a checkpoint on the calibration split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laya.calibration import MAX_TEMPERATURE, MIN_TEMPERATURE, option_bucket
from laya.questions import TYPE_IDS, Question
from training.losses import log_loss

if TYPE_CHECKING:
    from torch import Tensor

GRID_STEPS = 60
FEWEST_ROWS = 150


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """Returns the temperature with the least log loss, of a grid that covers what a checkpoint may hold.

    Args:
        logits: [rows, slots], -inf where a row has fewer options.
        targets: [rows], the slot of the right option.
    """
    ratio = MAX_TEMPERATURE / MIN_TEMPERATURE
    grid: list[float] = [MIN_TEMPERATURE * ratio ** (step / GRID_STEPS) for step in range(GRID_STEPS + 1)]
    losses = [log_loss(logits / temperature, targets).mean().item() for temperature in grid]
    return round(grid[losses.index(min(losses))], 4)


def fit_temperatures(
    logits: Tensor, targets: Tensor, questions: Sequence[Question], fewest_rows: int = FEWEST_ROWS
) -> tuple[list[float], dict[str, float]]:
    """Fits one temperature a question type, and one for each number of options that has enough rows.

    Args:
        logits: [rows, slots].
        targets: [rows].
        questions: The question of each row.
        fewest_rows: An option bucket with fewer rows gets no temperature of its own.

    Returns:
        `temperature` and `temperature_by_options` of the config. A type without any row keeps 1.0.
    """
    by_type = [1.0] * len(TYPE_IDS)
    by_options: dict[str, float] = {}
    for name, type_id in TYPE_IDS.items():
        rows = [row for row, question in enumerate(questions) if question.type == name]
        if rows:
            by_type[type_id] = fit_temperature(logits[rows], targets[rows])
        if name == "noul":  # always two options: its bucket would say the same again
            continue
        for bucket in ("2", "3-5", "6-10", "11+"):
            members = [row for row in rows if option_bucket(questions[row].n) == bucket]
            if len(members) >= fewest_rows:
                by_options[f"{name}:{bucket}"] = fit_temperature(logits[members], targets[members])
    return by_type, by_options
