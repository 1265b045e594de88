"""The metrics: what each call counts, that the page tells the same as the code, and what Ray's endpoint says in the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from cluster import metrics
from cluster.metrics import METRICS, AgentMetrics, RouterMetrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Pass:
    rows: int = 3
    calls: int = 2
    tokens: int = 90
    padded_tokens: int = 120
    forward_s: float = 0.25
    queue_s: float = 0.0


class Recorded:
    """Stands in for Ray's three classes, with their rules."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.values: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def instrument(self, kind: str) -> Any:
        recorded = self

        class Instrument:
            def __init__(self, name: str, description: str, *more: Any) -> None:
                assert kind != "histogram" or all(boundary > 0 for boundary in more[0])
                recorded.made.append(name)
                self.name, self.keys = name, more[-1]

            def _note(self, value: float, tags: dict[str, str]) -> None:
                assert tags.keys() == set(self.keys)
                assert all(isinstance(tag, str) for tag in tags.values())
                recorded.values[(self.name, *(tags[key] for key in self.keys))].append(value)

            def inc(self, value: float, tags: dict[str, str]) -> None:
                assert kind == "counter"
                assert value > 0
                self._note(value, tags)

            def set(self, value: float, tags: dict[str, str]) -> None:
                assert kind == "gauge"
                self._note(value, tags)

            def observe(self, value: float, tags: dict[str, str]) -> None:
                assert kind == "histogram"
                self._note(value, tags)

        return Instrument


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    found = Recorded()
    for kind in ("counter", "gauge", "histogram"):
        monkeypatch.setattr(metrics, kind.capitalize(), found.instrument(kind))
    metrics._instrument.cache_clear()
    yield found
    metrics._instrument.cache_clear()


def test_requests_and_their_errors(recorded: Recorded) -> None:
    agent = AgentMetrics("mini")
    agent.answered(5)
    agent.failed(LookupError("x"), 2)
    agent.moved()
    agent.dropped("expired", 4)
    assert recorded.values == {
        ("laya_requests", "mini"): [5, 2],
        ("laya_request_errors", "mini", "LookupError"): [2],
        ("laya_moved_calls", "mini"): [1],
        ("laya_dropped_requests", "mini", "expired"): [4],
    }


def test_nothing_is_not_counted(recorded: Recorded) -> None:
    agent = AgentMetrics("mini")
    agent.answered(0)
    agent.failed(LookupError("x"), 0)
    agent.dropped("cancelled", 0)
    assert recorded.values == {}


def test_an_error_that_crossed_processes_has_the_class_that_was_raised(recorded: Recorded) -> None:
    raised = RayTaskError("f", "traceback", LookupError("x")).as_instanceof_cause()
    assert type(raised).__name__ != "LookupError"
    RouterMetrics("router").load_failed("mini", raised)
    assert list(recorded.values) == [("laya_load_errors", "router", "mini", "LookupError")]


def test_a_forward_pass(recorded: Recorded) -> None:
    AgentMetrics("mini").pass_done(Pass())
    assert {name: values for (name, checkpoint), values in recorded.values.items()} == {
        "laya_rows": [3],
        "laya_tokens": [90],
        "laya_padded_tokens": [120],
        "laya_queue_seconds": [0.0],
        "laya_forward_seconds": [0.25],
        "laya_batch_tokens": [120],
        "laya_batch_calls": [2],
        "laya_padding_share": [0.25],
    }


@pytest.mark.parametrize(("tokens", "padded", "shares"), [(120, 120, [0.0]), (0, 0, [])])
def test_a_pass_without_padding_and_one_without_tokens(recorded: Recorded, tokens: int, padded: int, shares: list[float]) -> None:
    AgentMetrics("mini").pass_done(Pass(tokens=tokens, padded_tokens=padded))
    assert recorded.values.get(("laya_padding_share", "mini"), []) == shares


def test_loads_and_evictions(recorded: Recorded) -> None:
    router = RouterMetrics("router")
    router.loaded("mini", 2.5)
    router.evicted("mini")
    assert recorded.values == {
        ("laya_loads", "router", "mini"): [1],
        ("laya_load_seconds", "router", "mini"): [2.5],
        ("laya_evictions", "router", "mini"): [1],
    }


@pytest.mark.parametrize(
    ("method", "name"), [("resident", "laya_resident_bytes"), ("replicas", "laya_replicas"), ("waiting", "laya_waiting_clients")]
)
def test_a_gauge_goes_to_zero_for_what_has_left(recorded: Recorded, method: str, name: str) -> None:
    show = getattr(RouterMetrics("router"), method)
    for values in ({"a": 7, "b": 8}, {"b": 9}, {"a": 1}, {}):
        show(values)
    assert recorded.values == {(name, "router", "a"): [7, 0, 1, 0], (name, "router", "b"): [8, 9, 0]}


