"""What `cluster.residency` asks of whoever runs it, and how each is to be answered."""

from __future__ import annotations

from dataclasses import dataclass


class NoRoomError(RuntimeError):
    """There is no room for a checkpoint, and none can be made."""


@dataclass(frozen=True, slots=True)
class Load:
    """Build this replica; answer with `Residency.loaded`, `Residency.failed`, or `Residency.gone` to have it tried again."""

    replica: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Abort:
    """There is no slot for this load any more: stop it; answer with `Residency.gone`."""

    replica: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Let this replica finish what it has accepted and take nothing new; answer with `Residency.emptied`."""

    replica: int


@dataclass(frozen=True, slots=True)
class Close:
    """This replica is empty: fire on_evict, close it, make sure it is dead; answer with `Residency.gone`."""

    replica: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The checkpoint that this ticket waits for is ready, on these replicas."""

    ticket: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The checkpoint that this ticket waits for cannot be had."""

    ticket: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Forgo:
    """Replicas that a checkpoint is to keep cannot be had as things are; it is tried again later."""

    checkpoint: str
    error: NoRoomError


Command = Load | Abort | Drain | Close | Grant | Refuse | Forgo
