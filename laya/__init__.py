"""Typed decisions: calibrated answers to typed questions about texts, from one encoder forward pass.

    >>> import laya
    >>> agent = laya.load("mini")
    >>> agent.predict("I was charged twice!", {"refund": {"type": "noul", "instructions": "The writer wants money back"}})

Importing this package loads nothing heavy; torch and transformers come with the first agent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laya.agent import Agent, load
    from laya.calibration import Temperatures
    from laya.deadlines import DeadlineExceededError, deadline
    from laya.engine.errors import DeviceLostError, OutOfMemoryError
    from laya.files import CheckpointError
    from laya.fitting import CalibrationRecord, fit_temperatures
    from laya.hooks import AsyncHook, BaseHook, Hook, PredictContext, PredictHook
    from laya.onnx_agent import ONNXAgent
    from laya.router import Router
    from laya.routing import RouteDecision

_HOMES = {
    "Agent": "laya.agent",
    "AsyncHook": "laya.hooks",
    "BaseHook": "laya.hooks",
    "CalibrationRecord": "laya.fitting",
    "CheckpointError": "laya.files",
    "DeadlineExceededError": "laya.deadlines",
    "DeviceLostError": "laya.engine.errors",
    "Hook": "laya.hooks",
    "ONNXAgent": "laya.onnx_agent",
    "OutOfMemoryError": "laya.engine.errors",
    "PredictContext": "laya.hooks",
    "PredictHook": "laya.hooks",
    "RouteDecision": "laya.routing",
    "Router": "laya.router",
    "Temperatures": "laya.calibration",
    "deadline": "laya.deadlines",
    "fit_temperatures": "laya.fitting",
    "load": "laya.agent",
}

__all__ = [
    "Agent",
    "AsyncHook",
    "BaseHook",
    "CalibrationRecord",
    "CheckpointError",
    "DeadlineExceededError",
    "DeviceLostError",
    "Hook",
    "ONNXAgent",
    "OutOfMemoryError",
    "PredictContext",
    "PredictHook",
    "RouteDecision",
    "Router",
    "Temperatures",
    "deadline",
    "fit_temperatures",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("laya")
    if name not in _HOMES:
        raise AttributeError(f"module 'laya' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
