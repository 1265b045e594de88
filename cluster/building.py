"""From a checkpoint and how it is hosted to an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cluster.hosting import RouterConfig, import_object, resolve_hooks
from cluster.messages import AgentId

TORCH_AGENT = "laya:Agent"
"""The class that takes weights from memory."""


def build_agent(id: AgentId, config: RouterConfig, weights: Mapping[str, Any] | None = None) -> Any:  # noqa: A002
    """Builds the agent of a checkpoint in this process.

    Args:
        id: Which checkpoint, for whom.
        config: What the router was made with.
        weights: Its tensors, where they are in memory already.

    Raises:
        laya.CheckpointError: It cannot be built.
        ValueError: An import path names nothing.
    """
    hosting = config.hosted(id.checkpoint)
    threads = config.threads if hosting.num_cpus is None else max(1, int(hosting.num_cpus))
    threads = min(threads, os.cpu_count() or 1)  # a node may have been given more CPUs than it has cores
    arguments = {
        "subfolder": id.source.subfolder,
        "revision": id.source.revision,
        "device": config.device,
        "token": config.token,
        "hooks": resolve_hooks(hosting.hooks),
        **hosting.options,
    }
    if hosting.agent == TORCH_AGENT:
        import torch

        torch.set_num_threads(threads)
        arguments["weights"] = weights
    elif hosting.agent == "laya:ONNXAgent":
        arguments.setdefault("threads", threads)
    return import_object(hosting.agent)(id.source.location, **arguments)
