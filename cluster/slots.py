"""The nodes of a cluster, and the slots on them in which agents run."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.placement_group import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.commands import NoRoomError
from cluster.hosting import RouterConfig

log = logging.getLogger("laya.cluster")

NodeState = Literal["alive", "draining", "dead"]


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster.

    Attributes:
        id: Ray's id of it.
        address: Its network address.
        state: Whether it lives, is about to go, or is gone.
        resources: What it has: {"CPU": 16.0, "GPU": 1.0, ...}.
    """

    id: str
    address: str
    state: NodeState
    resources: Mapping[str, float]


def nodes_now() -> dict[str, Node]:
    """All nodes that Ray knows, by id."""
    draining = _draining_nodes()
    return {
        found["NodeID"]: Node(
            found["NodeID"],
            found["NodeManagerAddress"],
            "dead" if not found["Alive"] else "draining" if found["NodeID"] in draining else "alive",
            found["Resources"],
        )
        for found in ray.nodes()
    }


def _draining_nodes() -> Mapping[str, int]:
    # Ray tells of drains only here; Ray Serve reads them the same way. A Ray without it has no drains for us.
    try:
        from ray._private.worker import global_worker

        found: Mapping[str, int] = global_worker.gcs_client.get_draining_nodes()
    except Exception as error:  # nothing that a private name does may stop the router
        log.debug("draining nodes are not known: %r", error)
        return {}
    return found


def nodes_told() -> str:
    """What the nodes that live have, for an error to say."""
    told: Counter[str] = Counter()
    for node in ray.nodes():
        if node["Alive"]:
            has = {key: amount for key, amount in sorted(node["Resources"].items()) if "memory" not in key and not key.startswith("node:")}
            labels = {key: value for key, value in sorted(node.get("Labels", {}).items()) if not key.startswith("ray.io/")}
            told[f"{has}{f' labelled {labels}' if labels else ''}"] += 1
    return ", ".join(f"{count} x {what}" for what, count in told.items())


def group_name(router: str) -> str:
    """Name of the placement group that reserves a router's slots."""
    return f"laya-slots:{router}"


