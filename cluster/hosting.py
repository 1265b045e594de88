"""How checkpoints are hosted: what one agent of each is and needs, and what a router actor has to give."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from laya.names import CheckpointSource

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]

MIN_RESIDENCY_S = 0.1
"""Least seconds that a checkpoint stays: those that take turns need time to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """How one checkpoint is hosted.

    Attributes:
        agent: Import path of the agent's class: "laya:Agent", "laya:ONNXAgent", or one of your own that has their calls.
        options: More keyword arguments of that class: ``{"onnx_path": ...}``, ``{"calibration": ...}``, ``{"fast": True}``.
        hooks: Hooks installed on each of its agents: objects, which are pickled, or import paths "package.module:name".
        min_replicas: Replicas that it keeps, whoever waits for room; they are loaded at once.
        max_replicas: Replicas that it may have when it is busy; those beyond the least leave when idle.
        size_bytes: What one agent holds, if that is known before the first load.
        num_cpus: CPUs of an agent; None takes the router's.
        num_gpus: GPUs of an agent, fractions too; None takes the router's.
        label_selector: Labels that a node must have, as Ray's label_selector.
    """

    agent: str = "laya:Agent"
    options: Mapping[str, Any] = field(default_factory=dict)
    hooks: tuple[Any, ...] = ()
    min_replicas: int = 0
    max_replicas: int = 1
    size_bytes: int = 0
    num_cpus: float | None = None
    num_gpus: float | None = None
    label_selector: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_count("min_replicas", self.min_replicas, 0)
        _check_count("max_replicas", self.max_replicas, 1)
        _check_count("size_bytes", self.size_bytes, 0)
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas {self.min_replicas} and max_replicas {self.max_replicas}: must be min <= max")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """What a router actor is made with; see `cluster.ClusterRouter` for what each means.

    Attributes:
        name: Its name, by which agents know whose they are.
        slots: How many agents there may be at a time.
        sources: Checkpoint name to source.
        hosting: Checkpoint name to how it is hosted, where that is not the default.
        device: Where agents run.
        token: Hub token.
        threads: Threads of an agent's forward pass on a CPU.
        agent_options: Ray options of each agent (num_cpus, num_gpus, ...).
        strategy: How slots are reserved over the nodes; None reserves nothing.
        capacity_bytes: What all agents together may hold.
        min_residency_s: How long a checkpoint stays at least.
        busy_depth: Calls on each replica from which on a checkpoint is busy.
        idle_s: Seconds after which a replica beyond the least is not needed.
        hooks: Lifecycle hooks that run in the router actor.
    """

    name: str
    slots: int
    sources: Mapping[str, CheckpointSource]
    hosting: Mapping[str, Hosting]
    device: str | None
    token: str | None
    threads: int
    agent_options: Mapping[str, Any]
    strategy: Strategy | None
    capacity_bytes: int | None
    min_residency_s: float
    busy_depth: float
    idle_s: float
    hooks: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.name or ":" in self.name:
            raise ValueError(f"a router's name must not be empty or contain ':', and is {self.name!r}")
        _check_count("capacity_bytes", 1 if self.capacity_bytes is None else self.capacity_bytes, 1)
        _check_number("min_residency_s", self.min_residency_s, MIN_RESIDENCY_S)
        _check_number("idle_s", self.idle_s, 0.0)
        _check_number("busy_depth", self.busy_depth, 0.0)
        if self.strategy is not None and self.strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {', '.join(get_args(Strategy))} or None, not {self.strategy!r}")
        for name, hosted in self.hosting.items():
            if not isinstance(hosted, Hosting):
                raise ValueError(f"hosting of {name!r} must be a Hosting, not {hosted!r}")
        kept = sum(hosted.min_replicas for hosted in self.hosting.values())
        if kept > self.slots:
            raise ValueError(f"min_replicas need {kept} slots, and there are {self.slots}: raise max_loaded")

    def hosted(self, checkpoint: str) -> Hosting:
        """How a checkpoint is hosted."""
        return self.hosting.get(checkpoint, Hosting())

    def resources(self, checkpoint: str) -> dict[str, Any]:
        """Ray options of an agent of a checkpoint."""
        hosting = self.hosted(checkpoint)
        options = dict(self.agent_options)
        options |= {} if hosting.num_cpus is None else {"num_cpus": hosting.num_cpus}
        options |= {} if hosting.num_gpus is None else {"num_gpus": hosting.num_gpus}
        options |= {"label_selector": dict(hosting.label_selector)} if hosting.label_selector else {}
        return options


def _check_count(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _check_number(name: str, value: Any, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least {least:g}, not {value!r}")


def import_object(path: str) -> Any:
    """What an import path "package.module:name" names.

    Raises:
        ValueError: It names nothing that can be imported.
    """
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{path!r} is no import path: write package.module:name")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path!r} cannot be imported here: {error}; the module must be installed on every node") from error
    return found


def resolve_hooks(hooks: Iterable[Any]) -> list[Any]:
    """Hook objects, those given by import path imported; a class is made an object.

    Raises:
        ValueError: A path names nothing that can be imported.
    """
    found = [import_object(hook) if isinstance(hook, str) else hook for hook in hooks]
    return [hook() if isinstance(hook, type) else hook for hook in found]
