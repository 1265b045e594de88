"""A large fleet on a small machine: agents whose passes only sleep, clients that keep them busy, and what the router has to do.

    python -m benchmarks.fleet --agents 64 --pass-seconds 1 --seconds 30

It must show that agents are busy nearly all of the time, that a steady stream asks the router nothing, and that watching over the fleet
costs the router little. All agents and clients share this machine's cores: with shorter passes it is these that are measured.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from benchmarks.harness import cpu_seconds, own_ray
from cluster import ClusterRouter, Hosting

QUESTIONS = {"angry": {"type": "noul", "instructions": "The writer is angry"}}
STATE = "I was charged twice for order 4711 and want my money back."


class Client:
    """Asks from many threads until it is told to stop.

    Args:
        router: The fleet's router.
        threads: How many calls it keeps in flight.
    """

    def __init__(self, router: ClusterRouter, threads: int) -> None:
        self._stop = threading.Event()
        self._answers = 0
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(router,)) for _ in range(threads)]

    def _ask(self, router: ClusterRouter) -> None:
        while not self._stop.is_set():
            try:
                router.predict(STATE, QUESTIONS, model="sim")
                self._answers += 1
            except Exception as error:
                self._errors.append(repr(error))

    def start(self) -> None:
        """Starts asking."""
        for thread in self._threads:
            thread.start()

    def answers(self) -> int:
        """Calls answered so far."""
        return self._answers

    def stop(self) -> tuple[int, list[str]]:
        """Stops, and returns the calls answered and what failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self._answers, self._errors


def measure(agents: int, pass_s: float, seconds: float, clients: int, calls_an_agent: int) -> dict[str, Any]:
    """Runs a fleet and returns what was measured.

    Args:
        agents: Number of agents.
        pass_s: Seconds that a forward pass sleeps.
        seconds: How long is measured, once the fleet is busy.
        clients: Client processes.
        calls_an_agent: Calls that the clients keep in flight for each agent.
    """
    router = ClusterRouter(
        models={"sim": "mini"},
        max_loaded=agents,
        name="fleet",
        num_cpus=1,
        hosting={"sim": Hosting(agent="benchmarks.sleeping:SleepingAgent", options={"pass_s": pass_s}, max_replicas=agents)},
    )
    try:
        begun = time.monotonic()
        router.scale("sim", agents)
        start_s = time.monotonic() - begun
        threads = -(-agents * calls_an_agent // clients)
        askers = [ray.remote(Client).options(num_cpus=0, max_concurrency=2).remote(router, threads) for _ in range(clients)]
        ray.get([asker.start.remote() for asker in askers])
        _until_busy(router, agents, 4 * pass_s)
        before, cpu, at = router.status(), 0.0, time.monotonic()
        cpu = cpu_seconds(before["pid"])
        answered = sum(ray.get([asker.answers.remote() for asker in askers]))
        time.sleep(seconds)
        after, elapsed_s = router.status(), time.monotonic() - at
        cpu = cpu_seconds(after["pid"]) - cpu
        answered = sum(ray.get([asker.answers.remote() for asker in askers])) - answered
        stopped = ray.get([asker.stop.remote() for asker in askers])
    finally:
        router.close()
    return {
        "agents": agents,
        "pass_s": pass_s,
        "measured_s": elapsed_s,
        "start_s": start_s,
        "busy_share": _busy_share(before, after),
        "calls": answered,
        "calls_per_s": answered / elapsed_s,
        "router_calls": after["calls"] - before["calls"],
        "router_cpu_share": cpu / elapsed_s,
        "errors": [error for _, errors in stopped for error in errors],
    }


def _until_busy(router: ClusterRouter, agents: int, forward_s: float) -> None:
    """Waits until every agent's passes have taken that long: the one that warms it up says nothing of calls."""
    while sum((replica["report"] or {}).get("forward_s", 0.0) > forward_s for replica in router.status()["replicas"]) < agents:
        time.sleep(0.5)


def _busy_share(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Part of the time between two reports of each agent that its passes took; each report says when it was made."""
    earlier = {replica["id"]: replica for replica in before["replicas"]}
    shares = []
    for replica in after["replicas"]:
        first = earlier[replica["id"]]
        between_s = replica["seen_at"] - first["seen_at"]
        shares.append((replica["report"]["forward_s"] - first["report"]["forward_s"]) / between_s)
    return float(sum(shares) / len(shares))


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--pass-seconds", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=4, help="client processes")
    parser.add_argument("--calls-an-agent", type=int, default=4, help="calls in flight for each agent")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with own_ray(given.agents + 8, 200_000_000):
        found = measure(given.agents, given.pass_seconds, given.seconds, given.clients, given.calls_an_agent)
    if given.json:
        print(json.dumps(found))
        return
    table = Table("measured", "value", "goal")
    table.add_row("agents busy", f"{found['busy_share']:.1%}", "95 %")
    table.add_row("calls a second", f"{found['calls_per_s']:.0f}", "")
    table.add_row("calls of clients", str(found["calls"]), "")
    table.add_row("of the router actor", str(found["router_calls"]), "0")
    table.add_row("router actor, part of a core", f"{found['router_cpu_share']:.1%}", "5 %")
    table.add_row("errors", str(len(found["errors"])), "0")
    table.add_row("fleet ready after", f"{found['start_s']:.0f} s", "")
    Console().print(table)


if __name__ == "__main__":
    main()
