"""The Router of a cluster, as users hold it: the calls of `laya.Router`, answered by AgentActors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

import ray

from cluster.asking import AgentLostError, RouterHandle
from cluster.hosting import Hosting, RouterConfig, Strategy
from cluster.messages import NAMESPACE, LifecycleEvent, Placement, RouterReply
from cluster.remote_agent import RemoteAgent
from cluster.router_actor import RouterActor
from laya.hooks.protocol import PredictHooks
from laya.names import canonical
from laya.requests import AgentLike
from laya.routed import RoutedCalls
from laya.routing import ENGLISH, LangGuess, RoutingTable


class ClusterRouter(RoutedCalls):
    """Routes requests over the agents of a Ray cluster. Ray must be initialised; the router actor is started if it is not there.

    It can be pickled into tasks, actors and Serve replicas, and finds its router actor again there.

    Args:
        models: See `laya.Router`, also for the arguments up to hooks_concurrent. All hooks run in this process: on_load and on_evict
            in the call that a checkpoint was loaded or dropped for.
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
        name: Name of the router actor in namespace "laya", without ":"; one that runs already is joined, and keeps what it was made with.
        num_cpus: CPUs of an agent. None shares this machine's among the agents.
        num_gpus: GPUs of an agent; fractions too.
        agent_options: More Ray options for agents, such as label_selector.
        min_residency_s: How long a checkpoint stays at least, in seconds, whoever waits for its slot.
        detached: Whether the router actor outlives this driver.
        hosting: Name to how that checkpoint is hosted, where it is not the default: ONNX, fractions of a GPU, labels of nodes, replicas
            that grow with the load; see `Hosting`.
        strategy: "PACK" or "SPREAD" (or their STRICT kin) reserves all slots at once, as a placement group: nothing else takes one between
            an eviction and the next load. None has Ray find a place for each agent when it starts.
        capacity_bytes: What all agents together may hold, in bytes of weights; None leaves it to the slots.
        busy_depth: Calls on each replica from which on a checkpoint with max_replicas gets another one.
        idle_s: Seconds without work after which a replica beyond min_replicas leaves.
        actor_hooks: Hook objects, or import paths "package.module:name", whose on_load and on_evict run in the router actor and hear of
            every checkpoint that comes and goes, whoever it is for.

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
        hosting: Mapping[str, Hosting] | None = None,
        strategy: Strategy | None = None,
        capacity_bytes: int | None = None,
        busy_depth: float = 4.0,
        idle_s: float = 60.0,
        actor_hooks: Iterable[Any] = (),
    ) -> None:
        super().__init__(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout)
        if not ray.is_initialized():
            raise RuntimeError("Ray is not initialised: call ray.init() first, with address='auto' to join a running cluster")
        self.table = RoutingTable(models, default, auto_task_detection, standalone_repos, lang_guess)
        self.name = name
        if type(max_loaded) is not int or max_loaded < 1:
            raise ValueError(f"max_loaded must be a positive number of agents, not {max_loaded!r}")
        wanted = self.table.preloaded(None if preload is True else preload) if preload else []
        self._slots = max_loaded
        self._attached: dict[str, Any] = {}
        self._check_slots(wanted)
        hosting = {self.table.resolve(given): hosted for given, hosted in (hosting or {}).items()}
        if strategy is not None and any(getattr(hosted, "label_selector", None) for hosted in hosting.values()):
            raise ValueError("strategy= fixes the slots to nodes, so no checkpoint can choose nodes by label_selector: leave one out")
        threads = max(1, int(num_cpus or (os.cpu_count() or 1) // max_loaded))
        options = {"num_cpus": threads if num_cpus is None else num_cpus, "num_gpus": num_gpus, **(agent_options or {})}
        config = RouterConfig(
            name=name,
            slots=max_loaded,
            sources=self.table.sources,
            hosting=hosting,
            device=device,
            token=token,
            threads=threads,
            agent_options=options,
            strategy=strategy,
            capacity_bytes=capacity_bytes,
            min_residency_s=min_residency_s,
            busy_depth=busy_depth,
            idle_s=idle_s,
            hooks=(actor_hooks,) if isinstance(actor_hooks, str) else tuple(actor_hooks),
        )
        actor = ray.remote(RouterActor).options(
            name=name,
            namespace=NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=10_000,
            max_restarts=-1,
            lifetime="detached" if detached else None,
        )
        self._router = RouterHandle(name, actor.remote(config))
        self._remote_agents: dict[str, RemoteAgent] = {}
        given = {canonical(given) for given in models or {}}
        try:
            found = self._router.ask("join", {kept: self.table.sources[kept] for kept in given})
        except ValueError:
            ray.kill(self._router.actor, no_restart=True)  # it cannot even begin, and would be in the way of a better one
            raise
        if found["slots"] != max_loaded:
            raise ValueError(f"a router actor {name!r} runs with {found['slots']} slots, not {max_loaded}: use another name, or close() it")
        if found["others"]:
            told = ", ".join(f"{other!r} is {source}" for other, source in found["others"].items())
            raise ValueError(f"a router actor {name!r} runs, for which {told}: use another name, or register() to change it for all")
        for kept in wanted:
            self.load(kept)

    def __getstate__(self) -> dict[str, Any]:
        # Agents that were attached live in this process; elsewhere their names mean the checkpoints they were built from.
        return {**super().__getstate__(), "_router": None, "_remote_agents": {}, "_attached": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._router = RouterHandle(self.name)

    @property
    def max_loaded(self) -> int:
        """Most agents there may be at a time: the slots of the cluster, and those attached here."""
        return self._slots + len(self._attached)

    @property
    def loaded(self) -> list[str]:
        """Names of the checkpoints that are ready somewhere, least recently used first, and of the agents attached here."""
        ready: list[str] = self._router.ask("loaded")
        return [*(name for name in ready if name not in self._attached), *self._attached]

    def register(self, name: str, source: Any) -> None:
        """Points a name at a checkpoint; see ``models``."""
        kept = self.table.register(name, source)
        self._router.ask("register", kept, self.table.sources[kept])
        self._remote_agents.pop(kept, None)

    def load(self, name: str) -> Any:
        """Returns a checkpoint's agents, loading it on first use. Fires on_evict for whatever had to go, then on_load.

        Raises:
            ValueError: The name is unknown.
            laya.CheckpointError: The checkpoint cannot be built; every waiting call gets this error, and the next one tries again.
        """
        return self._agent(self.table.resolve(name), fresh=True)

    def preload(self, names: Iterable[str] | None = None) -> None:
        """Loads several checkpoints; None means the published family.

        Raises:
            ValueError: There are fewer slots than checkpoints, which would evict each other.
        """
        wanted = self.table.preloaded(names)
        self._check_slots(wanted)
        for name in wanted:
            self.load(name)

    def _check_slots(self, wanted: Sequence[str]) -> None:
        if len({*wanted} - self._attached.keys()) > self._slots:
            raise ValueError(f"preload of {', '.join(wanted)} needs {len({*wanted})} slots, and there are {self._slots}: raise max_loaded")

    def unload(self, name: str | None = None) -> None:
        """Drains and drops one checkpoint, or all, and fires on_evict for each; no request that was accepted is cut."""
        resolved = None if name is None else self.table.resolve(name)
        detached = [attached for attached in list(self._attached) if resolved in (None, attached)]
        for attached in detached:
            del self._attached[attached]
            self.table.detach(attached)
        reply: RouterReply[None] = self._router.ask("unload", resolved)
        for gone in list(self._remote_agents) if resolved is None else [resolved]:
            self._remote_agents.pop(gone, None)
        self._tell([*reply.events, *(LifecycleEvent("on_evict", attached) for attached in detached)])

    def attach(self, name: str, agent: Any) -> None:
        """Registers an agent of this process; no event fires. It takes no slot and is never evicted.

        After `unload`, the name means the checkpoint again that it meant before.
        """
        kept = self.table.attach(name, agent)
        self._router.ask("join", {kept: self.table.sources[kept]})
        self._attached[kept] = agent

    def scale(self, name: str, replicas: int) -> None:
        """Gives a checkpoint a number of replicas that it keeps, and returns when they are ready.

        Raises:
            ValueError: The name is unknown, or the number negative.
            NoRoomError: There is not that much room beside what others keep.
            laya.CheckpointError: One of them cannot be built. It keeps as many as before, and those that are there stay.
        """
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"replicas must be a whole number of at least 0, not {replicas!r}")
        resolved = self.table.resolve(name)
        reply: RouterReply[Placement] = self._router.ask("scale", resolved, self.table.sources[resolved], replicas)
        self._remote_agents.pop(resolved, None)
        self._tell(reply.events)
        if reply.error is not None:
            raise reply.error

    def pin(self, name: str) -> None:
        """Keeps a checkpoint from being evicted, once it is loaded.

        Raises:
            ValueError: The name is unknown.
        """
        self._router.ask("pin", self.table.resolve(name))

    def unpin(self, name: str) -> None:
        """Lets a checkpoint be evicted again.

        Raises:
            ValueError: The name is unknown.
        """
        self._router.ask("unpin", self.table.resolve(name))

    def status(self) -> dict[str, Any]:
        """Slots, replicas, loads and evictions of the cluster."""
        found: dict[str, Any] = self._router.ask("status")
        return found

    def close(self) -> None:
        """Ends all agents and the router actor at once, whatever deadline holds. An actor that is gone already is no error."""
        try:
            with suppress(AgentLostError):
                Context().run(self._router.ask, "close")
        finally:
            ray.kill(self._router.actor, no_restart=True)

    def _agent(self, name: str, fresh: bool = False) -> AgentLike:
        attached: AgentLike | None = self._attached.get(name)
        if attached is not None:
            return attached
        agent = self._remote_agent(name)
        agent.place(fresh)
        return agent

    def _remote_agent(self, name: str) -> RemoteAgent:
        return self._remote_agents.setdefault(name, RemoteAgent(self._router, name, self.table.sources[name], self._tell))

    def _tell(self, events: Sequence[LifecycleEvent]) -> None:
        self._fire(
            (told.event, told.checkpoint, self._remote_agent(told.checkpoint) if told.event == "on_load" else None) for told in events
        )
