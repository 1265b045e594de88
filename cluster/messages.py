"""What travels between the actors of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

Value = TypeVar("Value")


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
        in_flight: Requests still on the agent.
        warnings: What the call warned of, for its caller to hear.
    """

    value: Any
    error: BaseException | None
    in_flight: int
    warnings: list[Warning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Moved:
    """The agent is leaving and has accepted nothing: ask the router again and repeat the call."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent says of itself.

    Attributes:
        in_flight: Requests on it.
        idle_s: Seconds since it last began a request.
        requests: Requests that it has accepted so far.
        states: States that they held.
        input_tokens: Tokens that its model has read.
    """

    in_flight: int
    idle_s: float
    requests: int
    states: int
    input_tokens: int
