"""Hooks: watch, shape, answer or veto any call of any runtime. `call` holds the lifecycle itself."""

from laya.hooks.call import CallHooks, run_call, run_calls
from laya.hooks.context import PredictContext, aggregate_usage
from laya.hooks.dispatch import AsyncHook, dispatch, run_coroutine_sync
from laya.hooks.protocol import HOOK_EVENTS, BaseHook, Hook, PredictHook, normalise_hooks
from laya.hooks.registry import (
    HookRegistry,
    add_default_hook,
    clear_default_hooks,
    compose_hooks,
    default_hooks,
    set_default_hooks,
)

__all__ = [
    "HOOK_EVENTS",
    "AsyncHook",
    "BaseHook",
    "CallHooks",
    "Hook",
    "HookRegistry",
    "PredictContext",
    "PredictHook",
    "add_default_hook",
    "aggregate_usage",
    "clear_default_hooks",
    "compose_hooks",
    "default_hooks",
    "dispatch",
    "normalise_hooks",
    "run_call",
    "run_calls",
    "run_coroutine_sync",
    "set_default_hooks",
]
