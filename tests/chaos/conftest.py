"""Routers whose agents and actors the chaos tests may kill."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import ClusterRouter, Hosting
from tests.chaos.support import AGENT, Gate

Make = Callable[..., Any]

_numbers = itertools.count()


@pytest.fixture
def make_router(ray_session: Any) -> Iterator[Make]:
    """Makes routers of names of their own, which end with the test: ``make_router(["a", "b"], max_loaded=1)``.

    Their checkpoints have obedient agents without a network; ``models=`` and ``hosting=`` are added to those.
    """
    made: list[Any] = []

    def make(
        light: Sequence[str] = (), *, models: dict[str, Any] | None = None, hosting: dict[str, Hosting] | None = None, **given: Any
    ) -> Any:
        names = [*light, *(models or {})]
        made.append(
            ClusterRouter(
                dict.fromkeys(light, "mini") | (models or {}),
                default=names[0],
                device="cpu",
                hosting={name: Hosting(agent=AGENT, options={"name": name}) for name in light} | (hosting or {}),
                **{"name": f"chaos-{next(_numbers)}", "num_cpus": 0.1, "min_residency_s": 0.1, **given},
            )
        )
        return made[-1]

    yield make
    for router in made:
        router.close()


@pytest.fixture
def make_gate(tmp_path: Path) -> Iterator[Callable[[], Gate]]:
    """Makes gates, which are opened when the test ends."""
    made: list[Gate] = []

    def make() -> Gate:
        made.append(Gate(tmp_path / f"gate-{len(made)}"))
        return made[-1]

    yield make
    for gate in made:
        gate.open()
