"""The training loop: batches, loss, one optimiser step after the other until the time budget is spent."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from laya.network.model import DecisionModel
from training.batches import Batch, training_batches
from training.examples import Example
from training.losses import LOSSES, LossName
from training.schedule import learning_rate

HEAD_RATE = 2.0
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
LARGEST_GRADIENT = 1.0
SMOOTHING = 0.98
REPORT_EVERY = 25


@dataclass(frozen=True)
class FitOptions:
    """How to train.

    Attributes:
        seconds: Time budget; the schedule runs by the clock.
        peak_rate: Highest learning rate of the encoder; the head learns twice as fast.
        tokens: Padded tokens of a batch.
        loss: Name of the loss.
    """

    seconds: float
    peak_rate: float
    tokens: int
    loss: LossName


@dataclass(frozen=True)
class FitReport:
    """What training did: optimiser steps, rows seen (also twice), seconds, and the smoothed loss at the end."""

    steps: int
    rows: int
    seconds: float
    loss: float


def fit(model: DecisionModel, examples: Sequence[Example], pad_id: int, rng: random.Random, options: FitOptions) -> FitReport:
    """Trains all of the model but the act head, which is trained last and alone.

    Args:
        model: The model; it is changed in place.
        examples: The training rows.
        pad_id: Token that fills the rows up.
        rng: Source of randomness for the order of the rows.
        options: How to train.
    """
    body, head = _parameters(model)
    optimiser = torch.optim.AdamW(
        [{"params": body, "rate": 1.0}, {"params": head, "rate": HEAD_RATE}], weight_decay=WEIGHT_DECAY, betas=BETAS, fused=True
    )
    loss_of = LOSSES[options.loss]
    steps = rows = 0
    smoothed = 0.0
    start = time.monotonic()
    model.train()
    for batch in _endless(examples, rng, options.tokens, pad_id):
        rate = learning_rate(options.peak_rate, steps, (time.monotonic() - start) / options.seconds)
        for group in optimiser.param_groups:
            group["lr"] = rate * group["rate"]
        with torch.autocast("cpu", torch.bfloat16):
            logits, _ = model(batch.ids, batch.mask, batch.type_ids, batch.markers, batch.marker_mask)
        loss = loss_of(logits, batch.targets, batch.type_ids)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(body + head, LARGEST_GRADIENT)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)
        smoothed = loss.item() if not steps else SMOOTHING * smoothed + (1 - SMOOTHING) * loss.item()
        steps += 1
        rows += len(batch.targets)
        elapsed = time.monotonic() - start
        if steps % REPORT_EVERY == 0:
            epochs = rows / len(examples)
            print(f"step {steps} rows {rows} ({epochs:.2f} epochs) loss {smoothed:.4f} {elapsed:.0f} s", flush=True)
        if elapsed > options.seconds:
            break
    model.eval()
    return FitReport(steps, rows, time.monotonic() - start, smoothed)


def _endless(examples: Sequence[Example], rng: random.Random, tokens: int, pad_id: int) -> Iterator[Batch]:
    while True:
        yield from training_batches(examples, rng, tokens, pad_id)


def _parameters(model: DecisionModel) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    body, head = [], []
    for name, parameter in model.named_parameters():
        if name.startswith("encoder."):
            body.append(parameter)
        elif not name.startswith("act_head."):
            head.append(parameter)
    return body, head
