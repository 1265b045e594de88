"""The actor that hosts one checkpoint's agent."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray

from cluster.building import TORCH_AGENT, build_agent
from cluster.caller_warnings import hear_for_callers, heard_by_caller
from cluster.containing import contained
from cluster.hosting import RouterConfig
from cluster.messages import NAMESPACE, AgentId, AgentReport, Loaded, Moved, Notice, Reply, Value
from cluster.metrics import AgentMetrics
from cluster.slots import group_name
from cluster.warm import warm_up
from cluster.weights import Offer, Shared, mapped, offer, read
from laya.deadlines import CancelledRequestError, DeadlineExceededError, cancellable, deadline
from laya.engine.errors import DeviceLostError
from laya.hooks.call import serving

_CALLERS = 32
"""Calls that encode, wait for a pass and decode at a time; their rows meet in the engine's queue."""
_ORPHAN_S = 5.0
"""Seconds without a look of the router after which an agent asks whether there still is one, and between two such questions."""

log = logging.getLogger("laya.cluster")


class AgentActor:
    """One checkpoint, answering calls until it is told to drain.

    Only the agent itself knows what is in flight on it, so only the agent can say that it is empty: no client holds a lease, and a
    client that dies pins nothing. It outlives its router's process, whose next life finds it by its name; when there is no router any
    more, it ends itself.

    Args:
        id: Whose it is.
        config: What its router was made with.
    """

    def __init__(self, id: AgentId, config: RouterConfig) -> None:  # noqa: A002 the field's name everywhere else
        hear_for_callers()
        self._id = id
        self._config = config
        self._agent: Any = None
        self._loading: asyncio.Future[Loaded] | None = None
        self._warming: Future[None] | None = None
        self._pool = ThreadPoolExecutor(_CALLERS, thread_name_prefix="laya-agent")
        self._metrics = AgentMetrics(id.checkpoint)
        self._notice = Notice()
        self._draining = False
        self._in_flight = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._last_used = self._last_seen = time.monotonic()
        self._requests = self._states = self._moved = self._input_tokens = 0
        if ray.get_runtime_context().get_actor_id() is not None:
            # It asks itself, at once: its router may be gone before it is asked for anything.
            ray.get_runtime_context().current_actor.watch_for_router.remote()

    async def offer_weights(self) -> Offer | None:
        """Which weights its checkpoint has on this node, if they can be shared."""
        if self._config.hosted(self._id.checkpoint).agent != TORCH_AGENT:
            return None
        self._warming = self._pool.submit(warm_up)  # most of a start is importing, which can begin while its checkpoint is looked for
        return await self._in_thread(offer, self._id.source, self._config.token)

    async def read_weights(self, offered: Offer) -> dict[str, Any] | None:
        """The tensors of an offer; as what a method returns they lie in the object store, and belong to the router that asked."""
        return await self._in_thread(read, offered)

    async def load(self, shared: Shared | None = None) -> Loaded:
        """Builds the agent and warms it up; asked twice, it is built once. What fails is raised with its own class.

        Args:
            shared: Its weights in the object store, if they are there.
        """
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._in_thread(self._build, shared))
        return await asyncio.shield(self._loading)

    def _build(self, shared: Shared | None) -> Loaded:
        if self._warming is not None:
            self._warming.result()  # two threads cannot import transformers at a time: one sees what the other has only half done
        weights = mapped(shared)
        self._agent = build_agent(self._id, self._config, weights)
        # An agent of another class may have less to say.
        if hasattr(self._agent, "observe"):
            self._agent.observe(self._metrics.pass_done)
        if hasattr(self._agent, "warm_up"):
            self._agent.warm_up()
        return Loaded(getattr(self._agent, "size_bytes", 0), weights is not None)

    async def _in_thread(self, work: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._pool, contained, partial(work, *arguments))

    async def predict_batch(
        self, states: Sequence[Any], questions: Any, options: dict[str, Any], request_ids: Sequence[str], allowed_s: float | None = None
    ) -> Reply | Moved:
        """`laya.Agent.predict_batch` on behalf of the requests named, within so many seconds."""
        return await self._call(len(states), request_ids, allowed_s, lambda: self._agent.predict_batch(states, questions, **options))

    async def predict_long(
        self, state: Any, questions: Any, options: dict[str, Any], request_ids: Sequence[str], allowed_s: float | None = None
    ) -> Reply | Moved:
        """`laya.Agent.predict_long` on behalf of the request named, within so many seconds.

        With ``share`` among the options, a state of at least so many windows comes back cut instead, for several agents to score.
        """
        share = options.pop("share", None)

        def body() -> Any:
            if share is not None and hasattr(self._agent, "cut_long"):
                cut = {name: options.get(name) for name in ("window", "stride", "max_len", "head_max_len")}
                warned: list[Warning] = []
                with heard_by_caller(warned):
                    scan = self._agent.cut_long(state, questions, **cut, least=share)
                if scan is not None:
                    for warning in warned:
                        warnings.warn(warning, stacklevel=1)
                    return scan
            return self._agent.predict_long(state, questions, **options)

        return await self._call(1, request_ids, allowed_s, body)

    async def score_windows(
        self, windows: Sequence[Any], questions: Any, options: dict[str, Any], request_ids: Sequence[str], allowed_s: float | None = None
    ) -> Reply | Moved:
        """`laya.Agent.score_windows`: a slice of a long state, on behalf of the request named, within so many seconds."""
        return await self._call(1, request_ids, allowed_s, lambda: self._agent.score_windows(windows, questions, **options))

    async def _call(self, states: int, request_ids: Sequence[str], allowed_s: float | None, body: Callable[[], Any]) -> Reply | Moved:
        if self._draining:
            self._moved += 1
            self._metrics.moved()
            return Moved()
        requests = max(1, len(request_ids))
        self._in_flight += 1
        self._empty.clear()
        self._requests += requests
        self._states += states
        self._last_used = time.monotonic()
        warned: list[Warning] = []
        given_up = threading.Event()
        until = None if allowed_s is None else time.monotonic() + allowed_s

        def run() -> Any:
            within = nullcontext() if until is None else deadline(max(until - time.monotonic(), 1e-6))  # it may have waited for a thread
            with heard_by_caller(warned), cancellable(given_up), within, serving(request_ids):
                return body()

        working: Future[Any] = self._pool.submit(contained, run)
        loop = asyncio.get_running_loop()
        # What is in flight ends when its thread does, not when its caller has lost patience: a drain waits for the work.
        working.add_done_callback(lambda done: loop.call_soon_threadsafe(self._ended, done, requests))
        try:
            value, error = await asyncio.wrap_future(working), None
        except asyncio.CancelledError:
            given_up.set()
            raise
        except Exception as raised:
            value, error = None, raised
        self._count(value, error, requests)
        return Reply(value, error, self._in_flight, self._notice.epoch, warned)

    def _count(self, value: Any, error: Exception | None, requests: int) -> None:
        if isinstance(error, DeviceLostError):
            # Nothing in this process will compute again. Its calls are repeated elsewhere, and a new one takes its place.
            log.critical("agent %s: %s; the process ends", self._id.name, error)
            logging.shutdown()
            sys.stderr.flush()
            os._exit(1)
        if isinstance(error, DeadlineExceededError):
            self._metrics.dropped("expired", requests)
        if error is not None:
            self._metrics.failed(error, requests)
            return
        self._metrics.answered(requests)
        for result in value if isinstance(value, list) else [value]:
            if isinstance(result, dict):  # an agent of another class may say less
                self._input_tokens += (result.get("usage") or {}).get("input_tokens", 0)

    def _ended(self, done: Future[Any], requests: int) -> None:
        if done.cancelled() or isinstance(done.exception(), CancelledRequestError):
            self._metrics.dropped("cancelled", requests)
        self._in_flight -= 1
        if not self._in_flight:
            self._empty.set()

    async def notice(self, notice: Notice) -> None:
        """Something about the replicas of its checkpoint has changed: callers learn it from the epoch of their replies."""
        if notice.epoch >= self._notice.epoch:
            self._notice = notice

    async def drain(self) -> None:
        """Accepts nothing from now on, and returns when all that was accepted has been answered."""
        self._draining = True
        await self._empty.wait()

    async def describe(self) -> AgentReport:
        """What is on it, and what it has done; answers during a forward pass too."""
        self._last_seen = time.monotonic()
        stats = self._agent.stats() if hasattr(self._agent, "stats") else None
        loaded = self._loading.result() if self._loading is not None and _succeeded(self._loading) else None
        return AgentReport(
            id=self._id,
            node=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
            loaded=loaded is not None,
            draining=self._draining,
            in_flight=self._in_flight,
            idle_s=0.0 if self._in_flight else self._last_seen - self._last_used,
            requests=self._requests,
            states=self._states,
            moved=self._moved,
            input_tokens=self._input_tokens,
            forward_s=stats.forward_s if stats else 0.0,
            waiting_rows=stats.waiting_rows if stats else 0,
            rss_bytes=_resident_bytes(),
            size_bytes=loaded.size_bytes if loaded else 0,
            notice=self._notice,
            token_budget=stats.token_budget if stats else 0,
        )

    async def close(self) -> None:
        """Frees the device's memory."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    async def watch_for_router(self) -> None:
        """Ends the process once there is no router any more that could; one that restarts still counts as there."""
        missed = 0
        while missed < 2:
            await asyncio.sleep(_ORPHAN_S)
            if self._in_flight or time.monotonic() - self._last_seen < _ORPHAN_S:
                missed = 0
                continue
            missed = missed + 1 if await asyncio.to_thread(self._router_is_gone) else 0
        log.warning("agent %s: its router is gone; it ends", self._id.name)
        with suppress(Exception):  # whatever fails, nobody else will end this process
            await asyncio.to_thread(self._clean_up)
        os._exit(0)

    def _router_is_gone(self) -> bool:
        try:
            ray.get_actor(self._id.router, namespace=NAMESPACE)
        except ValueError:
            return True
        except Exception as error:
            log.warning("agent %s does not know whether its router is there: %r", self._id.name, error)
        return False

    def _clean_up(self) -> None:
        if self._id.bundle is not None:
            ray.util.remove_placement_group(ray.util.get_placement_group(group_name(self._id.router)))


def _succeeded(work: asyncio.Future[Any]) -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


def _resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
