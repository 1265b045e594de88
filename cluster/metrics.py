"""What agents and routers count, for Prometheus: one table of metrics, and the two classes that feed them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, cast

from ray.util.metrics import Counter, Gauge, Histogram

Kind = Literal["counter", "gauge", "histogram"]


class PassReport(Protocol):
    """What an engine tells of one forward pass.

    Attributes:
        rows: Rows in it.
        calls: Calls that those rows belong to.
        tokens: Tokens of the rows, padding left out.
        padded_tokens: The same with the padding.
        forward_s: Seconds that the pass took.
        queue_s: Seconds that the row that waited longest had waited for it.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def calls(self) -> int: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102
    @property
    def padded_tokens(self) -> int: ...  # noqa: D102
    @property
    def forward_s(self) -> float: ...  # noqa: D102
    @property
    def queue_s(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name in Ray.
        kind: counter, gauge or histogram.
        unit: What one of it is.
        description: One line for whoever reads the endpoint.
        tags: Tag keys. Each value makes a series that is kept for good, so they are names, never ids.
        boundaries: Upper bounds of a histogram's buckets, in the metric's unit.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    tags: tuple[str, ...]
    boundaries: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """The name at Ray's metrics endpoint, of a histogram the stem of its three."""
        return f"ray_{self.name}_total" if self.kind == "counter" else f"ray_{self.name}"


_AGENT = ("checkpoint",)
_ROUTER = ("router", "checkpoint")

# Ray sends a histogram as counts of its buckets and puts the sum together from their middles, so what a rate is wanted of (tokens) is a
# counter as well.
METRICS = (
    Metric("laya_requests", "counter", "requests", "Requests that ended, answered or failed", _AGENT),
    Metric("laya_request_errors", "counter", "requests", "Requests that failed, by class of the error", (*_AGENT, "error")),
    Metric("laya_moved_calls", "counter", "calls", "Calls that a draining agent sent on", _AGENT),
    Metric("laya_dropped_requests", "counter", "requests", "Requests dropped before their forward pass", (*_AGENT, "reason")),
    Metric("laya_rows", "counter", "rows", "Rows that went through a forward pass", _AGENT),
    Metric("laya_tokens", "counter", "tokens", "Tokens of those rows, padding left out", _AGENT),
    Metric("laya_padded_tokens", "counter", "tokens", "Tokens of those rows with their padding", _AGENT),
    Metric(
        "laya_queue_seconds",
        "histogram",
        "seconds",
        "Longest wait of a forward pass's rows",
        _AGENT,
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
    Metric(
        "laya_forward_seconds",
        "histogram",
        "seconds",
        "What a forward pass took",
        _AGENT,
        (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    ),
    Metric(
        "laya_batch_tokens",
        "histogram",
        "tokens",
        "Tokens of a forward pass with their padding",
        _AGENT,
        (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072),
    ),
    Metric("laya_batch_calls", "histogram", "calls", "Calls that met in a forward pass", _AGENT, (1, 2, 4, 8, 16, 32, 64, 128)),
    Metric(
        "laya_padding_share",
        "histogram",
        "share",
        "Part of a forward pass's tokens that is padding",
        _AGENT,
        (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1),
    ),
    Metric("laya_loads", "counter", "loads", "Replicas that became ready", _ROUTER),
    Metric(
        "laya_load_seconds",
        "histogram",
        "seconds",
        "What it took a replica to become ready",
        _ROUTER,
        (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300),
    ),
    Metric("laya_load_errors", "counter", "loads", "Loads that failed, by class of the error", (*_ROUTER, "error")),
    Metric(
        "laya_evictions",
        "counter",
        "evictions",
        "Replicas that left in good order: for others, idle, on request, or from a node that goes",
        _ROUTER,
    ),
    Metric("laya_resident_bytes", "gauge", "bytes", "Weights that replicas hold", _ROUTER),
    Metric("laya_replicas", "gauge", "replicas", "Replicas, in whatever state", _ROUTER),
    Metric("laya_waiting_clients", "gauge", "clients", "Client processes that wait for a checkpoint to be placed", _ROUTER),
)

_BY_NAME = {metric.name: metric for metric in METRICS}


@cache
def _instrument(name: str) -> Any:
    """Ray's object for a metric, made once a process."""
    metric = _BY_NAME[name]
    match metric.kind:
        case "counter":
            return Counter(name, metric.description, metric.tags)
        case "gauge":
            return Gauge(name, metric.description, metric.tags)
        case "histogram":
            return Histogram(name, metric.description, list(metric.boundaries), metric.tags)


def _ascii(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as Ray takes them; names may be written in any script."""
    return {key: value.encode("ascii", "backslashreplace").decode("ascii") for key, value in tags.items()}


def _add(name: str, count: float, tags: dict[str, str]) -> None:
    if count > 0:  # Ray refuses to add nothing
        _instrument(name).inc(count, _ascii(tags))


def _observe(name: str, value: float, tags: dict[str, str]) -> None:
    _instrument(name).observe(value, _ascii(tags))


def _error_class(error: BaseException) -> str:
    """The class that was raised, also where Ray wraps it in one of its own that remembers the cause."""
    return type(cast(BaseException, getattr(error, "cause", None) or error)).__name__


class AgentMetrics:
    """Counts what one agent does. Calls of any thread may feed it.

    Args:
        checkpoint: The name that the agent's checkpoint is placed under.
    """

    def __init__(self, checkpoint: str) -> None:
        self._tags = {"checkpoint": checkpoint}

    def answered(self, requests: int) -> None:
        """Counts requests that got their answers."""
        _add("laya_requests", requests, self._tags)

    def failed(self, error: BaseException, requests: int) -> None:
        """Counts requests that got an error, whoever is to blame for it."""
        _add("laya_requests", requests, self._tags)
        _add("laya_request_errors", requests, {**self._tags, "error": _error_class(error)})

    def moved(self) -> None:
        """Counts a call that came while the agent was draining."""
        _add("laya_moved_calls", 1, self._tags)

    def dropped(self, reason: Literal["cancelled", "expired"], count: int) -> None:
        """Counts requests that were dropped before their forward pass."""
        _add("laya_dropped_requests", count, {**self._tags, "reason": reason})

    def pass_done(self, report: PassReport) -> None:
        """Counts a forward pass."""
        _add("laya_rows", report.rows, self._tags)
        _add("laya_tokens", report.tokens, self._tags)
        _add("laya_padded_tokens", report.padded_tokens, self._tags)
        _observe("laya_queue_seconds", report.queue_s, self._tags)
        _observe("laya_forward_seconds", report.forward_s, self._tags)
        _observe("laya_batch_tokens", report.padded_tokens, self._tags)
        _observe("laya_batch_calls", report.calls, self._tags)
        if report.padded_tokens:
            _observe("laya_padding_share", 1 - report.tokens / report.padded_tokens, self._tags)


class RouterMetrics:
    """Counts what one router does.

    Args:
        router: Name of the router actor. What follows a last "-" is left out of the tag where it is the id of a run, so that each
            job does not make series of its own.
    """

    def __init__(self, router: str) -> None:
        self._tags = {"router": re.sub(r"-[0-9a-f]{12,}$", "", router)}
        self._shown: dict[str, set[str]] = {}

    def _of(self, checkpoint: str) -> dict[str, str]:
        return {**self._tags, "checkpoint": checkpoint}

    def loaded(self, checkpoint: str, seconds: float) -> None:
        """Counts a replica that became ready, and how long that took in seconds."""
        _add("laya_loads", 1, self._of(checkpoint))
        _observe("laya_load_seconds", seconds, self._of(checkpoint))

    def load_failed(self, checkpoint: str, error: BaseException) -> None:
        """Counts a load that failed."""
        _add("laya_load_errors", 1, {**self._of(checkpoint), "error": _error_class(error)})

    def evicted(self, checkpoint: str) -> None:
        """Counts a replica that left."""
        _add("laya_evictions", 1, self._of(checkpoint))

    def resident(self, bytes_by_checkpoint: Mapping[str, int]) -> None:
        """Shows how many bytes of weights each checkpoint's replicas hold; those that are not named hold none."""
        self._show("laya_resident_bytes", bytes_by_checkpoint)

    def replicas(self, count_by_checkpoint: Mapping[str, int]) -> None:
        """Shows how many replicas each checkpoint has; those that are not named have none."""
        self._show("laya_replicas", count_by_checkpoint)

    def waiting(self, count_by_checkpoint: Mapping[str, int]) -> None:
        """Shows how many client processes wait for each checkpoint; for those that are not named none does."""
        self._show("laya_waiting_clients", count_by_checkpoint)

    def _show(self, name: str, values: Mapping[str, int]) -> None:
        gauge = _instrument(name)
        # Ray goes on telling the last value of a gauge, so one that left must be told to be 0.
        for gone in self._shown.get(name, set()) - values.keys():
            gauge.set(0, _ascii(self._of(gone)))
        for checkpoint, value in values.items():
            gauge.set(value, _ascii(self._of(checkpoint)))
        self._shown[name] = {checkpoint for checkpoint, value in values.items() if value}