@pytest.mark.parametrize(("name", "tag"), [("router", "router"), ("score-0123456789ab", "score"), ("team-face", "team-face")])
def test_the_router_of_a_job_has_no_id_in_its_tag(recorded: Recorded, name: str, tag: str) -> None:
    RouterMetrics(name).evicted("mini")
    assert list(recorded.values) == [("laya_evictions", tag, "mini")]


def test_each_is_made_once_a_process(recorded: Recorded) -> None:
    for checkpoint in ("a", "b"):
        AgentMetrics(checkpoint).answered(1)
    assert recorded.made == ["laya_requests"]


def feed(agent: AgentMetrics, router: RouterMetrics) -> None:
    """Every metric once."""
    agent.answered(1)
    agent.failed(LookupError("x"), 1)
    agent.moved()
    agent.dropped("cancelled", 1)
    agent.pass_done(Pass())
    router.loaded("mini", 2.5)
    router.load_failed("mini", LookupError("x"))
    router.evicted("mini")
    router.resident({"mini": 1_000})
    router.replicas({"mini": 2})
    router.waiting({"mini": 3})


def test_every_metric_of_the_table_is_fed(recorded: Recorded) -> None:
    feed(AgentMetrics("mini"), RouterMetrics("router"))
    assert sorted(recorded.made) == sorted(metric.name for metric in METRICS)


def test_boundaries_are_there_for_histograms_and_rise_from_above_zero() -> None:
    for metric in METRICS:
        assert bool(metric.boundaries) == (metric.kind == "histogram"), metric.name
        assert all(low < high for low, high in pairwise((0, *metric.boundaries))), metric.name


def test_the_page_has_the_metrics_of_the_code() -> None:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
    told = {name.strip("`"): (kind, unit, tuple(tags.split(", ")), what) for name, kind, unit, tags, what in cells}
    assert len(told) == len(cells)
    assert told == {metric.exported: (metric.kind, metric.unit, metric.tags, metric.description) for metric in METRICS}


def test_the_queries_of_the_page_ask_for_metrics_and_tags_that_there_are() -> None:
    queries = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    assert len(queries) >= 5
    tags_of = {
        metric.exported + ("_bucket" if metric.kind == "histogram" else ""): {*metric.tags, *(["le"] if metric.boundaries else [])}
        for metric in METRICS
    }
    for query in queries:
        asked = re.findall(r"ray_laya_\w+", query)
        assert asked
        grouped = {tag.strip() for group in re.findall(r"by \((.*?)\)", query) for tag in group.split(",")}
        assert all(grouped <= tags_of[name] for name in asked), query


# A Ray of its own: only a new one can be told to report every second instead of every ten.
SCRAPE = """
import json, sys, time, urllib.request
import ray
from tests.cluster.test_metrics import METRICS, AgentMetrics, RouterMetrics, feed

ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, logging_level="error", log_to_driver=False,
         _system_config={"metrics_report_interval_ms": 1000})

class Actor:
    def feed(self):
        self.agent, self.router = AgentMetrics("mini"), RouterMetrics("router")
        feed(self.agent, self.router)
        self.router.replicas({"other": 1})

actor = ray.remote(Actor).remote()
ray.get(actor.feed.remote())
node = ray.nodes()[0]
url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
deadline = time.monotonic() + 60
text = ""
while time.monotonic() < deadline and not all(f"# TYPE {metric.exported} " in text for metric in METRICS):
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    time.sleep(0.1)
print(json.dumps([line for line in text.splitlines() if "laya_" in line]))
"""


@pytest.mark.slow
def test_the_endpoint_of_a_ray_has_them_all() -> None:
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([sys.executable, "-c", SCRAPE], capture_output=True, cwd=ROOT, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    types = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    assert types == {metric.exported: metric.kind for metric in METRICS}
    own = {"checkpoint", "error", "reason", "router"}
    values: dict[str, float] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        name, tags, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()  # type: ignore[union-attr]
        found = dict(re.findall(r'(\w+)="(.*?)"', tags))
        metric = next(metric for metric in METRICS if name.startswith(metric.exported))
        assert found.keys() & own == set(metric.tags)
        values[" ".join([name, *(found[key] for key in metric.tags), *filter(None, [found.get("le")])])] = float(value)
    assert values["ray_laya_requests_total mini"] == 2
    assert values["ray_laya_request_errors_total mini LookupError"] == 1
    assert values["ray_laya_tokens_total mini"] == 90
    assert values["ray_laya_resident_bytes router mini"] == 1_000
    assert (values["ray_laya_replicas router mini"], values["ray_laya_replicas router other"]) == (0, 1)
    assert (values["ray_laya_padding_share_bucket mini 0.2"], values["ray_laya_padding_share_bucket mini 0.3"]) == (0, 1)
    assert values["ray_laya_queue_seconds_count mini"] == 1
