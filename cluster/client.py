"""The Router of a cluster, as users hold it: the calls of `laya.Router`, answered by AgentActors."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from cluster.messages import Moved, Placement, Reply
from cluster.router_actor import RouterActor
from laya.answers import Result
from laya.hooks.call import Results, served_requests
from laya.hooks.protocol import implements
from laya.routed import AgentLike, RoutedCalls
from laya.routing import ENGLISH, LangGuess, RoutingTable
from laya.runtime import PredictHooks

NAMESPACE = "laya"
_ATTEMPTS = 20
"""Agents that a call may find leaving or dead before it gives up; each time it asks the router again."""
MIN_RESIDENCY_S = 0.1


class AgentLostError(RuntimeError):
    """A call found agent after agent leaving or dead, or the router actor gone."""


class RemoteAgent:
    """A checkpoint's replicas, called like one agent. A call that meets a leaving or dead one is repeated on another."""

    def __init__(self, router: Any, checkpoint: str) -> None:
        self.model_id = checkpoint
        self._router = router
        self._asking = threading.Lock()  # one thread asks the router, the others wait for its answer
        self._placement: Placement | None = None
        self._counting = threading.Lock()
        self._depth: dict[int, int] = {}

    def predict_batch(self, states: Sequence[Any], questions: Mapping[Any, Any], **options: Any) -> Results:
        """Answers the same questions about every state; see `laya.Agent.predict_batch`."""
        value: Results = self._call("predict_batch", list(states), questions, options)
        return value

    def predict_long(self, state: Any, questions: Mapping[Any, Any], **options: Any) -> Result:
        """Answers questions about one state of any length; see `laya.Agent.predict_long`."""
        value: Result = self._call("predict_long", state, questions, options)
        return value

    def place(self) -> Placement:
        """Where the checkpoint can be asked, from memory while that holds good."""
        placement = self._placement
        if placement is None:
            with self._asking:
                placement = self._placement
                if placement is None:
                    placement = self._placement = _get_from_router(self._router.place.remote(self.model_id))
        return placement

    def _call(self, method: str, payload: Any, questions: Any, options: dict[str, Any]) -> Any:
        request_ids = served_requests() or []
        for _ in range(_ATTEMPTS):
            placement = self.place()
            replica = self._pick(list(placement.agents))
            agent = placement.agents[replica]
            with self._counting:
                self._depth[replica] = self._depth.get(replica, 0) + 1
            try:
                reply = _get(getattr(agent, method).remote(payload, questions, options, request_ids))
            except RayActorError:
                _get_from_router(self._router.lost.remote(replica))
                self._forget(placement, replica)
                continue
            if isinstance(reply, Moved):
                self._forget(placement, replica)
                continue
            self._learn(replica, reply)
            if reply.error is not None:
                raise reply.error
            return reply.value
        raise AgentLostError(
            f"checkpoint {self.model_id!r}: {_ATTEMPTS} agents in a row were leaving or dead; see the status of the cluster"
        )

    def _pick(self, replicas: list[int]) -> int:
        """The less loaded of two at random: nearly as even as asking all of them, and clients do not stampede to one."""
        pair = random.sample(replicas, min(2, len(replicas)))
        return min(pair, key=lambda replica: self._depth.get(replica, 0))

    def _learn(self, replica: int, reply: Reply) -> None:
        with self._counting:
            self._depth[replica] = reply.in_flight

    def _forget(self, placement: Placement, gone: int) -> None:
        with self._counting:
            self._depth.pop(gone, None)
        with self._asking:
            if self._placement is placement:
                self._placement = None


