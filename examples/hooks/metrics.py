"""Count calls, errors, tokens and time, in the text format that Prometheus reads.

`on_predict_end` runs once a call, also when the call failed, so counters that are kept there miss nothing and count nothing twice. A
Router fires it once a request, `predict_batch` of an agent once for all its states; `laya_states_total` counts the states of both.

Labels are few on purpose: checkpoint and outcome. A label whose values are without end (a run id, a user) makes a series each.

On a Router the time starts before routing, so the first call of a checkpoint holds its loading too.

The hook only adds numbers under a lock, which costs a call next to nothing. Rendering is left to whoever scrapes.

Run it: ``python examples/hooks/metrics.py``
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

import laya
from laya import BaseHook, PredictContext

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the time buckets."""

Labels = tuple[tuple[str, str], ...]


class Metrics(BaseHook):
    """Counters and one histogram, by checkpoint. One object can watch any number of agents and routers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, Counter[Labels]] = {}
        self._times: dict[str, list[int]] = {}
        self._time_sums: dict[str, float] = {}

    def on_predict_end(self, ctx: PredictContext) -> None:
        """Counts a call."""
        model = ctx.model or "unknown"
        outcome = "ok" if ctx.error is None else type(ctx.error).__name__
        seconds = (ctx.elapsed_ms or 0.0) / 1000
        with self._lock:
            self._add("calls", 1, model=model, outcome=outcome)
            self._add("states", len(ctx.states), model=model)
            self._add("input_tokens", (ctx.usage or {}).get("input_tokens", 0), model=model)
            self._times.setdefault(model, [0] * (len(SECONDS) + 1))[bisect_left(SECONDS, seconds)] += 1
            self._time_sums[model] = self._time_sums.get(model, 0.0) + seconds

    def on_load(self, ctx: PredictContext) -> None:
        """Counts a checkpoint that a Router has built."""
        with self._lock:
            self._add("loads", 1, model=ctx.model or "unknown")

    def on_evict(self, ctx: PredictContext) -> None:
        """Counts a checkpoint that a Router has dropped."""
        with self._lock:
            self._add("evictions", 1, model=ctx.model or "unknown")

    def value(self, name: str, **labels: str) -> int:
        """One counter, 0 if nothing was counted: ``value("calls", model="mini", outcome="ok")``."""
        with self._lock:
            return self._counters.get(name, Counter())[tuple(sorted(labels.items()))]

    def render(self) -> str:
        """All of it, as a scrape is answered."""
        lines: list[str] = []
        with self._lock:
            for name, counter in sorted(self._counters.items()):
                lines.append(f"# TYPE laya_{name}_total counter")
                lines += [f"laya_{name}_total{_braces(labels)} {count}" for labels, count in sorted(counter.items())]
            if self._times:
                lines.append("# TYPE laya_call_seconds histogram")
            for model, times in sorted(self._times.items()):
                below = 0
                for bound, count in zip((*map(str, SECONDS), "+Inf"), times, strict=True):
                    below += count
                    lines.append(f"laya_call_seconds_bucket{_braces((('le', bound), ('model', model)))} {below}")
                lines.append(f"laya_call_seconds_sum{_braces((('model', model),))} {self._time_sums[model]:.6f}")
                lines.append(f"laya_call_seconds_count{_braces((('model', model),))} {below}")
        return "\n".join(lines) + "\n"

    def _add(self, name: str, count: int, **labels: str) -> None:
        self._counters.setdefault(name, Counter())[tuple(sorted(labels.items()))] += count


def _braces(labels: Labels) -> str:
    escaped = ((name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def main() -> None:
    """Counts calls of a Router, one of them bad, and prints what Prometheus would get."""
    metrics = Metrics()
    router = laya.Router(models={"english": "mini"}, hooks=[metrics])
    questions = {"leaving": {"type": "noul", "instructions": "The customer wants to cancel"}}
    router.predict_batch(
        [{"state": text, "questions": questions} for text in ("Where is my parcel?", "I am leaving you.")], hooks_raise=True
    )
    try:
        router.predict("Where is my parcel?", {"leaving": {"type": "maybe", "instructions": "?"}})
    except ValueError as error:
        print(f"# refused: {error}")
    router.unload()
    print(metrics.render(), end="")


if __name__ == "__main__":
    main()
