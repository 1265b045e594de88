"""How soon an agent says how it is while its forward passes run: ``python -m benchmarks.control``."""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from benchmarks.harness import own_ray
from cluster import ClusterRouter

QUESTIONS = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
STATES = ["I was charged twice for order 4711 and want my money back. " * 12] * 64


def measure(looks: int, callers: int) -> dict[str, Any]:
    """Asks a busy agent how it is, and returns how long its answers took.

    Args:
        looks: How often it is asked.
        callers: Calls that keep it busy meanwhile.
    """
    router = ClusterRouter(models={"mini": "mini"}, max_loaded=1, default="mini", name="control", num_cpus=1)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            router.predict_batch([{"state": state, "questions": QUESTIONS, "model": "mini"} for state in STATES])

    threads = [threading.Thread(target=ask) for _ in range(callers)]
    try:
        (agent,) = router.load("mini").place().agents.values()
        for thread in threads:
            thread.start()
        while not ray.get(agent.describe.remote()).forward_s:
            pass
        before, begun = ray.get(agent.describe.remote()), time.monotonic()
        took_s = []
        for _ in range(looks):
            asked = time.perf_counter()
            ray.get(agent.describe.remote())
            took_s.append(time.perf_counter() - asked)
            stop.wait(0.02)
        after, elapsed_s = ray.get(agent.describe.remote()), time.monotonic() - begun
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        router.close()
    centiles = statistics.quantiles(took_s, n=100)
    return {
        "looks": looks,
        "busy_share": (after.forward_s - before.forward_s) / elapsed_s,
        "p50_ms": centiles[49] * 1000,
        "p99_ms": centiles[98] * 1000,
        "max_ms": max(took_s) * 1000,
    }


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=300)
    parser.add_argument("--callers", type=int, default=3, help="calls of 64 states that keep the agent busy")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with own_ray(2, 100_000_000):
        found = measure(given.looks, given.callers)
    if given.json:
        print(json.dumps(found))
        return
    table = Table("measured", "value", "goal")
    table.add_row("engine busy meanwhile", f"{found['busy_share']:.0%}", "")
    for name in ("p50_ms", "p99_ms", "max_ms"):
        table.add_row(f"answer, {name.removesuffix('_ms')}", f"{found[name]:.1f} ms", "50 ms" if name == "p99_ms" else "")
    Console().print(table)


if __name__ == "__main__":
    main()
