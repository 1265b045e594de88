"""Train the act head: the probability that acting on the top answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 the name that every reader of torch code knows
from torch import Tensor, nn

from laya.engine.packing import pack
from laya.network.model import DecisionModel
from training.batches import collate
from training.examples import Example

STEPS = 150
RATE = 1e-3
WEIGHT_DECAY = 0.05
TOKENS = 8192


@dataclass(frozen=True)
class ActReport:
    """The loss at the end, the mean act probability, and the share of right answers, which it should be near."""

    loss: float
    mean_probability: float
    right: float


def train_act_head(model: DecisionModel, examples: Sequence[Example], pad_id: int) -> ActReport:
    """Trains the act head with the rest of the model frozen, so that entry 0 is the probability that the best option is right.

    Args:
        model: A model that is otherwise trained; its act head is changed in place.
        examples: Rows that the model was not trained on.
        pad_id: Token that fills the rows up.
    """
    features, right = _features(model.eval(), examples, pad_id)
    wrong = 1 - right  # class 0 is "act"
    model.act_head.requires_grad_(True)  # an engine that ran the model before has frozen it
    optimiser = torch.optim.AdamW(model.act_head.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    loss = torch.zeros(())
    for _ in range(STEPS):
        loss = F.cross_entropy(model.act_head(features), wrong)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        probability = model.act_head(features).softmax(1)[:, 0].mean()
    return ActReport(loss.item(), probability.item(), right.float().mean().item())


@torch.no_grad()
def _features(model: DecisionModel, examples: Sequence[Example], pad_id: int) -> tuple[Tensor, Tensor]:
    """Returns what the act head reads of each example, and whether its best option is right."""
    features: list[Tensor] = []
    right: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        features.append(arguments[0].detach().float())

    hook = model.act_head[0].register_forward_pre_hook(keep)
    try:
        for members in pack([len(example) for example in examples], TOKENS):
            batch = collate([examples[index] for index in members], pad_id)
            with torch.autocast("cpu", torch.bfloat16):
                logits, _ = model(batch.ids, batch.mask, batch.type_ids, batch.markers, batch.marker_mask)
            right.append((logits.argmax(1) == batch.targets).long())
    finally:
        hook.remove()
    return torch.cat(features), torch.cat(right)
