"""The actor that hosts one checkpoint's Agent."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TextIO

from cluster.messages import AgentReport, Moved, Reply
from laya.hooks.call import serving
from laya.names import CheckpointSource

_CALLERS = 4
"""Calls that encode and decode at a time; their forward passes take turns in the engine."""

_warned: ContextVar[list[Warning] | None] = ContextVar("laya_warned", default=None)
_show_here = warnings.showwarning


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """Keeps a warning for the caller of the call that it belongs to; whoever that is decides what becomes of it."""
    warned = _warned.get()
    if warned is None:
        _show_here(message, category, filename, lineno, file, line)
    else:
        warned.append(message if isinstance(message, Warning) else category(message))


class AgentActor:
    """One checkpoint, answering calls until it is told to drain.

    Only the agent itself knows what is in flight on it, so only the agent can say that it is empty: no client holds a lease, and a
    client that dies pins nothing.

    Args:
        source: The checkpoint.
        device: Where it runs; None takes a GPU if one was given to the actor.
        token: Hub token.
        threads: Threads of a forward pass on a CPU.
    """

    def __init__(self, source: CheckpointSource, device: str | None, token: str | None, threads: int) -> None:
        warnings.showwarning = _show  # this process is the agent's own
        warnings.simplefilter("always", RuntimeWarning)
        self._source = source
        self._device = device
        self._token = token
        self._threads = threads
        self._agent: Any = None
        self._pool = ThreadPoolExecutor(_CALLERS, thread_name_prefix="laya-agent")
        self._draining = False
        self._in_flight = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._last_used = time.monotonic()
        self._requests = 0
        self._states = 0
        self._input_tokens = 0

    async def load(self) -> None:
        """Builds the Agent. What fails is raised with its own class."""
        self._agent = await asyncio.get_running_loop().run_in_executor(self._pool, self._build)

    def _build(self) -> Any:
        import torch

        from laya.agent import Agent

        torch.set_num_threads(self._threads)
        return Agent(self._source.location, self._device, self._token, self._source.subfolder, revision=self._source.revision)

    async def predict_batch(
        self, states: Sequence[Any], questions: Any, options: dict[str, Any], request_ids: Sequence[str]
    ) -> Reply | Moved:
        """`laya.Agent.predict_batch` on behalf of the requests named."""
        return await self._call(len(states), request_ids, lambda: self._agent.predict_batch(states, questions, **options))

    async def predict_long(self, state: Any, questions: Any, options: dict[str, Any], request_ids: Sequence[str]) -> Reply | Moved:
        """`laya.Agent.predict_long` on behalf of the request named."""
        return await self._call(1, request_ids, lambda: self._agent.predict_long(state, questions, **options))

    async def _call(self, states: int, request_ids: Sequence[str], body: Callable[[], Any]) -> Reply | Moved:
        if self._draining:
            return Moved()
        self._in_flight += 1
        self._empty.clear()
        self._requests += max(1, len(request_ids))
        self._states += states
        self._last_used = time.monotonic()

        warned: list[Warning] = []

        def run() -> Any:
            _warned.set(warned)
            with serving(request_ids):
                return body()

        value, error = None, None
        try:
            value = await asyncio.get_running_loop().run_in_executor(self._pool, run)
        except Exception as raised:
            error = raised
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._empty.set()
        for result in value if isinstance(value, list) else [value] if value else []:
            self._input_tokens += (result.get("usage") or {}).get("input_tokens", 0)
        return Reply(value, error, self._in_flight, warned)

    async def drain(self) -> None:
        """Accepts nothing from now on, and returns when all that was accepted has been answered."""
        self._draining = True
        await self._empty.wait()

    async def describe(self) -> AgentReport:
        """What is on it, and what it has done; answers during a forward pass too."""
        idle = 0.0 if self._in_flight else time.monotonic() - self._last_used
        return AgentReport(self._in_flight, idle, self._requests, self._states, self._input_tokens)

    async def close(self) -> None:
        """Frees the device's memory."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
