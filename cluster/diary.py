"""Lifecycle events between when they happen and when they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster.messages import LifecycleEvent
from laya.hooks.context import PredictContext
from laya.hooks.dispatch import dispatch

_UNTOLD = 256
"""Events kept for the next request of a checkpoint; older ones are dropped, for it may be that nobody asks again."""


class Diary:
    """Notes what happened to which checkpoint: the router actor's own hooks hear it at once, and one request is told.

    Attributes:
        hooks: Hooks that run in this process, one after the other, on a thread of their own. What one raises is a warning in the log.
    """

    def __init__(self) -> None:
        self.hooks: list[Any] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="laya-hooks")
        self._untold: dict[str, deque[LifecycleEvent]] = {}  # by the checkpoint that they happened for
        self._leaving_for: dict[int, list[LifecycleEvent]] = {}  # by replica, those of the request that it leaves for

    def loaded(self, checkpoint: str) -> None:
        """A checkpoint came to an agent."""
        self._note(LifecycleEvent("on_load", checkpoint), self._of(checkpoint))

    def evicted(self, checkpoint: str, replica: int, newcomer: str) -> None:
        """A checkpoint left an agent, for a newcomer if nobody asked for it to leave."""
        told = self._leaving_for[replica] if replica in self._leaving_for else self._of(newcomer)
        self._note(LifecycleEvent("on_evict", checkpoint), told)

    def take(self, checkpoint: str) -> list[LifecycleEvent]:
        """What happened for a checkpoint and was told to nobody yet."""
        return list(self._untold.pop(checkpoint, ()))

    def keep(self, checkpoint: str, events: Iterable[LifecycleEvent]) -> None:
        """Events are told to the next request of a checkpoint."""
        self._of(checkpoint).extend(events)

    def expect(self, replicas: Iterable[int]) -> tuple[list[int], list[LifecycleEvent]]:
        """A request makes replicas leave: returns those that leave for it and no other, and the list that their events will be in."""
        events: list[LifecycleEvent] = []
        mine = [replica for replica in replicas if replica not in self._leaving_for]
        self._leaving_for.update(dict.fromkeys(mine, events))
        return mine, events

    def forget(self, replicas: Iterable[int]) -> None:
        """A request's replicas have left."""
        for replica in replicas:
            self._leaving_for.pop(replica, None)

    def _of(self, checkpoint: str) -> deque[LifecycleEvent]:
        return self._untold.setdefault(checkpoint, deque(maxlen=_UNTOLD))

    def _note(self, event: LifecycleEvent, told: list[LifecycleEvent] | deque[LifecycleEvent]) -> None:
        told.append(event)
        if self.hooks:
            ctx = PredictContext(states=[], questions={}, model=event.checkpoint)
            self._thread.submit(dispatch, self.hooks, event.event, ctx, raise_errors=False)
