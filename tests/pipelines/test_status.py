"""`laya status`: what is drawn of a router's state, and how it is fetched from a running Ray."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines import status as status_module
from pipelines.errors import InputError
from pipelines.status import RouterReader, show_status
from pipelines.status_tables import RouterAnswer, tables

ROOT = Path(__file__).parents[2]
NODES = ("aaaaaaaa" + "0" * 48, "bbbbbbbb" + "0" * 48)


def replica(number: int, checkpoint: str = "english", node: str | None = NODES[0], **changed: Any) -> dict[str, Any]:
    report = {
        "in_flight": 3,
        "idle_s": 0.0,
        "requests": 1_234,
        "states": 5,
        "input_tokens": 7,
        "waiting_rows": 42,
        "rss_bytes": 1_900_000_000,
    }
    found = {"id": number, "checkpoint": checkpoint, "state": "ready", "ready_s": 200.0, "bytes": 595_000_000, "node": node}
    return {**found, "pid": 4_000_000 + number, "tokens_per_s": 123_456.0, "report": report, **changed}


def loading(number: int, checkpoint: str) -> dict[str, Any]:
    return replica(number, checkpoint, state="loading", ready_s=None, bytes=0, node=None, pid=None, tokens_per_s=0.0, report=None)


def state(*replicas: dict[str, Any], **changed: Any) -> Any:
    found = {"router": "router", "slots": 4, "slots_open": 3, "capacity_bytes": 8_000_000_000, "resident_bytes": 1_190_000_000}
    found |= {"loads": 12, "evictions": 5, "restarted": False, "calls": 6_789, "waiting": {}, "pinned": [], "wanted": {}}
    found |= {"nodes": [{"id": NODES[0], "address": "10.0.0.5", "state": "alive"}], "replicas": list(replicas)}
    return found | changed


DEAD_NODE = [{"id": NODES[0], "address": "10.0.0.5", "state": "alive"}, {"id": NODES[1], "address": "10.0.0.6", "state": "dead"}]
STATES = {
    "empty": state(nodes=[], capacity_bytes=None, resident_bytes=0),
    "loading": state(loading(0, "typed-decisions"), waiting={"typed-decisions": 7}, wanted={"typed-decisions": 1}),
    "dead node": state(replica(0), replica(1, "multilingual", NODES[1], state="draining"), nodes=DEAD_NODE, pinned=["english"]),
    "many": state(*(replica(number, f"checkpoint-{number}", report=None) for number in range(64)), slots=64, slots_open=64),
    "long names": state(replica(0, "/home/somebody/checkpoints/of/last/year/my-very-own-checkpoint"), replica(1_000_000)),
}


def drawn(*answers: RouterAnswer, width: int = 140) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(tables(answers))
    return console.export_text()


def cells(text: str, first: str) -> list[str]:
    """The words of the one line that begins with a word."""
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [first]]
    return line.split()


@pytest.mark.parametrize("width", [80, 96, 140])
@pytest.mark.parametrize("name", STATES)
def test_nothing_is_cut_or_wraps_at_usual_widths(name: str, width: int) -> None:
    text = drawn(RouterAnswer("score-0123456789ab", STATES[name]), width=width)
    assert "…" not in text
    assert drawn(RouterAnswer("score-0123456789ab", STATES[name]), width=width + 500).count("\n") == text.count("\n")
    assert max(map(len, text.splitlines())) <= width


def test_the_head_tells_slots_memory_and_counts() -> None:
    text = drawn(RouterAnswer("mine", STATES["dead node"]))
    assert "router mine  slots 2 used, 3 open, 4 configured\n" in text
    assert "weights 1.2 GB of 8.0 GB; calls 6,789, loads 12, evictions 5; 0 waiting" in text


def test_a_router_that_is_empty_has_no_tables() -> None:
    assert drawn(RouterAnswer("mine", STATES["empty"])).splitlines() == [
        "router mine  slots 0 used, 3 open, 4 configured",
        "weights 0 B; calls 6,789, loads 12, evictions 5; 0 waiting",
    ]


def test_a_router_that_was_restarted_says_so() -> None:
    assert "restarted" in drawn(RouterAnswer("mine", state(restarted=True))).splitlines()[0]


def test_what_loads_has_no_numbers_yet_and_who_waits_is_told() -> None:
    text = drawn(RouterAnswer("mine", STATES["loading"]))
    assert "7 waiting" in text
    assert cells(text, "typed-decisions") == ["typed-decisions", "1", "0", "1", "0", "7", "0", "B"]
    assert cells(text, "0") == ["0", "typed-decisions", "loading", *"-----", "-", "0", "-", "0", "B"]


def test_nodes_and_checkpoints() -> None:
    text = drawn(RouterAnswer("mine", STATES["dead node"]))
    assert cells(text, "aaaaaa") == ["aaaaaa", "10.0.0.5", "alive", "1"]
    assert cells(text, "bbbbbb") == ["bbbbbb", "10.0.0.6", "dead", "1"]
    assert cells(text, "english") == ["english", "0", "1", "0", "0", "0", "595", "MB", "pinned"]
    assert cells(text, "multilingual") == ["multilingual", "0", "0", "0", "1", "0", "595", "MB"]


def test_replicas_with_their_total() -> None:
    text = drawn(RouterAnswer("mine", STATES["dead node"]))
    ready = ["0", "english", "ready", "aaaaaa", "4000000", "3m", "3", "42", "1,234", "123k", "1.9", "GB", "595", "MB"]
    assert cells(text, "0") == ready
    assert cells(text, "1")[1:4] == ["multilingual", "draining", "bbbbbb"]
    assert cells(text, "total") == ["total", "6", "84", "2,468", "247k", "3.8", "GB", "1.2", "GB"]


def test_a_narrow_terminal_leaves_out_pids_and_weights() -> None:
    assert cells(drawn(RouterAnswer("mine", STATES["dead node"]), width=80), "0") == [
        *["0", "english", "ready", "aaaaaa", "3m", "3", "42", "1,234", "123k", "1.9", "GB"],
    ]


def test_many_replicas_have_a_line_each() -> None:
    text = drawn(RouterAnswer("mine", STATES["many"]), width=80)
    assert [cells(text, str(number))[1] for number in range(64)] == [f"checkpoint-{number}" for number in range(64)]


def test_a_long_name_keeps_its_end() -> None:
    assert cells(drawn(RouterAnswer("mine", STATES["long names"]), width=80), "0")[1] == "...wn-checkpoint"


def test_names_are_neither_markup_nor_control_characters() -> None:
    text = drawn(RouterAnswer("mine", state(replica(0, "[red]a[/red]"), replica(1, "b\x1b[2J"))), RouterAnswer("[bold]"))
    assert cells(text, "0")[1] == "[red]a[/red]"
    assert cells(text, "1")[1] == r"'b\x1b[2J'"
    assert "router [bold]" in text


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0 B"), (999, "999 B"), (9_949, "9.9 kB"), (9_951, "10 kB"), (999_499, "999 kB"), (999_500, "1.0 MB")]
)
def test_sizes(value: int, told: str) -> None:
    assert f"weights {told} of" in drawn(RouterAnswer("mine", state(resident_bytes=value)))


@pytest.mark.parametrize(("age_s", "told"), [(0.4, "0s"), (119.0, "119s"), (120.0, "2m"), (7_200.0, "2h"), (864_000.0, "10d")])
def test_ages(age_s: float, told: str) -> None:
    assert cells(drawn(RouterAnswer("mine", state(replica(0, ready_s=age_s)))), "0")[5] == told


def test_no_router_says_what_starts_one() -> None:
    assert "ClusterRouter" in drawn()


@dataclass
class Report:
    in_flight: int


class Stub:
    """A router actor, as far as its status goes."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._release = asyncio.Event()
        self._asked = 0

    async def status(self) -> Any:
        self._asked += 1
        if self._answer == "late":
            await self._release.wait()
            self._answer = state(router="late")
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def release(self) -> int:
        """Lets a late answer go, and tells how often it was asked for."""
        self._release.set()
        return self._asked


