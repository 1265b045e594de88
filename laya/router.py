"""The Router of one process: it keeps the checkpoints that are in use and drops the one unused for longest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from laya.hooks.protocol import PredictHooks
from laya.requests import AgentLike
from laya.routed import RoutedCalls
from laya.routing import ENGLISH, LangGuess, RoutingTable

if TYPE_CHECKING:
    from laya.agent import Agent


class Router(RoutedCalls):
    """Routes each request to a checkpoint, loading it on first use.

    Args:
        models: Name to source: a folder, a hub id or a (location, subfolder) pair. A built-in name is re-pointed, another registered.
        device: Where agents run; see `laya.Agent`.
        token: Hub token.
        max_loaded: Most checkpoints kept at a time; one more drops the least recently used.
        default: The checkpoint for texts whose language cannot be told.
        auto_task_detection: Whether the question ids of known workflows choose the typed-decisions checkpoint.
        standalone_repos: Whether the published family is taken from one hub repository each.
        preload: True loads the published family at once, a list of names those.
        lang_guess: A language code, or a function from state to code, believed where a request says nothing.
        hooks: See `laya.hooks.HookRegistry`, also for the other hook arguments.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        hooks_timeout: Seconds a hook may take, or None.
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
    ) -> None:
        super().__init__(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout)
        if type(max_loaded) is not int or max_loaded < 1:
            raise ValueError(f"max_loaded must be a positive number of checkpoints, not {max_loaded!r}")
        self.table = RoutingTable(models, default, auto_task_detection, standalone_repos, lang_guess)
        self.max_loaded = max_loaded
        self._device = device
        self._token = token
        self._lock = threading.Lock()
        self._agents: OrderedDict[str, Any] = OrderedDict()  # least recently used first
        self._attached: set[str] = set()
        self._builds: dict[str, Future[Any]] = {}
        if preload:
            self.preload(None if preload is True else preload)

    @property
    def loaded(self) -> list[str]:
        """Names of the resident checkpoints, least recently used first."""
        with self._lock:
            return list(self._agents)

    def register(self, name: str, source: Any) -> None:
        """Points a name at a checkpoint; see ``models``. A resident one of that name goes on serving until it is unloaded."""
        self.table.register(name, source)

    def load(self, name: str) -> Any:
        """Returns a checkpoint's agent, building it on first use; concurrent calls for one name share the build.

        Fires on_evict for whatever had to go, then on_load; both after the Router's own lock was released, so a hook may call back in.

        Raises:
            ValueError: The name is unknown.
            laya.CheckpointError: The checkpoint cannot be built; every waiting call gets this error, and the next one tries again.
        """
        name = self.table.resolve(name)
        with self._lock:
            if name in self._agents:
                self._agents.move_to_end(name)
                return self._agents[name]
            build = self._builds.get(name)
            mine = build is None
            if build is None:
                build = self._builds[name] = Future()
        if not mine:
            return build.result()
        try:
            agent = self._build(name)
            evicted = self._admit(name, agent)
        except BaseException as error:
            with self._lock:
                del self._builds[name]
            build.set_exception(error)
            raise
        build.set_result(agent)
        self._fire([*(("on_evict", old, None) for old in evicted), ("on_load", name, agent)])
        with self._lock:
            if name in self._agents:  # a hook may have loaded others; this one is what was asked for last
                self._agents.move_to_end(name)
        return agent

    def preload(self, names: Iterable[str] | None = None) -> None:
        """Loads several checkpoints, raising max_loaded so that all of them stay; None means the published family."""
        wanted = self.table.preloaded(names)
        with self._lock:
            self.max_loaded = max(self.max_loaded, len({*self._agents, *wanted}))
        for name in wanted:
            self.load(name)

    def unload(self, name: str | None = None) -> None:
        """Drops one checkpoint, or all of them, and fires on_evict for each; waits for a build of it that is under way."""
        wanted = None if name is None else self.table.resolve(name)
        with self._lock:
            builds = [build for building, build in self._builds.items() if wanted in (None, building)]
        for build in builds:
            build.exception()
        with self._lock:
            names = [resident for resident in self._agents if wanted in (None, resident)]
            for resident in names:
                del self._agents[resident]
                if resident in self._attached:
                    self._attached.remove(resident)
                    self.table.detach(resident)
                    self.max_loaded -= 1
        self._fire(("on_evict", resident, None) for resident in names)

    def attach(self, name: str, agent: Any) -> None:
        """Registers an agent that already exists; no event fires. It is never evicted, and max_loaded grows by its place.

        After `unload`, the name means the checkpoint again that it meant before.
        """
        name = self.table.attach(name, agent)
        with self._lock:
            if name not in self._attached:
                self._attached.add(name)
                self.max_loaded += 1
            self._agents[name] = agent

    def _agent(self, name: str) -> AgentLike:
        agent: AgentLike = self.load(name)
        return agent

    def _build(self, name: str) -> Agent:
        from laya.agent import Agent  # brings torch; routing alone does without

        source = self.table.sources[name]
        return Agent(source.location, self._device, self._token, source.subfolder, revision=source.revision)

    def _admit(self, name: str, agent: Any) -> list[str]:
        """Makes an agent resident and returns the names that had to go for it."""
        evicted = []
        with self._lock:
            del self._builds[name]
            if name not in self._attached:  # an agent that was attached meanwhile stays
                self._agents[name] = agent
            candidates = [resident for resident in self._agents if resident not in self._attached]
            for old in candidates[: max(0, len(self._agents) - self.max_loaded)]:
                del self._agents[old]
                evicted.append(old)
        return evicted
