"""What the chaos tests share: agents that wait, die or lose their device on demand, traffic that checks each answer, and patience."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import laya
from laya.deadlines import remaining_s
from tests.patience import LONG, until

T = TypeVar("T")

TOLERANCE = 2e-3
"""How far neighbours in a pass may move a number."""

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery", "technical"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
STATES = (
    "I was charged twice, give me my money back!",
    "where is my parcel?",
    "The courier left my parcel at the wrong house and I would like my money back.",
    "the app crashes whenever I open it, and has since the update",
    "thanks, that was quick",
)
AGENT = "tests.chaos.support:ObedientAgent"

Answers = Mapping[str, Mapping[str, Any]]
"""State to answers of one checkpoint."""


def kill(pid: int) -> None:
    """Ends a process as the system's memory killer does, and returns when it is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(pid), f"process {pid} is gone")


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False


# What a router says


def replicas_of(router: Any, model: str | None = None, state: str = "ready") -> list[dict[str, Any]]:
    """The replicas of a checkpoint, or of all, that stand there."""
    return [one for one in router.status()["replicas"] if one["state"] == state and model in (None, one["checkpoint"])]


def pids_of(router: Any, model: str) -> list[int]:
    """Processes of a checkpoint's replicas that are ready."""
    return [one["pid"] for one in replicas_of(router, model)]


def in_flight(router: Any) -> int:
    """Requests on all agents, as they say themselves just now."""
    router.loaded  # noqa: B018 has them asked
    return sum(one["report"]["in_flight"] for one in router.status()["replicas"] if one["report"] is not None)


def living_agents(router: Any) -> dict[str, list[int]]:
    """Replica ids of a router's agents by checkpoint, as Ray's own list of actors has them."""
    import ray

    found: dict[str, list[int]] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        kind, _, rest = actor["name"].partition(f":{router.name}:")
        if actor["namespace"] == "laya" and kind == "agent":
            replica, _, checkpoint = rest.partition(":")
            found.setdefault(checkpoint, []).append(int(replica))
    return {checkpoint: sorted(ids) for checkpoint, ids in found.items()}


def listed_agents(router: Any) -> dict[str, list[int]]:
    """The same, as the router has them."""
    found: dict[str, list[int]] = {}
    for one in router.status()["replicas"]:
        found.setdefault(one["checkpoint"], []).append(one["id"])
    return {checkpoint: sorted(ids) for checkpoint, ids in found.items()}


def reserved(router: Any) -> list[str]:
    """Placement groups of a router that are there."""
    from ray.util.placement_group import placement_group_table

    from cluster.slots import group_name

    groups = placement_group_table().values()
    return [group["placement_group_id"] for group in groups if group["name"] == group_name(router.name) and group["state"] != "REMOVED"]


def agree(router: Any) -> bool:
    """Whether the router's table is what lives, and all of it is ready."""
    listed = listed_agents(router)
    return (
        listed == living_agents(router)
        and set(router.loaded) == listed.keys()
        and len(replicas_of(router)) == sum(map(len, listed.values()))
    )


# Agents that do what a state tells them


