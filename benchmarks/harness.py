"""What the benchmarks share: their options, a Ray of their own, the processes below one, and the processor time of each."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray


def positive(text: str) -> int:
    """The value of an option that is a whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return number


@contextmanager
def own_ray(num_cpus: int, store_bytes: int) -> Iterator[None]:
    """A Ray that only this process can reach.

    Args:
        num_cpus: CPUs that it takes the machine to have.
        store_bytes: Size of its object store.
    """
    os.environ["RAY_AUTH_MODE"] = "disabled"  # nobody else can reach it, so that no token has to be written into the user's home
    ray.init(num_cpus=num_cpus, include_dashboard=False, object_store_memory=store_bytes, logging_level="error", log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def descendants(pid: int) -> list[int]:
    """The processes that one has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it may end meanwhile
                parent = int((entry / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = children.get(pid, [])
    for child in found:
        found.extend(children.get(child, []))
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
