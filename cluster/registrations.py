"""What names mean since `ClusterRouter.register`, kept where the next process of a router finds it."""

from __future__ import annotations

import pickle

from ray.experimental import internal_kv

from cluster.messages import NAMESPACE
from laya.names import CheckpointSource


def remember(router: str, name: str, source: CheckpointSource) -> None:
    """Notes that a name of a router means another checkpoint from now on."""
    internal_kv._internal_kv_put(_key(router), pickle.dumps({**registered(router), name: source}), namespace=NAMESPACE)


def registered(router: str) -> dict[str, CheckpointSource]:
    """All that was noted for a router."""
    found = internal_kv._internal_kv_get(_key(router), namespace=NAMESPACE)
    sources: dict[str, CheckpointSource] = pickle.loads(found) if found else {}
    return sources


def forget(router: str) -> None:
    """Drops what was noted for a router."""
    internal_kv._internal_kv_del(_key(router), namespace=NAMESPACE)


def _key(router: str) -> str:
    return f"laya-registrations:{router}"