class ClusterRouter(RoutedCalls):
    """Routes requests over the agents of a Ray cluster. Ray must be initialised; the router actor is started if it is not there.

    It can be pickled into tasks, actors and Serve replicas, and finds its router actor again there.

    Args:
        models: See `laya.Router`, also for the arguments up to hooks_concurrent. Lifecycle hooks (on_load, on_evict) run inside the
            router actor, on a copy of the hook; the others run here.
        device: Where agents run; None takes a GPU if the agents have one.
        token: Hub token.
        max_loaded: How many agents there may be at a time, over the whole cluster.
        default: The checkpoint for texts whose language cannot be told.
        auto_task_detection: Whether question ids of known workflows choose the typed-decisions checkpoint.
        standalone_repos: Whether the published family is taken from one hub repository each.
        preload: Names to load at once, or True for the published family.
        lang_guess: See `laya.Router`.
        hooks: Hook objects.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        name: Name of the router actor in namespace "laya"; one that runs already is joined.
        num_cpus: CPUs of an agent. None shares this machine's among the agents.
        num_gpus: GPUs of an agent; fractions too.
        agent_options: More Ray options for agents, such as label_selector.
        min_residency_s: How long a checkpoint stays at least, in seconds, whoever waits for its slot.
        detached: Whether the router actor outlives this driver.

    Raises:
        RuntimeError: Ray is not initialised.
        ValueError: An argument is out of range, or a router actor of that name runs with another number of slots.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | None = None,
        device: str | None = None,
        token: str | None = None,
        max_loaded: int = 2,
        default: str = ENGLISH,
        auto_task_detection: bool = False,
        standalone_repos: bool = False,
        preload: bool | Iterable[str] = False,
        lang_guess: LangGuess = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        *,
        hooks_timeout: float | None = None,
        name: str = "router",
        num_cpus: float | None = None,
        num_gpus: float = 0,
        agent_options: Mapping[str, Any] | None = None,
        min_residency_s: float = 2.0,
        detached: bool = False,
    ) -> None:
        super().__init__(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout)
        if not ray.is_initialized():
            raise RuntimeError("Ray is not initialised: call ray.init() first, with address='auto' to join a running cluster")
        self.table = RoutingTable(models, default, auto_task_detection, standalone_repos, lang_guess)
        self.name = name
        if type(max_loaded) is not int or max_loaded < 1:
            raise ValueError(f"max_loaded must be a positive number of agents, not {max_loaded!r}")
        if min_residency_s < MIN_RESIDENCY_S:
            raise ValueError(f"min_residency_s must be at least {MIN_RESIDENCY_S}: checkpoints that take turns need time to be asked")
        threads = max(1, int(num_cpus or (os.cpu_count() or 1) // max_loaded))
        options = {"num_cpus": threads if num_cpus is None else num_cpus, "num_gpus": num_gpus, **(agent_options or {})}
        lifecycle = [hook for hook in self.hooks if implements(hook, "on_load") or implements(hook, "on_evict")]
        self._router = (
            ray.remote(RouterActor)
            .options(
                name=name,
                namespace=NAMESPACE,
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=10_000,
                lifetime="detached" if detached else None,
            )
            .remote(
                self.table.sources,
                max_loaded,
                device,
                token,
                options,
                threads,
                min_residency_s,
                {"hooks": lifecycle, "hooks_raise": hooks_raise, "hooks_concurrent": hooks_concurrent, "hooks_timeout": hooks_timeout},
            )
        )
        self._remote_agents: dict[str, RemoteAgent] = {}
        found = _get(self._router.ready.remote())
        if found["slots"] != max_loaded:
            raise ValueError(f"a router actor {name!r} runs with {found['slots']} slots, not {max_loaded}: use another name, or close() it")
        if preload:
            self.preload(None if preload is True else preload)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_router": None, "_remote_agents": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._router = ray.get_actor(self.name, namespace=NAMESPACE)

    @property
    def loaded(self) -> list[str]:
        """Names of the checkpoints that are ready somewhere."""
        replicas = self.status()["replicas"]
        return sorted({replica["checkpoint"] for replica in replicas if replica["state"] == "ready"})

    def register(self, name: str, source: Any) -> None:
        """Points a name at a checkpoint; see ``models``."""
        kept = self.table.register(name, source)
        _get(self._router.register.remote(kept, self.table.sources[kept]))

    def load(self, name: str) -> RemoteAgent:
        """Returns a checkpoint's agents, loading it on first use.

        Raises:
            ValueError: The name is unknown.
            laya.CheckpointError: The checkpoint cannot be built.
        """
        agent = self._remote_agent(self.table.resolve(name))
        agent.place()
        return agent

    def preload(self, names: Iterable[str] | None = None) -> None:
        """Loads several checkpoints; None means the published family."""
        for name in self.table.preloaded(names):
            self.load(name)

    def unload(self, name: str | None = None) -> None:
        """Drains and drops one checkpoint, or all; no request that was accepted is cut."""
        _get(self._router.unload.remote(None if name is None else self.table.resolve(name)))

    def scale(self, name: str, replicas: int) -> None:
        """Gives a checkpoint a number of replicas that it keeps, and returns when they are ready."""
        resolved = self.table.resolve(name)
        _get(self._router.scale.remote(resolved, replicas))
        self._remote_agents.pop(resolved, None)

    def pin(self, name: str) -> None:
        """Keeps a checkpoint from being evicted."""
        _get(self._router.pin.remote(self.table.resolve(name)))

    def unpin(self, name: str) -> None:
        """Lets a checkpoint be evicted again."""
        _get(self._router.unpin.remote(self.table.resolve(name)))

    def status(self) -> dict[str, Any]:
        """Slots, replicas, loads and evictions of the cluster."""
        found: dict[str, Any] = _get(self._router.status.remote())
        return found

    def close(self) -> None:
        """Ends all agents and the router actor at once. An actor that is gone already is no error."""
        with suppress(RayActorError):
            _get(self._router.close.remote())
        ray.kill(self._router, no_restart=True)

    def _agent(self, name: str) -> AgentLike:
        agent = self._remote_agent(name)
        agent.place()
        return agent

    def _remote_agent(self, name: str) -> RemoteAgent:
        return self._remote_agents.setdefault(name, RemoteAgent(self._router, name))


def _get_from_router(ref: Any) -> Any:
    try:
        return _get(ref)
    except RayActorError as error:
        raise AgentLostError(f"the router actor is gone ({type(error).__name__}); start again") from error


def _get(ref: Any) -> Any:
    """ray.get, raising what the actor raised with its own class."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise error.cause from None
