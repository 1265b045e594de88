"""Weights in a node's object store: read from disk once, then mapped by every agent of the node, replicas and reloads alike.

The RouterActor must own the tensors, or they would go with the agent that read them. What a task returns belongs to its caller, and
stays on the node where it was made: so the router has an agent return the tensors, holds the reference, and never fetches it.

    router                                              agent
    offer = await agent.offer_weights.remote()       -> offer(source, token)       which file, how large; None: not to be shared
    shelf.find(offer), else shelf.put(offer,
        agent.read_weights.remote(offer))            -> read(offer)                the file's tensors, or None if there is no room
    mapped_it = await agent.load.remote(shared)      -> mapped(shared)             the tensors, or None: load from disk

`provide` is the router's half of this. Nothing here fails: what cannot be shared is loaded from disk, and a warning says why.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laya.checkpoint import WEIGHTS_FILE, open_checkpoint, read_weights, weights_size
from laya.names import CheckpointSource

if TYPE_CHECKING:
    import numpy as np
    import torch

STORE_SHARE = 0.5
"""Part of a node's object store that weights may take; the rest is for what passes through."""
_ROOM_S = 2.0
"""Seconds that weights which were let go may take to leave the store."""
_ARRIVAL_S = 120.0
"""Seconds that an agent waits for tensors which another one is reading."""

log = logging.getLogger("laya.cluster")


@dataclass(frozen=True, slots=True)
class Offer:
    """Weights that an agent's node can share.

    Attributes:
        node: Id of the node.
        path: The file.
        state: Which content it has: changes when the file does.
        size: Bytes.
        capacity: Bytes that weights may take on that node.
    """

    node: str
    path: str
    state: str
    size: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Weights in the object store of a node.

    Attributes:
        offer: What they are.
        ref: Ray's reference to the tensors, a dict of name to array; they are there as long as the router holds it.
    """

    offer: Offer
    ref: Any


class Shelf:
    """The weights that are kept, by node and file: as many bytes on each node as it has room for, least recently used dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Shared] = OrderedDict()

    def find(self, offer: Offer) -> Shared | None:
        """The weights of an offer, counted as used just now; None if they are not kept, or of another content."""
        found = self._kept.get((offer.node, offer.path))
        if found is None or found.offer.state != offer.state:
            return None
        self._kept.move_to_end((offer.node, offer.path))
        return found

    def make_room(self, offer: Offer) -> bool:
        """Drops what must go for an offer: the same file with another content, then the least recently used of its node.

        Returns:
            Whether it fits at all. If not, nothing else went.
        """
        self._kept.pop((offer.node, offer.path), None)
        if offer.size > offer.capacity:
            return False
        while self.size(offer.node) + offer.size > offer.capacity:
            del self._kept[next(key for key in self._kept if key[0] == offer.node)]
        return True

    def put(self, offer: Offer, ref: Any) -> Shared:
        """Keeps the weights of an offer for which there is room."""
        shared = Shared(offer, ref)
        self._kept[offer.node, offer.path] = shared
        return shared

    def drop(self, shared: Shared) -> None:
        """Lets weights go that turned out not to be there."""
        if self._kept.get((shared.offer.node, shared.offer.path)) is shared:
            del self._kept[shared.offer.node, shared.offer.path]

    def forget(self, node: str) -> None:
        """Lets go of all that a node kept."""
        for key in [key for key in self._kept if key[0] == node]:
            del self._kept[key]

    def size(self, node: str) -> int:
        """Bytes kept on a node."""
        return sum(shared.offer.size for shared in self._kept.values() if shared.offer.node == node)

    def __len__(self) -> int:
        return len(self._kept)