class Slots:
    """Where agents run: as many as asked for, less those for which no node is left.

    With a strategy they are bundles of a placement group, so that nothing else on the cluster takes one between an eviction and the next
    load. Without, Ray finds a place for each agent when it starts.

    Args:
        config: What the router actor was made with.
    """

    def __init__(self, config: RouterConfig) -> None:
        self.nodes: dict[str, Node] = {}
        self._config = config
        self._group: Any = None
        self._reserving: asyncio.Future[None] | None = None
        self._bundles: dict[int, int] = {}  # replica to bundle
        self._places: dict[int, str] = {}  # bundle to node
        self._needs = [_needs(config.resources(name)) for name in ["", *config.hosting]]

    @property
    def reserved(self) -> bool:
        """Whether there is a placement group."""
        return self._group is not None

    async def reserve(self, timeout_s: float) -> None:
        """Reserves the slots, if there is a strategy; those of an earlier life are taken over. Asked twice at a time, it is done once.

        Raises:
            NoRoomError: The cluster has not enough for them.
        """
        if self._config.strategy is None or (self._group is not None and self._reserving is None):
            return
        if self._reserving is None:
            self._reserving = asyncio.ensure_future(self._reserve(timeout_s))
        reserving = self._reserving
        try:
            await asyncio.shield(reserving)
        finally:
            if reserving.done() and self._reserving is reserving:
                self._reserving = None

    async def _reserve(self, timeout_s: float) -> None:
        need = {key: max(needs.get(key, 0.0) for needs in self._needs) for needs in self._needs for key in needs} or {"CPU": 0.001}
        bundles = [need] * self._config.slots
        group = self._reserved(bundles)
        if group is None:
            selector = self._config.agent_options.get("label_selector")
            group = placement_group(
                bundles,
                strategy=self._config.strategy,
                name=group_name(self._config.name),
                lifetime="detached",  # else the restart of this actor would end all its agents
                bundle_label_selector=[selector] * self._config.slots if selector else None,
            )
        self._group = group
        # One that had its places is not waited for: those on nodes that live serve, and Ray finds others for the rest.
        if placement_group_table(group)["state"] != "RESCHEDULING":
            try:
                await asyncio.wait_for(group.ready(), timeout_s)
            except TimeoutError:
                self._group = None
                remove_placement_group(group)
                raise NoRoomError(
                    f"Ray could not reserve {self._config.slots} slots of {need} with {self._config.strategy} within {timeout_s:.0f} s; "
                    f"there are {nodes_told()}"
                ) from None
        self._look()

    def _reserved(self, bundles: list[dict[str, float]]) -> Any:
        """The placement group that an earlier life has left, if it is what is needed now; another one of that name is given back."""
        group = self._find()
        if group is None:
            return None
        found = placement_group_table(group)
        same = [_rounded(found["bundles"][index]) for index in sorted(found["bundles"])] == [_rounded(bundle) for bundle in bundles]
        if same and found["strategy"] == self._config.strategy:
            return group
        remove_placement_group(group)
        return None

    def _find(self) -> Any:
        try:
            return get_placement_group(group_name(self._config.name))
        except ValueError:
            return None

    def look(self, taken: Iterable[str] = ()) -> int:
        """Looks at the nodes, and returns how many slots are open.

        Those on nodes that live and are to stay; and while an agent is on one that is not to stay, its own, so that its leaving one is
        not taken for a place that its successor needs.

        Args:
            taken: Node of each agent that is known to be somewhere.
        """
        going = self._look(taken)
        alive = {node.id: node for node in self.nodes.values() if node.state == "alive"}
        if self._group is not None and self._reserving is None:
            possible = sum(node in alive for node in self._places.values())
        elif self._config.strategy is not None:
            return self._config.slots  # not reserved yet
        else:
            least = {key: min(needs.get(key, 0.0) for needs in self._needs) for key in self._needs[0]}
            possible = sum(_fits(node.resources, least, self._config.slots) for node in alive.values())
        # Never none: who waits goes on waiting while Ray finds a node for it, and is told if it does not.
        return max(1, min(self._config.slots, possible + going))

    def _look(self, taken: Iterable[str] = ()) -> int:
        self.nodes = nodes_now()
        group = self._group  # asked in a thread, while it may be given back
        if group is not None:
            self._places = placement_group_table(group)["bundles_to_node_id"]
        return sum(node in self.nodes and self.nodes[node].state == "draining" for node in taken)

    def adopt(self, replica: int, bundle: int) -> None:
        """A replica of an earlier life has this bundle."""
        self._bundles[replica] = bundle
        if self._group is None:
            self._group = self._find()
            self._look()

    def take(self, replica: int) -> dict[str, Any]:
        """A replica takes a slot; returns the Ray options that put its agent there, none where Ray is to choose."""
        if self._group is None:
            return {}
        alive = {node.id for node in self.nodes.values() if node.state == "alive"}
        free = [index for index in range(self._config.slots) if index not in self._bundles.values()]
        bundle = min(free, key=lambda index: (self._places.get(index) not in alive, index))
        self._bundles[replica] = bundle
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)}

    def bundle(self, replica: int) -> int | None:
        """The bundle that a replica has, if slots are bundles."""
        return self._bundles.get(replica)

    def leave(self, replica: int) -> None:
        """A replica is gone."""
        self._bundles.pop(replica, None)

    def release(self) -> None:
        """Gives back what was reserved, in an earlier life too."""
        group = self._find()
        if group is not None:
            remove_placement_group(group)
        self._group = None
        self._places = {}


def _needs(options: Mapping[str, Any]) -> dict[str, float]:
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    needs = {**{key: float(options.get(name) or 0) for key, name in named.items()}, **(options.get("resources") or {})}
    return {key: amount for key, amount in needs.items() if amount}


def _fits(has: Mapping[str, float], needs: Mapping[str, float], most: int) -> int:
    return min([most, *(int(has.get(key, 0.0) / amount + 1e-9) for key, amount in needs.items() if amount)])


def _rounded(needs: Mapping[str, float]) -> dict[str, float]:
    return {key: round(amount, 3) for key, amount in needs.items()}  # Ray keeps four digits
