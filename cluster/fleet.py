"""The agents of a router: how they are started, asked, found again and ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from cluster.agent_actor import AgentActor
from cluster.asking import GONE
from cluster.commands import NoRoomError
from cluster.hosting import RouterConfig
from cluster.messages import NAMESPACE, AgentId, AgentReport, Loaded, Notice, agent_prefix
from cluster.slots import nodes_told
from cluster.weights import Shelf, provide

ANSWER_S = 5.0
"""Seconds that an agent may take to say how it is; one that takes longer is only known by what it said before."""
SCHEDULE_S = 120.0
"""Seconds that Ray may take to find room for an agent; a cluster that grows needs a while."""
_RATE_S = 0.4
"""Least seconds over which tokens a second are taken."""
_SILENT_S = 60.0
"""Seconds of silence after which an agent counts as dead: not even the system has it run any more."""
_CLOSE_S = 30.0
"""Seconds that an agent may take to free its device's memory, and its process to end."""
_PAUSE_S = 0.05
"""Seconds between two looks whether a process has ended."""
_UNREACHABLE_S = 1.0
"""Seconds after which an agent that could not be reached is tried once more, before it is given up."""

log = logging.getLogger("laya.cluster")


@dataclass(slots=True)
class Agent:
    """One agent.

    Attributes:
        id: Whose it is.
        handle: Its actor.
        report: What it last said of itself.
        seen_at: When it said so, in seconds of `time.monotonic`.
        tokens_per_s: How fast its model has been reading of late.
    """

    id: AgentId
    handle: Any
    report: AgentReport | None = None
    seen_at: float = 0.0
    tokens_per_s: float = 0.0
    _counted: int = 0
    _counted_at: float = field(default_factory=time.monotonic)

    def learn(self, report: AgentReport) -> None:
        """It has said how it is."""
        now = time.monotonic()
        passed_s = now - self._counted_at
        if passed_s >= _RATE_S:
            self.tokens_per_s = (report.input_tokens - self._counted) / passed_s
            self._counted, self._counted_at = report.input_tokens, now
        self.report, self.seen_at = report, now


class Fleet:
    """All agents of a router, by replica.

    Args:
        config: What the router actor was made with.
    """

    def __init__(self, config: RouterConfig) -> None:
        self.agents: dict[int, Agent] = {}
        self._config = config

    def start(self, id: AgentId, placing: dict[str, Any]) -> None:  # noqa: A002
        """Asks Ray for an agent's process; nothing is waited for.

        Args:
            id: Whose it is to be.
            placing: Ray options that say where.
        """
        options = {"max_restarts": 0, "max_concurrency": 100_000, **self._config.resources(id.checkpoint), **placing}
        # Detached: it has to outlive the process of its router, which may be started again.
        actor = ray.remote(AgentActor).options(name=id.name, namespace=NAMESPACE, lifetime="detached", **options)
        self.agents[id.replica] = Agent(id, actor.remote(id, self._config))

    async def load(self, replica: int, shelf: Shelf) -> Loaded:
        """Waits until an agent's process is there, and has it load its checkpoint.

        Args:
            replica: Which one.
            shelf: Where the weights of its node are kept.

        Raises:
            NoRoomError: Ray found no place for it.
            One of GONE: It died.
            Exception: What failed its load.
        """
        agent = self.agents[replica]
        try:
            agent.learn(await asyncio.wait_for(agent.handle.describe.remote(), SCHEDULE_S))
        except TimeoutError:
            raise NoRoomError(
                f"Ray found no room for an agent of checkpoint {agent.id.checkpoint!r} within {SCHEDULE_S:.0f} s: it needs "
                f"{self._config.resources(agent.id.checkpoint)}, there are {nodes_told()}"
            ) from None
        shared = await provide(agent.handle, shelf)
        mapped = False
        try:
            loaded: Loaded = await agent.handle.load.remote(shared)
            mapped = loaded.mapped
        finally:
            if shared is not None and not mapped:
                shelf.drop(shared)
        return loaded

    async def look(self, replica: int) -> bool:
        """Asks an agent how it is, and returns whether it lives; one that only takes its time does, for a minute."""
        agent = self.agents.get(replica)
        if agent is None:  # somebody else's look has found it dead
            return False
        for attempt in range(2):
            try:
                agent.learn(await asyncio.wait_for(agent.handle.describe.remote(), ANSWER_S))
            except ActorUnavailableError:
                # Its node may be gone without Ray knowing yet, or a connection broke.
                if attempt == 0:
                    await asyncio.sleep(_UNREACHABLE_S)
            except GONE:
                return False
            except (RayError, TimeoutError) as error:
                log.warning("agent %s did not answer: %r", agent.id.name, error)
                return time.monotonic() - agent.seen_at < _SILENT_S
            else:
                return True
        return False

    async def end(self, replica: int) -> None:
        """Closes an agent, ends its process and makes sure that it is dead."""
        agent = self.agents[replica]
        try:
            await asyncio.wait_for(agent.handle.close.remote(), _CLOSE_S)
        except GONE:
            return
        except (RayError, TimeoutError) as error:
            log.warning("agent %s could not be closed, its process is ended all the same: %r", agent.id.name, error)
        ray.kill(agent.handle, no_restart=True)
        # Its slot is somebody's only once it is certain that the process holds nothing any more.
        end = time.monotonic() + _CLOSE_S
        while time.monotonic() < end:
            try:
                await asyncio.wait_for(agent.handle.describe.remote(), _CLOSE_S)
            except GONE:
                return
            except (RayError, TimeoutError):
                break
            await asyncio.sleep(_PAUSE_S)
        log.error("agent %s does not end; its slot is given away", agent.id.name)

    def kill(self, replica: int) -> None:
        """Ends an agent at once, whatever it is about, and forgets it."""
        if (agent := self.agents.pop(replica, None)) is not None:
            ray.kill(agent.handle, no_restart=True)

    def notify(self, replicas: Sequence[int], notice: Notice) -> None:
        """Tells agents that something about the replicas of their checkpoint has changed; nothing is waited for."""
        for replica in replicas:
            if (agent := self.agents.get(replica)) is not None:
                agent.handle.notice.remote(notice)

    async def find(self) -> list[Agent]:
        """Agents of an earlier life of this router that still live, those last that know most. One that has not begun yet is silent."""
        prefix = agent_prefix(self._config.name)
        listed = await asyncio.to_thread(ray.util.list_named_actors, all_namespaces=True)
        names = [actor["name"] for actor in listed if actor["namespace"] == NAMESPACE and actor["name"].startswith(prefix)]
        found = await asyncio.gather(*(self._found(name) for name in names))
        agents = [agent for agent in found if agent is not None]
        return sorted(agents, key=lambda agent: (agent.report.notice.epoch if agent.report else 0, agent.id.replica))

    async def _found(self, name: str) -> Agent | None:
        try:
            handle = await asyncio.to_thread(ray.get_actor, name, namespace=NAMESPACE)
            report: AgentReport = await asyncio.wait_for(handle.describe.remote(), ANSWER_S)
        except (ValueError, *GONE):
            return None
        except (RayError, TimeoutError) as error:
            log.warning("agent %s did not answer and is ended: %r", name, error)
            ray.kill(handle, no_restart=True)
            return None
        agent = Agent(report.id, handle)
        agent.learn(report)
        return agent