class NoRouter:
    def other(self) -> None:
        """Has no status."""


@contextmanager
def running(ray: Any, actor_class: Any, name: str, *arguments: Any, namespace: str = "laya") -> Any:
    actor = ray.remote(actor_class).options(name=name, namespace=namespace, num_cpus=0).remote(*arguments)
    ray.get(actor.__ray_ready__.remote())
    try:
        yield actor
    finally:
        ray.kill(actor)


@pytest.fixture
def name() -> str:
    """Of a router actor; other tests of this Ray may have theirs."""
    return f"status-{uuid.uuid4().hex}"


def test_a_router_is_found_by_its_namespace_and_asked(ray_session: Any, name: str) -> None:
    said = state(replica(0, report=Report(4)), router=name)
    with (
        running(ray_session, Stub, name, said),
        running(ray_session, Stub, f"agent:{name}:english:0", said),
        running(ray_session, NoRouter, f"{name}-other"),
        running(ray_session, Stub, f"{name}-elsewhere", said, namespace="elsewhere"),
    ):
        answers = [answer for answer in RouterReader().read() if name in answer.router]
    wanted = copy.deepcopy(said)
    wanted["replicas"][0]["report"] = {"in_flight": 4}
    assert answers == [RouterAnswer(name, wanted)]


def test_a_router_that_does_not_answer_is_shown_and_asked_for_no_second_time(ray_session: Any, name: str) -> None:
    reader = RouterReader(name, answer_s=0.1)
    with running(ray_session, Stub, name, "late") as actor:
        late = [RouterAnswer(name, problem="does not answer within 0.1 s")]
        assert reader.read() == late
        (reply,) = reader._late.values()
        assert reader.read() == late
        assert ray_session.get(actor.release.remote()) == 1
        ray_session.wait([reply])
        assert reader.read() == [RouterAnswer(name, state(router="late"))]
    assert reader.read() == [RouterAnswer(name, problem="it is not there")]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (LookupError("broken inside"), "broken inside"),
        ({"slots": 4}, "this version of laya does not know"),
        (state({"id": 0}), "this version of laya does not know"),
        (7, "this version of laya does not know"),
    ],
    ids=["raises", "other keys", "other replicas", "no status"],
)
def test_a_router_that_answers_badly_is_shown(ray_session: Any, name: str, said: Any, problem: str) -> None:
    with running(ray_session, Stub, name, said):
        (answer,) = RouterReader(name).read()
    assert answer.status is None
    assert problem in (answer.problem or "")
    assert "\n" not in (answer.problem or "")


