"""What a second replica brings: the throughput of two agents with a core each against one, in the same run and by turns.

    python -m benchmarks.replicas
    python -m benchmarks.replicas --rounds 5 --seconds 20 --json

The texts are so long that the forward pass is most of the work. Clients ask from this process, on the same machine: what they and the
router take is missing to the agents once these need all cores, and is printed beside the result.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness import cpu_seconds, own_ray
from benchmarks.workload import QUESTIONS
from cluster import ClusterRouter, Hosting

TICKETS = Path(__file__).parents[1] / "examples" / "tickets.jsonl"
GOAL = 1.8


@dataclass(frozen=True, slots=True)
class Run:
    """One side's turn.

    Attributes:
        states_per_s: States answered a second.
        tokens_per_s: Tokens that the models read a second, those of all questions counted.
        busy_share: Part of the time that an agent's forward passes took, the agents' mean.
        agent_cores: Cores that an agent's process kept busy, the agents' mean.
        client_cores: Cores that the asking process kept busy.
        router_cores: Cores that the router actor kept busy.
    """

    states_per_s: float
    tokens_per_s: float
    busy_share: float
    agent_cores: float
    client_cores: float
    router_cores: float


class Clients:
    """Threads that each keep one call of many states in flight.

    Args:
        router: What they ask.
        calls: The requests of each call; every thread goes through all of them.
        threads: How many.
    """

    def __init__(self, router: ClusterRouter, calls: Sequence[list[dict[str, Any]]], threads: int) -> None:
        self.states = self.tokens = self.done = 0
        self._router = router
        self._calls = calls
        self._counting = threading.Lock()
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        try:
            while not self._stop.is_set():
                results = self._router.predict_batch(self._calls[number % len(self._calls)])
                number += 1
                with self._counting:
                    self.done += 1
                    self.states += len(results)
                    self.tokens += sum(result["usage"]["input_tokens"] for result in results)
        except Exception as error:
            self._errors.append(error)

    def wait_for(self, calls: int) -> None:
        """Waits until so many calls have been answered."""
        while self.done < calls and not self._errors:
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops, and raises what failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def texts(repeat: int) -> list[str]:
    """The tickets, each said several times over."""
    tickets = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()]
    return ["\n".join([f"{ticket['subject']}: {ticket['text']}"] * repeat) for ticket in tickets]


def measure(router: ClusterRouter, calls: Sequence[list[dict[str, Any]]], threads: int, seconds: float) -> Run:
    """One side's turn, measured while it is busy.

    Args:
        router: Whose agents.
        calls: The requests of each call.
        threads: Calls in flight.
        seconds: How long.
    """
    clients = Clients(router, calls, threads)
    try:
        clients.wait_for(threads)
        before, used = router.status(), _cpu(router)
        states, tokens, begun = clients.states, clients.tokens, time.monotonic()
        time.sleep(seconds)
        states, tokens, elapsed_s = clients.states - states, clients.tokens - tokens, time.monotonic() - begun
        after = router.status()
        spent = {pid: (total - used[pid]) / elapsed_s for pid, total in _cpu(router).items()}
    finally:
        clients.stop()
    agents = [replica["pid"] for replica in after["replicas"]]
    return Run(
        states / elapsed_s,
        tokens / elapsed_s,
        _busy_share(before, after),
        statistics.fmean(spent[pid] for pid in agents),
        spent[os.getpid()],
        spent[after["pid"]],
    )


def _cpu(router: ClusterRouter) -> dict[int, float]:
    """Processor time so far, by process: the agents', the router's and this one's."""
    status = router.status()
    pids: list[int] = [*(replica["pid"] for replica in status["replicas"]), status["pid"], os.getpid()]
    return {pid: cpu_seconds(pid) for pid in pids}


def _busy_share(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Part of the time between two reports of each agent that its passes took; each report says when it was made."""
    earlier = {replica["id"]: replica for replica in before["replicas"]}
    shares = []
    for replica in after["replicas"]:
        first = earlier[replica["id"]]
        shares.append((replica["report"]["forward_s"] - first["report"]["forward_s"]) / (replica["seen_at"] - first["seen_at"]))
    return statistics.fmean(shares)


def compare(rounds: int, seconds: float, threads: int, states_a_call: int, repeat: int) -> dict[str, Any]:
    """Measures one agent and two by turns.

    Args:
        rounds: Turns of each.
        seconds: Length of a turn.
        threads: Calls in flight, the same for both.
        states_a_call: States of one call.
        repeat: How often each text is said.
    """
    states = texts(repeat)
    requests = [{"state": state, "questions": QUESTIONS, "model": "mini"} for state in states]
    calls = [requests[at : at + states_a_call] for at in range(0, len(requests) - states_a_call + 1, states_a_call)]
    hosting = {"mini": Hosting(num_cpus=1)}
    sides: dict[int, list[Run]] = {1: [], 2: []}
    with ExitStack() as stack:
        routers = {}
        for agents in sides:
            router = ClusterRouter(
                {"mini": "mini"}, max_loaded=agents, name=f"replicas-{agents}", num_cpus=1, hosting=hosting, default="mini"
            )
            routers[agents] = stack.enter_context(closing(router))
            router.scale("mini", agents)
        for number in range(rounds):
            for agents in sorted(sides, reverse=number % 2 == 1):
                sides[agents].append(measure(routers[agents], calls, threads, seconds))
    ratios = [two.states_per_s / one.states_per_s for one, two in zip(sides[1], sides[2], strict=True)]
    return {
        "rounds": rounds,
        "seconds": seconds,
        "calls_in_flight": threads,
        "states_a_call": states_a_call,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "runs": {str(agents): [asdict(run) for run in runs] for agents, runs in sides.items()},
        "median": {
            str(agents): {name: statistics.median(asdict(run)[name] for run in runs) for name in Run.__slots__}
            for agents, runs in sides.items()
        },
        "ratios": ratios,
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one turn")
    parser.add_argument("--calls", type=int, default=6, help="calls in flight")
    parser.add_argument("--states", type=int, default=4, help="states of one call")
    parser.add_argument("--repeat", type=int, default=2, help="how often each ticket is said over")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # A thread that waits is not to spin on the core that the other agent needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with own_ray(4, 150_000_000):
        found = compare(given.rounds, given.seconds, given.calls, given.states, given.repeat)
    if given.json:
        print(json.dumps(found))
        return
    table = Table("measured", "one agent", "two agents")
    rows = {
        "states a second": ("states_per_s", ".1f"),
        "tokens a second": ("tokens_per_s", ".0f"),
        "of the time in forward passes": ("busy_share", ".1%"),
        "cores of an agent": ("agent_cores", ".2f"),
        "cores of the clients": ("client_cores", ".2f"),
        "cores of the router": ("router_cores", ".2f"),
    }
    for told, (name, form) in rows.items():
        table.add_row(told, *(format(found["median"][agents][name], form) for agents in ("1", "2")))
    Console().print(table)
    print(f"two against one: {found['ratio']:.2f} (goal {GOAL}), by turns {', '.join(f'{ratio:.2f}' for ratio in found['ratios'])}")


if __name__ == "__main__":
    main()
