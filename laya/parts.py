"""What every agent takes from a checkpoint beside its network: tokenizer, temperatures, budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laya.calibration import Temperatures
from laya.checkpoint import CONFIG_FILE, Checkpoint
from laya.files import CheckpointError
from laya.tokenizer import Tokenizer

_DEFAULT_MAX_LEN = 512
_DEFAULT_HEAD_MAX_LEN = 192


@dataclass(frozen=True, slots=True)
class Budgets:
    """Token budgets of a checkpoint.

    Attributes:
        max_len: Longest sequence.
        head_max_len: Kept for instructions, options and markers.
        positions: Longest sequence that the encoder can read at all.
    """

    max_len: int
    head_max_len: int
    positions: int

    def override(self, max_len: int | None, head_max_len: int | None) -> Budgets:
        """These budgets with those of one call in their place.

        Raises:
            ValueError: A budget is not a positive int, or longer than the encoder can read.
        """
        for name, value in (("max_len", max_len), ("head_max_len", head_max_len)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a positive number of tokens, not {value!r}")
        if max_len is not None and max_len > self.positions:
            raise ValueError(f"max_len={max_len} is more than this checkpoint's encoder can read ({self.positions} tokens)")
        return Budgets(max_len or self.max_len, head_max_len or self.head_max_len, self.positions)


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The parts of an agent that do not depend on what runs its network."""

    tokenizer: Tokenizer
    temperatures: Temperatures
    budgets: Budgets


Calibration = str | Path | Temperatures | None
"""What replaces a checkpoint's temperatures: the path of a calibration file, or temperatures themselves."""


def read_parts(checkpoint: Checkpoint, calibration: Calibration = None, lang_temperatures: Mapping[str, Any] | None = None) -> AgentParts:
    """Reads a checkpoint's tokenizer, temperatures and budgets.

    Args:
        checkpoint: The checkpoint.
        calibration: What to use in the place of the checkpoint's temperatures.
        lang_temperatures: See `laya.Agent`.

    Raises:
        CheckpointError: A file is not what the format says, or the files are not of one checkpoint.
    """
    config_path = str(checkpoint.folder / CONFIG_FILE)
    if isinstance(calibration, Temperatures):
        temperatures = calibration
    elif calibration is not None:
        temperatures = Temperatures.load(calibration)
    else:
        temperatures = Temperatures.from_config(checkpoint.config, config_path)
    tokenizer = Tokenizer(checkpoint.tokenizer_folder)
    known = checkpoint.encoder_number("vocab_size", tokenizer.vocabulary_size)
    if tokenizer.vocabulary_size > known:
        raise CheckpointError(
            f"{checkpoint.tokenizer_folder / 'tokenizer.json'} has {tokenizer.vocabulary_size} tokens, the encoder knows {known}: "
            "they are not of one checkpoint"
        )
    max_len = checkpoint.budget("max_len", _DEFAULT_MAX_LEN)
    positions = checkpoint.positions(max_len)
    if max_len > positions:
        raise CheckpointError(f"{config_path}: max_len {max_len} is more than the encoder can read ({positions} tokens)")
    budgets = Budgets(max_len, checkpoint.budget("head_max_len", _DEFAULT_HEAD_MAX_LEN), positions)
    return AgentParts(tokenizer, temperatures.with_languages(lang_temperatures or {}), budgets)
