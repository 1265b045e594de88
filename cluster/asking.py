"""How actors are asked: errors keep their class, deadlines hold, and what is given up is cancelled."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import (
    ActorPlacementGroupRemoved,
    ActorUnschedulableError,
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from cluster.messages import NAMESPACE
from laya.deadlines import DeadlineExceededError, remaining_s

_RETURN_S = 60.0
"""Seconds that a router actor which is starting again is waited for."""
_PAUSE_S = 0.2
"""Seconds between two tries to reach it."""


GONE = (
    RayActorError,
    OutOfMemoryError,
    NodeDiedError,
    WorkerCrashedError,
    ActorUnschedulableError,
    ActorPlacementGroupRemoved,
)
"""What Ray raises where an actor's process has ended or cannot be reached: it has no class that is all of them."""


class AgentLostError(RuntimeError):
    """A call found agent after agent leaving or dead, or the router actor gone."""


def get(ref: Any) -> Any:
    """ray.get within the deadline that holds here, raising what the actor raised with its own class.

    Raises:
        laya.DeadlineExceededError: The deadline has passed; the actor's work is cancelled.
        One of GONE: The actor is dead or out of reach.
    """
    left = remaining_s()
    try:
        return ray.get(ref, timeout=left)
    except RayTaskError as error:
        raise error.cause from None
    except GetTimeoutError:
        _cancel(ref)
        raise DeadlineExceededError("the deadline passed before the cluster answered: allow more time") from None
    except KeyboardInterrupt:
        _cancel(ref)
        raise


def _cancel(ref: Any) -> None:
    # Not what the actor has begun because of it: a load that a request brought about is waited for by others too.
    ray.cancel(ref, recursive=False)


class RouterHandle:
    """The router actor as clients ask it. One that is starting again is waited for.

    Args:
        name: Its name in namespace "laya".
        actor: Its handle, if it is at hand.
    """

    def __init__(self, name: str, actor: Any = None) -> None:
        self.name = name
        self._made = actor  # whoever made the actor keeps it alive by this handle: it would end with the last such one
        self.actor = actor
        if actor is None and not self._finds_it():
            raise AgentLostError(
                f"there is no router actor {name!r} any more: make a new ClusterRouter, with detached=True if it is to stay"
            )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of it.

        Raises:
            AgentLostError: It is gone for good, or did not return in time.
            Exception: What the method raised.
        """
        until = None
        while True:
            try:
                return get(getattr(self.actor, method).remote(*arguments))
            except GONE as error:
                until = until or time.monotonic() + _RETURN_S  # what was asked may have waited for long before that
                if time.monotonic() > until or not self._finds_it():
                    raise AgentLostError(
                        f"the router actor {self.name!r} is gone ({type(error).__name__}): make a new ClusterRouter"
                    ) from error
                time.sleep(_PAUSE_S)

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls a method of it and waits for nothing."""
        getattr(self.actor, method).remote(*arguments)

    def _finds_it(self) -> bool:
        try:
            self.actor = ray.get_actor(self.name, namespace=NAMESPACE)
        except ValueError:
            return False
        return True
