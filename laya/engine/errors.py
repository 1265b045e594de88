"""How an engine fails."""

from __future__ import annotations


class OutOfMemoryError(MemoryError):
    """One row alone does not fit into the device's memory; passes of several rows are split, and raise nothing."""


class DeviceLostError(RuntimeError):
    """The device failed in a way that nothing in this process recovers from: the process has to be started again."""


def closed() -> RuntimeError:
    """What a call of an engine that was closed ends in."""
    return RuntimeError("this agent was closed, or a Router has unloaded it: load it again")


def first_line(error: BaseException) -> str:
    """An error's class and what it says, without the pages that some libraries append."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
