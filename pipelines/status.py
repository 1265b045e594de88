"""What the routers of a running Ray say of themselves: fetched here, drawn by `pipelines.status_tables`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, cast

import ray
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError
from rich.console import Console
from rich.live import Live

from cluster.messages import NAMESPACE
from pipelines.errors import InputError
from pipelines.session import ray_session
from pipelines.status_tables import NodeStatus, ReplicaStatus, RouterAnswer, RouterStatus, tables

_ANSWER_S = 5.0
_GONE = "it is not there"
_MEND = "name a running one with --address HOST:PORT, or start one with `ray start --head`"


@dataclass(slots=True)
class RouterReader:
    """Asks the routers of the Ray that this process has joined.

    Attributes:
        router: The one to ask; None asks all.
        answer_s: Seconds that a router may take. One that took longer is waited for no more, so that it holds up no other.
    """

    router: str | None = None
    answer_s: float = _ANSWER_S
    _late: dict[str, Any] = field(default_factory=dict)

    def read(self) -> list[RouterAnswer]:
        """The routers by name, each with its status or with what is wrong."""
        found = {name: actor for name, actor in _actors().items() if self.router in (None, name)}
        asked = {name: actor.status.remote() for name, actor in found.items() if name not in self._late}
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=self.answer_s)
        asked |= {name: reply for name, reply in self._late.items() if name in found}
        done = set(ray.wait(list(asked.values()), num_returns=len(asked), timeout=0)[0]) if asked else set()
        self._late = {name: reply for name, reply in asked.items() if reply not in done}
        answers = [self._answer(name, asked[name]) for name in sorted(asked)]
        if self.router is not None and not answers:
            return [RouterAnswer(self.router, problem=_GONE)]
        return answers

    def _answer(self, name: str, reply: Any) -> RouterAnswer:
        if name in self._late:
            return RouterAnswer(name, problem=f"does not answer within {self.answer_s:g} s")
        try:
            status = ray.get(reply)
        except RayError as error:
            return RouterAnswer(name, problem=f"cannot answer: {str(error).strip().splitlines()[-1]}")
        if not _is_status(status):
            return RouterAnswer(name, problem="says how it is in a form that this version of laya does not know")
        return RouterAnswer(name, cast(RouterStatus, json.loads(json.dumps(status, default=_plain))))


def _actors() -> dict[str, Any]:
    """Router actors by name: what is named in the namespace without the ":" of agents, and can be asked for its status."""
    found = {}
    for listed in ray.util.list_named_actors(all_namespaces=True):
        name = listed["name"]
        if listed["namespace"] != NAMESPACE or ":" in name:
            continue
        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            continue  # it has ended meanwhile
        if hasattr(actor, "status"):
            found[name] = actor
    return found


def _is_status(found: Any) -> bool:
    """Whether an answer has what is drawn: a detached router outlives the version that it was started by."""
    return (
        isinstance(found, dict)
        and found.keys() >= RouterStatus.__required_keys__
        and all(replica.keys() >= ReplicaStatus.__required_keys__ for replica in found["replicas"])
        and all(node.keys() >= NodeStatus.__required_keys__ for node in found["nodes"])
    )


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def show_status(address: str | None, router: str | None, as_json: bool, interval_s: float, console: Console) -> None:
    """Prints what the routers of a running Ray do; on a terminal again and again, until Ctrl-C.

    Args:
        address: The Ray to join; None finds one here.
        router: Name of the only router to show; None shows all.
        as_json: Whether to print one JSON object, once.
        interval_s: Seconds between two looks.
        console: Where to print.

    Raises:
        InputError: No Ray answers, or there is no router of that name.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(ray_session(_running(address), num_cpus=0))
        except InputError as error:
            raise InputError(f"{error}; {_MEND}") from None
        reader = RouterReader(router)
        answers = reader.read()
        if router is not None and answers[0].problem == _GONE:
            others = ", ".join(sorted(_actors())) or "none"
            raise InputError(f"--router {router}: there is no router of that name; running: {others}")
        if as_json:
            console.out(json.dumps({"routers": [asdict(answer) for answer in answers]}), highlight=False)
        elif console.is_terminal:
            _watch(reader, answers, interval_s, console)
        else:
            console.print(tables(answers))


def _watch(reader: RouterReader, answers: Sequence[RouterAnswer], interval_s: float, console: Console) -> None:
    ended = resting = False

    def end(*_: Any) -> None:
        nonlocal ended
        ended = True
        if resting:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)  # raised in the midst of Ray, an interrupt may be lost there
    try:
        with Live(tables(answers), console=console, auto_refresh=False) as live:
            live.refresh()
            while not ended:
                resting = True
                time.sleep(interval_s)
                resting = False
                live.update(tables(reader.read()), refresh=True)
    finally:
        signal.signal(signal.SIGINT, before)
    raise KeyboardInterrupt


def _running(address: str | None) -> str:
    """The address of a Ray that runs. Without this, Ray would start one, or try for minutes to reach one that has ended."""
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address != "auto":
        return address
    try:
        return str(canonicalize_bootstrap_address(address))
    except ConnectionError:
        raise InputError("no Ray runs on this machine") from None
