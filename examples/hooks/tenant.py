"""Say for which tenant each call was made, without handing the tenant through every function.

The web handler (or whoever knows) enters ``tenant("acme")``; everything below it, in the same thread or asyncio task, runs in that context.
The hook reads it at the end of each call, writes it into the results and adds the tokens up by tenant. Hooks that run under a
``hooks_timeout`` or as coroutines get a copy of the caller's context variables, so this works there too.

It is installed once, as a process-wide default: every Agent and every Router of the process has it, those that exist already too. A
default hook sees a request to a Router once, not again when the Router calls its agent.

Threads that you start yourself do not inherit context variables (``ThreadPoolExecutor`` neither); run the work through
``contextvars.copy_context().run``, as ``main`` does.

Run it: ``python examples/hooks/tenant.py``
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import laya
from laya import BaseHook, PredictContext, hooks

UNKNOWN = "unknown"

_tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default=UNKNOWN)


@contextmanager
def tenant(name: str) -> Iterator[None]:
    """Makes the calls of a block those of one tenant."""
    token = _tenant.set(name)
    try:
        yield
    finally:
        _tenant.reset(token)


class TenantTagger(BaseHook):
    """Tags results and their usage with the tenant, and sums usage by tenant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Tags a call that succeeded; counts every one."""
        name = _tenant.get()
        if ctx.results is not None:
            # Copies, and always written anew: a result from a cache may carry the tenant who asked first.
            ctx.results = [{**result, "tenant": name, "usage": {**(result.get("usage") or {}), "tenant": name}} for result in ctx.results]
        with self._lock:
            sums = self._usage[name]
            sums["calls"] += 1
            sums["errors"] += ctx.error is not None
            sums.update(ctx.usage or {})

    def usage(self, name: str) -> dict[str, int]:
        """Calls, errors and tokens of one tenant so far."""
        with self._lock:
            return dict(self._usage[name]) if name in self._usage else {}


def main() -> None:
    """Serves two tenants from threads, through an agent and a Router."""
    tagger = TenantTagger()
    hooks.add_default_hook(tagger)
    agent = laya.load("mini")
    router = laya.Router()
    router.attach("english", agent)
    questions = {"leaving": {"type": "noul", "instructions": "The customer wants to cancel"}}

    def handle(name: str, text: str) -> str:
        with tenant(name):
            first = agent.predict(text, questions)
            second = router.predict(text, questions)
        return f"{first['tenant']}, {second['usage']['tenant']}"

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, handle, name, "I am leaving.") for name in ("acme", "globex", "acme")]
        print([job.result() for job in jobs])
    agent.predict("Where is my parcel?", questions)
    print({name: tagger.usage(name) for name in ("acme", "globex", UNKNOWN)})
    hooks.clear_default_hooks()


if __name__ == "__main__":
    main()
