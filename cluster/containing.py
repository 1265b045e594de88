"""What an agent's code raises, made fit to travel: agents and hooks are anybody's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import ray.cloudpickle as pickle

Value = TypeVar("Value")


def contained(work: Callable[[], Value]) -> Value:
    """Runs an agent's code. Whatever it raises comes out as an exception that reaches its caller.

    asyncio takes no StopIteration, a SystemExit would end the actor's loop and not its process, and what cannot be pickled would
    arrive as an error of Ray's.

    Raises:
        RuntimeError: One of these was raised; its class and message are told.
        Exception: What was raised, where it can travel.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, StopIteration) or not _travels(error):
            raise _told(error) from error
        raise
    except BaseException as error:
        raise _told(error) from error


def _travels(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _told(error: BaseException) -> RuntimeError:
    return RuntimeError(f"{type(error).__name__}: {error}")