class Gate:
    """A place where a call or a load waits until it is let go, seen by all processes of this machine.

    Args:
        folder: A folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def state(self) -> str:
        """A state whose call waits here."""
        return f"wait {self.path}"

    def pass_by(self) -> None:
        """Waits here until it is open."""
        (self.path / f"in-{os.getpid()}-{threading.get_ident()}").touch()
        while not (self.path / "open").exists():
            if not self.path.exists():
                return
            time.sleep(0.01)

    def entered(self) -> int:
        """How many have come here."""
        return len(list(self.path.glob("in-*")))

    def pids(self) -> set[int]:
        """The processes that have come here."""
        return {int(path.name.split("-")[1]) for path in self.path.glob("in-*")}

    def wait_for(self, count: int = 1) -> None:
        """Waits until so many have come here."""
        until(lambda: self.entered() >= count, f"{count} wait at {self.path}")

    def open(self) -> None:
        """Lets all go."""
        (self.path / "open").touch()


def lose_device(path: str) -> str:
    """A state at which an agent loses its device, as often as `losses` says."""
    return f"lose {path}"


def losses(path: Path, count: int) -> str:
    """Has agents lose their device so often; returns the state that does it."""
    path.mkdir()
    for number in range(count):
        (path / f"left-{number}").touch()
    return lose_device(str(path))


class ObedientAgent:
    """Answers like the checkpoint of its name, or without any network, and does what a state tells it: wait at a gate, lose its device.

    Without a network it starts in no time, and each answer says which checkpoint, state and question it is of.

    Args:
        location: Where its checkpoint lives.
        name: What it is called in its answers.
        network: Whether it has the checkpoint's network.
        load_gate: Folder of a gate at which its load waits.
        log: File to which it writes a line when it begins a batch, and another when it has ended it.
        work_s: Seconds that a batch takes.
        device: See `laya.Agent`, also for what else there is.
        hooks: See `laya.Agent`.
        **_: Arguments of `laya.Agent` that make no difference here.
    """

    def __init__(
        self,
        location: str,
        *,
        name: str = "",
        network: bool = False,
        load_gate: str | None = None,
        log: str | None = None,
        work_s: float = 0.0,
        device: str | None = None,
        hooks: Any = None,
        **_: Any,
    ) -> None:
        if load_gate is not None:
            Gate(Path(load_gate)).pass_by()
        self._name = name
        self._log = log
        self._work_s = work_s
        self._agent = laya.load(location, device=device, hooks=hooks) if network else None

    def predict_batch(self, states: Sequence[Any], questions: Mapping[Any, Any], **options: Any) -> list[Any]:
        """See `laya.Agent.predict_batch`."""
        self._note("begun")
        time.sleep(self._work_s)
        for state in states:
            self._obey(str(state))
        if self._agent is not None:
            results = list(self._agent.predict_batch(states, questions, **options))
        else:
            results = [{"model": self._name, "answers": stand_in(self._name, state, questions), "usage": USAGE} for state in states]
        self._note("ended")
        return results

    def predict_long(self, state: Any, questions: Mapping[Any, Any], **options: Any) -> Any:
        """See `laya.Agent.predict_long`."""
        self._obey(str(state))
        if self._agent is not None:
            return self._agent.predict_long(state, questions, **options)
        return {"model": self._name, "answers": stand_in(self._name, state, questions), "usage": {**USAGE, "windows": 1}}

    def _note(self, what: str) -> None:
        if self._log is not None:
            with Path(self._log).open("a", encoding="utf-8") as file:
                file.write(f"{what} {os.getpid()} {threading.get_ident()}\n")

    def _obey(self, state: str) -> None:
        order, _, folder = state.partition(" ")
        if order == "wait":
            Gate(Path(folder)).pass_by()
        elif order == "lose":
            for left in Path(folder).glob("left-*"):
                try:
                    left.unlink()
                except FileNotFoundError:  # another agent has lost its own by it
                    continue
                raise laya.DeviceLostError("an uncorrectable error was met: the device is gone")

    def close(self) -> None:
        """See `laya.Agent.close`."""
        if self._agent is not None:
            self._agent.close()


USAGE = {"input_tokens": 3, "output_tokens": 0}


def stand_in(name: str, state: Any, questions: Mapping[Any, Any]) -> dict[str, Any]:
    """Answers without a network: of this checkpoint, state and question only."""
    return {key: {"type": "noul", "noul": zlib.crc32(f"{name}/{state}/{key}".encode()) / 2**32} for key in questions}


def stand_ins(*names: str) -> dict[str, Answers]:
    """The answers of checkpoints without a network."""
    return {name: {state: stand_in(name, state, QUESTIONS) for state in STATES} for name in names}


def answers_of(agent: laya.Agent) -> Answers:
    """The answers of an agent of this process."""
    return {state: agent.predict(state, QUESTIONS)["answers"] for state in STATES}


def same(found: Any, wanted: Any) -> bool:
    """Whether answers are the same but for the last digits."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and [*found] == [*wanted] and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, float):
        return isinstance(found, float) and abs(found - wanted) <= TOLERANCE
    return bool(found == wanted)


# Hooks


