"""Mixed traffic and a random fault every few seconds, for as long as you like: ``python -m tests.chaos.soak --minutes 10``.

Client threads and client processes ask three checkpoints on two slots, and load, unload, scale and pin them now and then, while agents,
the router actor and clients are killed. In the end each call was answered rightly or failed with a documented error, nothing is in
flight, what lives is what the router lists, and nobody's memory has grown. It prints a summary, and exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import laya
from cluster import AgentDiedError, AgentLostError, ClusterRouter, Hosting, NoRoomError
from tests.chaos.support import AGENT, QUESTIONS, STATES, Answers, agree, answers_of, in_flight, kill, living_agents, same, stand_ins
from tests.patience import start, until

DOCUMENTED = (AgentLostError, AgentDiedError, NoRoomError, laya.DeadlineExceededError)
"""What a call may fail with: agents die under it, there is no room, and its own deadline passes."""
FAULT_S = 5.0
GROWTH_BYTES = 200_000_000
"""How much the memory of the driver and of the router actor may grow once all is warm."""
SETTLE_S = 90.0
PATIENCE_S = 90.0
"""Seconds after which a call that has not come back counts as lost."""


class Tally:
    """What became of each call."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def count(self, counter: Counter[str], what: str) -> None:
        """One more."""
        with self._lock:
            counter[what] += 1

    def note_wrong(self, what: str) -> None:
        """Something that must not be."""
        with self._lock:
            self.wrong.append(what)
        print(f"WRONG {what}", flush=True)


class Client:
    """Asks whatever comes to its mind, and checks each answer.

    Args:
        router: Whom it asks.
        answers: Checkpoint to its right answers.
        seed: Decides what it asks.
    """

    def __init__(self, router: Any, answers: dict[str, Answers], seed: str) -> None:
        self.tally = Tally()
        self._router = router
        self._answers = answers
        self._dice = random.Random(seed)

    def step(self) -> None:
        """One call."""
        kind = self._dice.choices(
            ["predict", "predict_batch", "predict_long", "deadline", "bad request", "load", "unload", "scale", "pin", "unpin"],
            [40, 20, 10, 5, 5, 2, 1, 2, 1, 4],
        )[0]
        model, states = self._dice.choice([*self._answers]), self._dice.sample(STATES, 3)
        self.tally.count(self.tally.sent, kind)
        try:
            wrong = self._do(kind, model, states)
        except DOCUMENTED as error:
            self.tally.count(self.tally.errors, type(error).__name__)
        except Exception:
            self.tally.note_wrong(f"{kind} of {model}: {traceback.format_exc()}")
        else:
            self.tally.count(self.tally.answered, kind)
            if wrong:
                self.tally.note_wrong(f"{kind} of {model}: {wrong}")

    def _do(self, kind: str, model: str, states: list[str]) -> str | None:
        router, right = self._router, self._answers[model]
        match kind:
            case "predict":
                return _differs(router.predict(states[0], QUESTIONS, model=model), right[states[0]])
            case "predict_batch":
                found = router.predict_batch([{"state": state, "questions": QUESTIONS, "model": model} for state in states])
                return next((told for state, one in zip(states, found, strict=True) if (told := _differs(one, right[state]))), None)
            case "predict_long":
                return _differs(router.predict_long(states[0], QUESTIONS, model=model), right[states[0]])
            case "deadline":
                with laya.deadline(self._dice.choice([0.01, 0.1, 1.0])):
                    return _differs(router.predict(states[0], QUESTIONS, model=model), right[states[0]])
            case "bad request":
                good = {"state": states[0], "questions": QUESTIONS, "model": model}
                first, second, third = router.predict_batch([good, {**good, "state": None}, {"state": "x"}], return_exceptions=True)
                if isinstance(first, DOCUMENTED):
                    raise first
                kinds = (type(second), type(third))
                return _differs(first, right[states[0]]) if kinds == (TypeError, ValueError) else f"the errors are {kinds}"
            case "load" | "unload" | "pin" | "unpin":
                getattr(router, kind)(model)
            case "scale":
                router.scale(model, self._dice.choice([0, 0, 1, 2]))
        return None


def _differs(result: Any, wanted: Any) -> str | None:
    if isinstance(result, Exception):
        raise result
    return None if same(result["answers"], wanted) else f"{result['answers']} is not {wanted}"


def work(client: Client, over: threading.Event) -> None:
    """Calls until it is over."""
    while not over.is_set():
        client.step()


