"""The Ray that a job runs on: one that is there, or one of its own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import ray
from ray.exceptions import RayTaskError

from pipelines.errors import InputError

_OBJECT_STORE_BYTES = 256 * 2**20  # texts and answers are small, and parts are written by the workers themselves
_KNOCK_S = 5.0

Item = TypeVar("Item")
Value = TypeVar("Value")


@contextmanager
def ray_session(address: str | None, num_cpus: int) -> Iterator[None]:
    """Makes sure that Ray is there for a block, and ends only what it has started.

    Args:
        address: A running cluster to join; None joins what RAY_ADDRESS names, or starts an embedded Ray.
        num_cpus: Logical CPUs of an embedded Ray.

    Raises:
        InputError: The address cannot be joined.
    """
    if ray.is_initialized():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    # What the job has to say, errors too, it says itself; Ray's own progress and notices would bury it.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    if address or os.environ.get("RAY_ADDRESS"):
        try:
            _knock(address or os.environ["RAY_ADDRESS"])
            ray.init(address=address, logging_level="error", log_to_driver=False, namespace="laya")
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"--address {address or os.environ['RAY_ADDRESS']}: no Ray cluster answers there ({error})") from None
    else:
        ray.init(
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level="error",
            log_to_driver=False,
        )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own would end the process in the middle of everything
    try:
        yield
    finally:
        ray.shutdown()


def mapped_on_ray(function: Callable[[Item], Value], items: Iterable[Item]) -> Iterator[Value]:
    """Applies a function to items by tasks of a Ray that is there; results come in the order of the items, errors with their own class."""
    task = ray.remote(_apply).options(num_cpus=1, max_retries=3)
    for reference in [task.remote(function, item) for item in items]:
        try:
            yield ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None


def _apply(function: Callable[[Item], Value], item: Item) -> Value:
    return function(item)


def _knock(address: str) -> None:
    """Raises OSError where nobody listens; Ray itself would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()