class FileHook:
    """Writes a line for each event into a file, from whatever process it runs in.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def _note(self, event: str, ctx: Any) -> None:
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(f"{event} {ctx.model} {os.getpid()}\n")

    def on_load(self, ctx: Any) -> None:
        """Notes it."""
        self._note("on_load", ctx)

    def on_evict(self, ctx: Any) -> None:
        """Notes it."""
        self._note("on_evict", ctx)

    def on_predict_start(self, ctx: Any) -> None:
        """Notes it."""
        self._note("on_predict_start", ctx)

    def on_predict_end(self, ctx: Any) -> None:
        """Notes it."""
        self._note("on_predict_end", ctx)


class _Into:
    """Hooks by import path: ``tests.chaos.support:into.x2f746d70`` writes to the file whose name that is in hexadecimal digits."""

    def __getattr__(self, name: str) -> FileHook:
        if not name.startswith("x"):
            raise AttributeError(name)
        return FileHook(bytes.fromhex(name[1:]).decode())


into = _Into()


def hook_path(path: Path) -> str:
    """The import path of a hook that writes to a file."""
    return f"tests.chaos.support:into.x{str(path).encode().hex()}"


def noted(path: Path) -> list[list[str]]:
    """What a `FileHook` has written so far: event, model and process."""
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


class Stopping:
    """A hook of an agent that raises what a state names, if that is no error but an end."""

    def on_predict_start(self, ctx: Any) -> None:
        """Raises it."""
        for state in ctx.states:
            if state == "StopIteration":
                raise StopIteration
            if state == "SystemExit: 3":
                sys.exit(3)


class Counting(laya.BaseHook):
    """Counts the events of calls, and notes those of checkpoints."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.starts = self.ends = self.errors = 0
        self.lifecycle: list[tuple[str, str]] = []

    def on_predict_start(self, ctx: Any) -> None:
        with self._lock:
            self.starts += 1

    def on_predict_end(self, ctx: Any) -> None:
        with self._lock:
            self.ends += 1

    def on_error(self, ctx: Any) -> None:
        with self._lock:
            self.errors += 1

    def on_load(self, ctx: Any) -> None:
        self.lifecycle.append(("on_load", ctx.model))

    def on_evict(self, ctx: Any) -> None:
        self.lifecycle.append(("on_evict", ctx.model))

    def loads(self, model: str) -> int:
        """How often a checkpoint came."""
        return self.lifecycle.count(("on_load", model))


# Traffic


class Traffic:
    """Threads that ask one question after the other and check each answer, until the block ends; then nothing may have failed.

    Args:
        router: Whom they ask.
        answers: Checkpoint to its right answers.
        threads: How many.
        seed: Decides who asks what.
    """

    def __init__(self, router: Any, answers: Mapping[str, Answers], threads: int = 4, seed: int = 0) -> None:
        self.calls = 0
        self.failures: list[str] = []
        self.answered: dict[str, int] = dict.fromkeys(answers, 0)
        self.longest_s: dict[str, float] = dict.fromkeys(answers, 0.0)
        self._router = router
        self._answers = answers
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed}/{number}"),), daemon=True) for number in range(threads)
        ]

    def _work(self, dice: random.Random) -> None:
        for turn in itertools.count():
            if self._over.is_set():
                return
            model = dice.choice([*self._answers])
            states = dice.sample(STATES, 1 if turn % 2 else 3)
            begun = time.monotonic()
            try:
                if len(states) == 1:
                    found = [self._router.predict(states[0], QUESTIONS, model=model)]
                else:
                    found = self._router.predict_batch([{"state": state, "questions": QUESTIONS, "model": model} for state in states])
                wrong = [
                    state for state, result in zip(states, found, strict=True) if not same(result["answers"], self._answers[model][state])
                ]
                failure = f"wrong answers of {model} for {wrong}: {found}" if wrong else None
            except BaseException as error:
                failure = f"{model}: {error!r}"
            with self._lock:
                self.calls += len(states)  # a request has its events, also in a batch
                if failure is None:
                    self.answered[model] += 1
                    self.longest_s[model] = max(self.longest_s[model], time.monotonic() - begun)
                else:
                    self.failures.append(failure)

    def wait_for(self, more: int = 10, *models: str) -> None:
        """Waits until each of some checkpoints, or of all, has been answered so often from now on."""
        before = dict(self.answered)
        until(
            lambda: self.failures or all(self.answered[model] >= before[model] + more for model in models or before),
            f"{more} more answers of each of {models or [*before]}; there are {self.answered}, before {before}",
        )
        self.check()

    def check(self) -> None:
        """Nothing has failed so far."""
        assert not self.failures, self.failures[:3]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LONG if kind is None else 1.0)
        if kind is None:
            assert not any(thread.is_alive() for thread in self._threads), "a call never came back"
            self.check()


def within(seconds: float, work: Callable[[], T]) -> T:
    """Does something under a deadline."""
    with laya.deadline(seconds):
        assert remaining_s() is not None
        return work()
