"""Answer from memory what was asked before.

The hook looks each call up before inference and answers it with `ctx.skip` if it knows all of its states; it stores what the model
said afterwards. `predict_batch` brings many states in one call, so both events walk over all of them.

Three things keep such a cache right:

- The key covers all that the answer depends on: the state, the questions in their order, the checkpoint and both token budgets.
- What goes in and what comes out are copies. A caller or a hook that changes its result must not change the cache.
- It is bounded, and it is locked: an agent may be called from many threads.

Run it: ``python examples/hooks/cache.py``
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections import OrderedDict
from typing import Any

import laya
from laya import BaseHook, PredictContext


def key(ctx: PredictContext, index: int) -> str:
    """Names the answer to one state of a call."""
    # Not sort_keys=True: criteria order is positional, so two orders are two questions,
    # and the checkpoint and token budget change the answer too.
    payload = json.dumps([ctx.states[index], ctx.questions, ctx.model, ctx.max_len, ctx.head_max_len], default=str)
    return hashlib.sha256(payload.encode()).hexdigest()


class AnswerCache(BaseHook):
    """Keeps the results that were used last.

    Args:
        capacity: Most results that are kept; one more drops the one unused for longest.

    Attributes:
        hits: Calls that were answered from here.
        misses: Calls that went to the model.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.hits = 0
        self.misses = 0
        self._results: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def on_predict_start(self, ctx: PredictContext) -> None:
        """Answers the call if the results of all its states are known."""
        if ctx.results is not None or not ctx.states:
            return  # another hook has answered, or there is nothing to answer
        keys = [key(ctx, index) for index in range(len(ctx.states))]
        with self._lock:
            found = [self._results[name] for name in keys if name in self._results]
            if len(found) < len(keys):
                self.misses += 1
                return
            self.hits += 1
            for name in keys:
                self._results.move_to_end(name)
        ctx.skip(copy.deepcopy(found))

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Stores what is new of a call that succeeded."""
        results = ctx.results or []
        if ctx.error is not None or len(results) != len(ctx.states):
            return
        keys = [key(ctx, index) for index in range(len(ctx.states))]
        with self._lock:
            new = {name: result for name, result in zip(keys, results, strict=True) if name not in self._results}
        # How a request came to its checkpoint is the request's own; the Router adds it to a cached result anew.
        fresh = {name: copy.deepcopy({part: result[part] for part in result if part != "routing"}) for name, result in new.items()}
        with self._lock:
            self._results.update(fresh)
            while len(self._results) > self.capacity:
                self._results.popitem(last=False)


def main() -> None:
    """Asks the same twice, then with the options the other way round."""
    cache = AnswerCache(capacity=1000)
    agent = laya.load("mini", hooks=[cache])
    text = "I was charged twice for order 4711."
    team = {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery"]}
    for criteria in (["billing", "delivery"], ["billing", "delivery"], ["delivery", "billing"]):
        result = agent.predict(text, {"team": {**team, "criteria": criteria}})
        print(f"{criteria}: {result['answers']['team']['choice']} (hits {cache.hits}, misses {cache.misses})")


if __name__ == "__main__":
    main()
