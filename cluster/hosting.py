"""How checkpoints are hosted: what one agent of each is and needs, and what a router actor has to give."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from laya.names import CheckpointSource

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


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
        if not 0 <= self.min_replicas <= max(1, self.max_replicas):
            raise ValueError(f"min_replicas {self.min_replicas} and max_replicas {self.max_replicas}: must be 0 <= min <= max, max >= 1")


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
        busy_depth: Requests on each replica from which on a checkpoint is busy.
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
