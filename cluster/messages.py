"""What travels between the actors of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from laya.names import CheckpointSource

Value = TypeVar("Value")

NAMESPACE = "laya"
"""Ray's namespace of all our actors."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a checkpoint can be asked.

    Attributes:
        epoch: Counts changes; of two placements the one with the larger epoch is newer.
        agents: Replica id to the handle of its AgentActor.
    """

    epoch: int
    agents: dict[int, Any]


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """A checkpoint came to an agent or left one. Each is told once, to whom it was done for.

    Attributes:
        event: The hook event that it fires.
        checkpoint: Which checkpoint.
    """

    event: Literal["on_load", "on_evict"]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class RouterReply(Generic[Value]):
    """What a request to the router brought about.

    Attributes:
        value: What was asked for, or None if it failed.
        error: Why it failed, its class and arguments kept; None if it succeeded.
        events: What happened for it, in order, also where it failed.
    """

    value: Value | None = None
    error: Exception | None = None
    events: list[LifecycleEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's answer.

    Attributes:
        value: The result, or None if it failed.
        error: What the call raised, its class and arguments kept; None if it succeeded.
        in_flight: Calls still on the agent.
        epoch: Of the latest change of its checkpoint's replicas that it was told.
        warnings: What the call warned of, for its caller to hear.
    """

    value: Any
    error: BaseException | None
    in_flight: int
    epoch: int = 0
    warnings: list[Warning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Moved:
    """The agent is leaving and has accepted nothing: ask the router again and repeat the call."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What the router leaves with the agents of a checkpoint, so that a later life of it finds it again.

    Attributes:
        epoch: Of the latest change of the checkpoint's replicas.
        least: Replicas that the checkpoint keeps.
        pinned: Whether it is pinned.
    """

    epoch: int = 0
    least: int = 0
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class AgentId:
    """Whose an agent is.

    Attributes:
        router: Name of its router actor.
        replica: Its id there.
        checkpoint: Name of its checkpoint there.
        source: Where that lives.
        bundle: The bundle of the placement group that it runs in, if there is one.
    """

    router: str
    replica: int
    checkpoint: str
    source: CheckpointSource
    bundle: int | None = None

    @property
    def name(self) -> str:
        """The agent's name in Ray."""
        return f"{agent_prefix(self.router)}{self.replica}:{self.checkpoint}"


def agent_prefix(router: str) -> str:
    """How the names of a router's agents begin."""
    return f"agent:{router}:"


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent says of itself.

    Attributes:
        id: Whose it is.
        node: Ray's id of its node.
        pid: Its process.
        loaded: Whether its checkpoint is ready.
        draining: Whether it takes nothing new.
        in_flight: Calls on it; one may bring many requests.
        idle_s: Seconds since it last began a call, 0 while one is on it.
        requests: Requests that it has accepted so far.
        states: States that they held.
        moved: Calls that it has sent on.
        input_tokens: Tokens that its model has read.
        forward_s: Seconds that its forward passes took.
        waiting_rows: Rows in its engine's queue.
        rss_bytes: Memory of its process, pages shared with others counted in full.
        size_bytes: What its weights hold, 0 until it is loaded.
        notice: What the router last left with it.
        token_budget: Padded tokens of its forward passes; lower than at first where memory has run out.
    """

    id: AgentId
    node: str
    pid: int
    loaded: bool
    draining: bool
    in_flight: int
    idle_s: float
    requests: int
    states: int
    moved: int
    input_tokens: int
    forward_s: float
    waiting_rows: int
    rss_bytes: int
    size_bytes: int
    notice: Notice
    token_budget: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """An agent is ready.

    Attributes:
        size_bytes: What its weights hold.
        mapped: Whether its weights are mapped from the object store.
    """

    size_bytes: int
    mapped: bool = False