def test_without_a_ray_none_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where Ray notes that one runs
    monkeypatch.setattr(status_module, "ray_session", lambda *_, **__: pytest.fail("a Ray would be started"))
    with pytest.raises(InputError, match=r"no Ray runs on this machine; .*--address HOST:PORT.*ray start --head"):
        show_status(None, None, False, 1.0, Console())


def test_which_ray_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "canonicalize_bootstrap_address", lambda address: "found:1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert [status_module._running(address) for address in (None, "auto", "given:2")] == ["found:1", "found:1", "given:2"]
    monkeypatch.setenv("RAY_ADDRESS", "ray://named:3")
    assert [status_module._running(address) for address in (None, "given:2")] == ["ray://named:3", "given:2"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pipelines", "status", *arguments]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=120)


@pytest.fixture
def address(ray_session: Any) -> str:
    return str(ray_session.get_runtime_context().gcs_address)


def test_the_command_prints_json_or_tables_once(ray_session: Any, address: str, name: str) -> None:
    said = state(replica(0), router=name)
    with running(ray_session, Stub, name, said):
        as_json = run("--address", address, "--router", name, "--json")
        as_tables = run("--router", name, RAY_ADDRESS=address, COLUMNS="80")
        unknown = run("--address", address, "--router", "nonesuch")
    assert as_json.returncode == 0, as_json.stderr
    assert json.loads(as_json.stdout) == {"routers": [{"router": name, "status": said, "problem": None}]}
    assert as_tables.returncode == 0, as_tables.stderr
    assert as_tables.stdout == drawn(RouterAnswer(name, said), width=80)
    assert unknown.returncode == 2
    (line,) = unknown.stderr.splitlines()
    assert "--router nonesuch" in line
    assert name in line


def test_on_a_terminal_it_goes_on_until_ctrl_c(ray_session: Any, address: str, name: str) -> None:
    here, there = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "50"}
    with running(ray_session, Stub, name, state(router=name)):
        process = subprocess.Popen(
            command("--address", address, "--router", name, "--interval", "0.1"),
            stdin=there,
            stdout=there,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        os.close(there)
        shown = b""
        while shown.count(f"router {name}".encode()) < 3:
            shown += os.read(here, 4096)  # raises when the process ends
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # what it still draws is read to its end, else it would wait for a reader
            while os.read(here, 4096):
                pass
        _, error = process.communicate(timeout=60)
    os.close(here)
    assert process.returncode == 130, error
    assert error.strip() == b""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--address 127.0.0.1:1", "127.0.0.1:1"),
        ("--address 127.0.0.1:1", "`ray start --head`"),
        ("--interval 0", "--interval"),
        ("router", "router"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(line: str, told: str) -> None:
    done = run(*line.split())
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_help_teaches() -> None:
    done = run("--help")
    assert done.returncode == 0
    for told in ("--address", "--router", "--interval", "--json", "Ctrl-C", "laya status --address"):
        assert told in done.stdout
