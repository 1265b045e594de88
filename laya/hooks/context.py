"""What a hook sees of a call: the mutable context that travels through its lifecycle."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


def _new_run_id() -> str:
    return uuid.uuid4().hex


@dataclass(eq=False)
class PredictContext:
    """One public call, as its hooks see it.

    Hooks may rewrite ``states``, ``questions`` and ``results``; ``on_route`` may rewrite ``decision``. Two contexts are never
    equal, and a context is hashable (identity equality).

    Attributes:
        states: The states of the call; for a scanned long document, the texts of its windows in scan order.
        questions: Question id to question, as the caller gave them.
        run_id: 32 hexadecimal digits that name the call.
        results: One result a state, once they are known.
        decision: The routing decision, on a Router.
        model: ``Agent.model_id`` on an Agent, the resolved checkpoint name on a Router.
        agent: The agent that answers.
        router: The Router that was called, if one was.
        max_len: Longest sequence in tokens for this call; None means the checkpoint's.
        head_max_len: Tokens kept for instructions and options in this call; None means the checkpoint's.
        usage: Token counts summed over the results, once the call has succeeded.
        started_at: ``time.perf_counter()`` at the start of the call, in seconds.
        elapsed_ms: Milliseconds from start to end; set before ``on_predict_end``.
        error: What failed the call, if anything did.
        lang: Language code of the states, where it is known, or a list with one for each; a checkpoint may have temperatures of its own
            for it.
        request_ids: On a pass that serves several requests, the run ids of those requests.
    """

    states: list[Any]
    questions: dict[str, Any]
    run_id: str = field(default_factory=_new_run_id)
    results: list[dict[str, Any]] | None = None
    decision: dict[str, Any] | None = None
    model: str | None = None
    agent: Any = None
    router: Any = None
    max_len: int | None = None
    head_max_len: int | None = None
    usage: dict[str, int] | None = None
    started_at: float = field(default_factory=time.perf_counter)
    elapsed_ms: float | None = None
    error: BaseException | None = None
    lang: str | Sequence[str | None] | None = None
    request_ids: list[str] | None = None

    def skip(self, results: Sequence[dict[str, Any]]) -> None:
        """Answers the call from ``on_predict_start`` instead of running the model; ``on_predict_end`` still runs.

        Args:
            results: One result for the whole call, or one for each state.

        Raises:
            TypeError: The results are no sequence of results.
            ValueError: Their number is neither.
        """
        if isinstance(results, str | Mapping) or not isinstance(results, Iterable):
            raise TypeError(f"ctx.skip() takes a list of results, not one {type(results).__name__}: write ctx.skip([result])")
        given = list(results)
        if len(given) not in (1, len(self.states)):
            raise ValueError(f"ctx.skip() takes one result for the call or one for each of its {len(self.states)} states, not {len(given)}")
        if not all(isinstance(result, Mapping) for result in given):
            raise TypeError("ctx.skip() takes results, which are dicts with model, answers and usage")
        self.results = given

    def __getstate__(self) -> dict[str, Any]:
        # Agents and routers stay in their process; the one that receives the context binds its own. perf_counter() has
        # no meaning in another process, so the time already spent travels instead.
        spent = time.perf_counter() - self.started_at
        return self.__dict__ | {"agent": None, "router": None, "started_at": spent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.started_at = time.perf_counter() - state["started_at"]


def aggregate_usage(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Sums the token counts of several results.

    Args:
        results: Results of states; one without a usage block (from ``ctx.skip``) counts as zero.

    Returns:
        ``{"input_tokens": int, "output_tokens": int}``.
    """
    total = {"input_tokens": 0, "output_tokens": 0}
    for result in results:
        usage = result.get("usage") or {}
        for name in total:
            total[name] += usage.get(name, 0)
    return total
