"""What travels between the actors of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
class Reply:
    """An agent's answer.

    Attributes:
        value: The result, or None if it failed.
        error: What the call raised, its class and arguments kept; None if it succeeded.
        in_flight: Requests still on the agent.
    """

    value: Any
    error: BaseException | None
    in_flight: int


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