class ClientProcess:
    """A client in a process of its own, as an actor; killed, it may lose the calls that it has not counted yet."""

    def __init__(self, router: Any, answers: dict[str, Answers], seed: str) -> None:
        self._clients = [Client(router, answers, f"{seed}/{number}") for number in range(2)]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, args=(client, self._over), daemon=True) for client in self._clients]
        for thread in self._threads:
            thread.start()

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def stop(self) -> list[Tally]:
        """Ends it, and returns its tallies without their locks."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self._clients[0].tally.note_wrong("a call of a client process never came back")
        for client in self._clients:
            client.tally._lock = None  # type: ignore[assignment] # it does not travel
        return [client.tally for client in self._clients]


class Faults:
    """Does something bad every few seconds, and remembers what."""

    def __init__(self, router: Any, answers: dict[str, Answers], seed: int, remote: Any) -> None:
        self.done: Counter[str] = Counter()
        self.processes: list[Any] = []
        self._router = router
        self._answers = answers
        self._remote = remote
        self._seed = seed
        self._dice = random.Random(seed)
        self._born = 0

    def spawn(self) -> None:
        """A new client process."""
        self._born += 1
        self.processes.append(self._remote.remote(self._router, self._answers, f"{self._seed}/process {self._born}"))

    def strike(self) -> None:
        """One fault."""
        import ray

        what = self._dice.choice(["agent", "agent", "router", "client", "unload"])
        self.done[what] += 1
        with laya.deadline(PATIENCE_S):
            try:
                if what == "client":
                    victim = self.processes.pop(self._dice.randrange(len(self.processes)))
                    kill(ray.get(victim.pid.remote(), timeout=PATIENCE_S))
                    self.spawn()
                    return
                status = self._router.status()
                if what == "agent":
                    pids = [one["pid"] for one in status["replicas"] if one["pid"] is not None]
                    if pids:
                        kill(self._dice.choice(pids))
                elif what == "router":
                    kill(status["pid"])
                else:
                    self._router.unload()
            except ProcessLookupError:  # it has gone by itself
                self.done[f"{what} was gone"] += 1


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(minutes: float, seed: int, real: bool, slots: int) -> list[str]:
    """Runs it, and returns what is wrong."""
    import ray

    names = ("a", "b", "c")
    answers = dict.fromkeys(names, answers_of(laya.load("mini", device="cpu"))) if real else stand_ins(*names)
    hosting = {} if real else {name: Hosting(agent=AGENT, options={"name": name}) for name in names}
    router = ClusterRouter(
        dict.fromkeys(names, "mini"), default="a", name=f"soak-{os.getpid()}", max_loaded=slots, num_cpus=0.1, min_residency_s=0.5,
        device="cpu", hosting=hosting,
    )  # fmt: skip
    faults = Faults(router, answers, seed, ray.remote(num_cpus=0, max_concurrency=4)(ClientProcess))
    over = threading.Event()
    clients = [Client(router, answers, f"{seed}/thread {number}") for number in range(4)]
    threads = [threading.Thread(target=work, args=(client, over), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for _ in range(2):
        faults.spawn()
    wrong: list[str] = []
    memory: dict[str, list[int]] = {"driver": [], "router": []}
    ends_at = time.monotonic() + minutes * 60
    while time.monotonic() < ends_at:
        over.wait(FAULT_S)
        try:
            faults.strike()
            memory["driver"].append(resident_bytes(os.getpid()))
            memory["router"].append(resident_bytes(router.status()["pid"]))
        except FileNotFoundError:
            pass
        except Exception:
            wrong.append(f"a fault could not be done: {traceback.format_exc()}")
    over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    if stuck := sum(thread.is_alive() for thread in threads):
        wrong.append(f"{stuck} calls never came back")
    tallies = [client.tally for client in clients]
    for process in faults.processes:
        tallies += ray.get(process.stop.remote(), timeout=2 * PATIENCE_S)
    wrong += settled(router, faults)
    sent, answered, errors = (
        sum((counted(tally) for tally in tallies), Counter[str]())
        for counted in (lambda tally: tally.sent, lambda tally: tally.answered, lambda tally: tally.errors)
    )
    failures = [told for tally in tallies for told in tally.wrong]
    wrong += failures
    if answered.total() + errors.total() + len(failures) < sent.total():
        wrong.append(f"{sent.total()} were sent, {answered.total()} answered, {errors.total()} failed as documented")
    for whose, sizes in memory.items():
        warm = sizes[len(sizes) // 3 :]
        if warm and warm[-1] - warm[0] > GROWTH_BYTES:
            wrong.append(f"memory of the {whose} has grown from {warm[0]:,} to {warm[-1]:,} bytes")
    print(f"seed {seed}, {minutes} minutes, {'mini' if real else 'no networks'} on {slots} slots")
    print(f"faults    {dict(faults.done)}")
    print(f"sent      {sent.total()} {dict(sent)}")
    print(f"answered  {answered.total()} {dict(answered)}")
    print(f"errors    {errors.total()} {dict(errors)}")
    print(f"memory    { {whose: f'{min(sizes):,} to {max(sizes):,}' for whose, sizes in memory.items() if sizes} }")
    status = router.status()
    print(f"router    { ({key: status[key] for key in ('loads', 'evictions', 'calls')}) } since its last start")
    router.close()
    return wrong


def settled(router: Any, faults: Faults) -> list[str]:
    """What is not as it should be once nobody asks any more."""
    wrong = []
    try:
        until(lambda: in_flight(router) == 0, "nothing is in flight", SETTLE_S)
        until(lambda: agree(router), "the table is what lives", SETTLE_S)
        if waiting := router.status()["waiting"]:
            wrong.append(f"somebody waits still: {waiting}")
        start(router.unload).result(SETTLE_S)
        until(lambda: not living_agents(router), "nothing is left after unload()", SETTLE_S)
    except Exception as error:
        wrong.append(f"{error!r}; faults {dict(faults.done)}; status {router.status()}; living {living_agents(router)}")
    return wrong


def main() -> int:
    """Parses the command line, runs it on a Ray of its own, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--real", action="store_true", help="checkpoints with their networks, which take seconds to load")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import ray

    ray.init(num_cpus=8, include_dashboard=False, object_store_memory=150_000_000, logging_level="error", log_to_driver=False)
    wrong = soak(given.minutes, seed, given.real, given.slots)
    ray.shutdown()
    for told in wrong:
        print(f"wrong: {told}")
    print("wrong" if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