async def provide(agent: Any, shelf: Shelf) -> Shared | None:
    """What a new agent can map, kept on the shelf; where nothing is kept yet, the agent is made to read it first.

    Called in the RouterActor, between the agent's start and its `load`. The tensors may still be on their way; `mapped` waits.

    Args:
        agent: Handle of an actor with ``offer_weights()`` and ``read_weights(offer)``, which call `offer` and `read`.
        shelf: The router's shelf.

    Returns:
        What to give to the agent's `load`, or None: it loads from disk.
    """
    try:
        offered: Offer | None = await agent.offer_weights.remote()
    except Exception as error:  # an agent that is dead says so once more when it is asked to load
        log.warning("an agent could not say which weights it shares: %r", error)
        return None
    if offered is None:
        return None
    found = shelf.find(offered)
    if found is None and shelf.make_room(offered):
        found = shelf.put(offered, agent.read_weights.remote(offered))
    return found


def offer(source: CheckpointSource, token: str | None = None) -> Offer | None:
    """Says which weights a checkpoint has on this node; called in an agent, before it loads.

    Returns:
        None where the checkpoint cannot be read, which loading it will report, or where its weights are too large for the store.
    """
    try:
        path = open_checkpoint(source, token).folder / WEIGHTS_FILE
        path, node = path.resolve(), _node()
        size = weights_size(path)
        capacity = int(STORE_SHARE * _store_total(node))
        if size > capacity:
            log.warning(
                "%s is not shared: it has %d MB, weights may take %d MB of this node's object store", path, size >> 20, capacity >> 20
            )
            return None
        return Offer(node, str(path), _state(path), size, capacity)
    except Exception as error:
        log.warning("the weights of %s are not shared: %r", source, error)
        return None


def read(offered: Offer) -> dict[str, np.ndarray[Any, Any]] | None:
    """The tensors of an offer, for an agent to return: as arrays, which Ray lays into the store as they are.

    Returns:
        None where there is no room for them without pushing out what others have put there, or where the file is another by now.
    """
    path = Path(offered.path)
    try:
        if _state(path) != offered.state:
            log.warning("%s is not shared: it has just been replaced", path)
            return None
        if not _has_room(offered.node, offered.size):
            log.warning("%s is not shared: there is no room for %d MB in this node's object store", path, offered.size >> 20)
            return None
        return {name: tensor.numpy() for name, tensor in read_weights(path).items()}
    except Exception as error:
        log.warning("%s is not shared: %r", path, error)
        return None


def mapped(shared: Shared | None) -> Mapping[str, torch.Tensor] | None:
    """The tensors that `laya.Agent` takes as ``weights``, mapped from the store: read-only memory, on no account to be written to.

    Returns:
        None where there are none: nothing was shared, it is gone, or the node it was on is.
    """
    if shared is None:
        return None
    import ray

    try:
        arrays = ray.get(shared.ref, timeout=_ARRIVAL_S)
    except Exception as error:
        log.warning("the shared weights of %s are lost, they are read from disk: %r", shared.offer.path, error)
        return None
    return None if arrays is None else as_tensors(arrays)


def as_tensors(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
    """Tensors on the memory of arrays, which may be read-only."""
    import torch

    with warnings.catch_warnings():
        # An agent trains nothing and writes to no parameter.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _state(path: Path) -> str:
    """Changes with the file's content, and costs a look at the folder. Tensors are all that is shared: other files are read anew."""
    found = path.stat()
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _store_total(node: str) -> float:
    import ray

    found: dict[str, dict[str, float]] = {entry["NodeID"]: entry["Resources"] for entry in ray.nodes()}
    return found[node].get("object_store_memory", 0.0)


def _has_room(node: str, size: int) -> bool:
    """Whether the store takes that many bytes without spilling; what has just been let go is given a moment to leave."""
    end = time.monotonic() + _ROOM_S
    while _store_free(node) < size:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _store_free(node: str) -> float:
    # Ray has no public door for what is free on one node; its own libraries use this one.
    from ray._private.state import available_resources_per_node

    free: dict[str, dict[str, float]] = available_resources_per_node()
    return free[node].get("object_store_memory", 0.0)
