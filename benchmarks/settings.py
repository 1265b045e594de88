"""The ways in which either package is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One way.

    Attributes:
        name: What tables call it.
        ours: Whether it is of this package.
        exact: Whether it computes in fp32 on any machine.
        load: Arguments of `Agent`, by keyword.
        predict: Arguments of `predict_batch`, by keyword.
    """

    name: str
    ours: bool
    exact: bool
    load: Mapping[str, Any] = field(default_factory=dict)
    predict: Mapping[str, Any] = field(default_factory=dict)


OURS = (
    Setting("ours, fp32", True, True, {"precision": "fp32"}),
    Setting("ours, auto", True, False, {"precision": "auto"}),
)
PEER = (
    Setting("peer", False, True),
    Setting("peer, sorted by 32", False, True, predict={"batch_size": 32, "sort_by_length": True}),
    Setting("peer, sorted by 16", False, True, predict={"batch_size": 16, "sort_by_length": True}),
    Setting("peer, sorted by 8", False, True, predict={"batch_size": 8, "sort_by_length": True}),
    Setting("peer, sorted by 4", False, True, predict={"batch_size": 4, "sort_by_length": True}),
    Setting("peer, fast, sorted by 16", False, False, {"fast": True}, {"batch_size": 16, "sort_by_length": True}),
)
"""The first is the package as it comes."""
