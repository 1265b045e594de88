"""Processes that end when they should not: agents, the router actor, clients. Callers see nothing of it, and nothing is left behind."""

from __future__ import annotations

import _thread
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import laya
from cluster import AgentLostError, Hosting
from laya.deadlines import remaining_s
from tests.chaos.support import (
    AGENT,
    QUESTIONS,
    STATES,
    Counting,
    FileHook,
    Traffic,
    agree,
    answers_of,
    hook_path,
    in_flight,
    kill,
    listed_agents,
    lives,
    living_agents,
    losses,
    noted,
    pids_of,
    replicas_of,
    reserved,
    same,
    stand_in,
    stand_ins,
    within,
)
from tests.patience import LONG, start, until

ROOT = Path(__file__).parents[2]


def ask(router: Any, state: Any = STATES[0], model: str = "a") -> Any:
    return router.predict(state, QUESTIONS, model=model)["answers"]


def there_are(router: Any, count: int) -> bool:
    return len(pids_of(router, "a")) == count


class TestAgentsKilled:
    def test_in_mid_call_with_another_left_and_with_none(self, make_router, make_gate):
        router = make_router(["a", "b"], max_loaded=3)
        router.scale("a", 2)
        router.load("b")
        seen = Counting()
        router.add_hook(seen)
        with Traffic(router, stand_ins("a", "b")) as traffic:
            for others in (1, 0):
                if not others:
                    router.scale("a", 0)  # nothing but a call brings the last one back
                gate = make_gate()
                held = start(partial(ask, router, gate.state))
                gate.wait_for()
                (doomed,) = gate.pids()
                assert len(pids_of(router, "a")) == 1 + others
                kill(doomed)
                gate.open()
                assert same(held.result(LONG), stand_in("a", gate.state, QUESTIONS))
                traffic.wait_for(3)
                until(partial(there_are, router, 1 + others), "it is back")
                until(partial(lambda loads: seen.loads("a") == loads, 2 - others), "its load is told")
        assert (seen.starts, seen.ends, seen.errors) == (traffic.calls + 2, traffic.calls + 2, 0)
        assert [name for _, name in seen.lifecycle if name == "b"] == []
        until(lambda: agree(router), "the table is what lives")

    @pytest.mark.slow
    def test_real_ones_under_load(self, make_router, quiet_folder, mini):
        """Batches are cut wherever they are; the numbers are those of one process."""
        router = make_router(models={"a": quiet_folder, "b": "mini"}, max_loaded=3)
        answers = {"a": answers_of(laya.load(str(quiet_folder), device="cpu")), "b": answers_of(mini)}
        router.scale("a", 2)
        router.load("b")
        seen = Counting()
        router.add_hook(seen)
        with Traffic(router, answers) as traffic:
            traffic.wait_for(5)
            kill(pids_of(router, "a")[0])
            traffic.wait_for(5)
            until(lambda: len(pids_of(router, "a")) == 2, "both are there again")
            for pid in pids_of(router, "a"):
                kill(pid)
            traffic.wait_for(5)
        assert (seen.starts, seen.ends, seen.errors) == (traffic.calls, traffic.calls, 0)
        assert 1 <= seen.loads("a") <= 3
        assert seen.loads("b") == 0
        until(lambda: agree(router), "the table is what lives")


class TestClosed:
    def test_a_close_during_a_load_leaves_neither_agents_nor_reserved_slots(self, make_router, make_gate):
        gate = make_gate()
        hosting = {"a": Hosting(agent=AGENT, options={"load_gate": str(gate.path)})}
        router = make_router([], models={"a": "mini"}, hosting=hosting, max_loaded=2, strategy="PACK")
        asking = start(lambda: ask(router))
        gate.wait_for()
        assert reserved(router)
        (loading,) = gate.pids()
        router._router.ask("close")  # the first half of what a close does: the actor may live on for a moment
        until(lambda: not lives(loading), "the agent that was loading is dead")
        with laya.deadline(1.0), pytest.raises(laya.DeadlineExceededError):
            ask(router)
        assert not living_agents(router)
        assert not reserved(router)
        router.close()
        with pytest.raises(AgentLostError):
            asking.result(LONG)

    def test_a_deadline_that_has_passed_keeps_no_router_open(self, make_router):
        router = make_router(["a"])
        ask(router)
        (pid,) = pids_of(router, "a")
        with laya.deadline(0.001):
            until(lambda: remaining_s() == 0.0, "it has passed")
            router.close()
        until(lambda: not lives(pid), "its agent is gone")
        with pytest.raises(AgentLostError):
            ask(router)


class TestWhateverIsGiven:
    def test_names_in_any_script(self, make_router):
        router = make_router(["größe"], name="路由器")
        assert same(ask(router, model="größe"), stand_in("größe", STATES[0], QUESTIONS))
        router.unload("größe")
        assert router.loaded == []

    def test_hooks_of_an_agent_may_raise_anything(self, make_router, quiet_folder):
        hosting = {"a": Hosting(hooks=("tests.chaos.support:Stopping",))}
        router = make_router([], models={"a": quiet_folder}, hosting=hosting, max_loaded=1)
        for told in ("StopIteration", "SystemExit: 3"):
            with pytest.raises(RuntimeError, match=told):
                start(partial(ask, router, told)).result(LONG)
        assert ask(router)
        assert in_flight(router) == 0


class TestRouterKilled:
    @pytest.mark.slow
    def test_a_name_means_what_it_was_registered_for(self, make_router, tiny_folder):
        router = make_router(["a"])
        router.register("a", str(tiny_folder))
        pid = router.status()["pid"]
        kill(pid)
        until(lambda: router.status()["pid"] != pid, "it is back")
        ask(router)
        assert {one["report"]["id"]["source"]["location"] for one in replicas_of(router)} == {str(tiny_folder)}

    def test_calls_go_on_and_what_needs_it_waits(self, make_router, make_gate):
        router = make_router(["a", "b", "c"], max_loaded=4)
        router.scale("a", 2)
        router.load("b")
        router.pin("b")
        for _ in range(2):  # changes that the agents which stay are not told of
            router.load("c")
            router.unload("c")
        before, gate = router.status(), make_gate()
        epoch = router.load("a").place(fresh=True).epoch
        with Traffic(router, stand_ins("a", "b")) as traffic:
            traffic.wait_for(2)
            held = start(lambda: ask(router, gate.state))
            gate.wait_for()
            kill(before["pid"])
            waiting = [start(lambda: ask(router, model="c")), start(router.status), start(lambda: router.scale("a", 2))]
            traffic.wait_for(2)
            gate.open()
            assert same(held.result(LONG), stand_in("a", gate.state, QUESTIONS))
            assert same(waiting[0].result(LONG), stand_in("c", STATES[0], QUESTIONS))
            waiting[2].result(LONG)
            after = waiting[1].result(LONG)
            traffic.wait_for(2)
        assert after["restarted"]
        assert after["pid"] != before["pid"]
        assert (after["pinned"], after["wanted"]) == (before["pinned"], before["wanted"]) == (["b"], {"a": 2})
        ids = {model: set(replicas) for model, replicas in listed_agents(router).items()}
        assert {one["id"] for one in before["replicas"]} == ids["a"] | ids["b"]
        assert min(ids["c"]) > max(ids["a"] | ids["b"])
        assert router.load("a").place(fresh=True).epoch > epoch
        until(lambda: agree(router), "the table is what lives")

    @pytest.mark.slow
    def test_what_is_asked_of_it_before_it_knows_its_agents_again_waits(self, make_router):
        """Each is the first thing that a new process of it is asked."""
        router = make_router(["a", "b"], max_loaded=2)
        router.scale("a", 1)

        def reborn() -> None:
            pid = router.status()["pid"]
            kill(pid)

        asks: list[Callable[[], Any]] = [router.status, lambda: router.load("a"), lambda: router.pin("a"), lambda: router.loaded]
        for first in [*asks, lambda: router.scale("a", 1)]:
            before = listed_agents(router)
            reborn()
            first()
            assert listed_agents(router) == before
        assert router.status()["pinned"] == ["a"]
        reborn()
        router.unpin("a")
        assert router.status()["pinned"] == []
        reborn()
        router.unload("a")
        assert listed_agents(router) == living_agents(router) == {}
        router.load("b")
        (pid,) = pids_of(router, "b")
        reborn()
        router.close()
        until(lambda: not lives(pid), "its agent has ended with it", 4.0)

    @pytest.mark.slow
    def test_evicting_goes_on_as_before(self, make_router):
        router = make_router(["a", "b", "c", "d"], max_loaded=2)
        router.load("a")
        router.load("b")
        router.pin("a")
        kill(router.status()["pid"])
        with Traffic(router, stand_ins("a", "b", "c", "d"), threads=6) as traffic:
            traffic.wait_for(2)
        status = router.status()
        assert status["pinned"] == ["a"]
        assert status["evictions"] >= 2
        until(lambda: agree(router), "the table is what lives")

    @pytest.mark.slow
    def test_while_an_agent_loads_and_another_drains(self, make_router, make_gate):
        loading, call = make_gate(), make_gate()
        slow = {"slow": Hosting(agent=AGENT, options={"name": "slow", "load_gate": str(loading.path)})}
        router = make_router(["a"], models={"slow": "mini"}, hosting=slow, max_loaded=2)
        held = start(lambda: ask(router, call.state))
        call.wait_for()
        asked = start(lambda: ask(router, model="slow"))
        loading.wait_for()
        leaving = start(lambda: router.unload("a"))
        until(lambda: replicas_of(router, "a", "draining"), "a drains")
        kill(router.status()["pid"])
        assert until(lambda: replicas_of(router, "a", "draining"), "a drains still")
        assert not leaving.done()
        call.open()
        assert same(held.result(LONG), stand_in("a", call.state, QUESTIONS))
        leaving.result(LONG)
        assert "a" not in living_agents(router)
        loading.open()
        assert same(asked.result(LONG), stand_in("slow", STATES[0], QUESTIONS))
        assert loading.entered() == 1  # it was not loaded once more
        until(lambda: agree(router), "the table is what lives")


@pytest.mark.slow
class TestClientsKilled:
    @pytest.fixture
    def client(self, ray_session):
        @ray_session.remote(num_cpus=0, max_restarts=0, max_concurrency=4)
        class Client:
            def __init__(self, router):
                self.router = router

            def pid(self):
                import os

                return os.getpid()

            def ask(self, state, model):
                return self.router.predict(state, QUESTIONS, model=model)["answers"]

        return Client

    def test_in_mid_call(self, make_router, make_gate, client, ray_session):
        router, gate = make_router(["a"], max_loaded=1), make_gate()
        router.load("a")
        doomed = client.remote(router)
        pid = ray_session.get(doomed.pid.remote())
        doomed.ask.remote(gate.state, "a")
        gate.wait_for()
        assert in_flight(router) == 1
        kill(pid)
        assert same(ask(router), stand_in("a", STATES[0], QUESTIONS))
        leaving = start(lambda: router.unload("a"))
        until(lambda: replicas_of(router, "a", "draining"), "a drains")
        gate.open()
        leaving.result(LONG)
        assert router.status()["pinned"] == []
        assert living_agents(router) == {}

    def test_while_it_waits_for_a_checkpoint(self, make_router, make_gate, client, ray_session):
        gate = make_gate()
        slow = {"slow": Hosting(agent=AGENT, options={"name": "slow", "load_gate": str(gate.path)})}
        router = make_router(["a"], models={"slow": "mini"}, hosting=slow, max_loaded=1)
        doomed = client.remote(router)
        pid = ray_session.get(doomed.pid.remote())
        doomed.ask.remote(STATES[0], "slow")
        gate.wait_for()
        kill(pid)
        gate.open()
        assert same(ask(router), stand_in("a", STATES[0], QUESTIONS))  # for which the other has to go
        assert router.status()["waiting"] == {}
        assert in_flight(router) == 0


class TestCallsGivenUp:
    @pytest.fixture
    def slow(self, make_gate):
        gate = make_gate()
        return gate, {"slow": Hosting(agent=AGENT, options={"name": "slow", "load_gate": str(gate.path)})}

    def test_a_deadline_holds_while_the_agent_is_busy_with_the_call(self, make_router, make_gate):
        router, gate = make_router(["a"], max_loaded=1), make_gate()
        router.load("a")
        begun = time.monotonic()
        with pytest.raises(laya.DeadlineExceededError):
            within(0.3, lambda: ask(router, gate.state))
        assert time.monotonic() - begun < 10
        gate.wait_for()
        assert same(ask(router), stand_in("a", STATES[0], QUESTIONS))
        assert in_flight(router) == 1  # a drain has to wait for it
        gate.open()
        until(lambda: in_flight(router) == 0, "nothing is in flight")
        assert same(within(60, lambda: ask(router)), stand_in("a", STATES[0], QUESTIONS))

    @pytest.mark.slow
    def test_a_deadline_holds_while_a_checkpoint_loads_and_fails_nobody_else(self, make_router, slow):
        gate, hosting = slow
        router = make_router(models={"slow": "mini"}, hosting=hosting, max_loaded=1)
        begun = time.monotonic()
        other = pickle.loads(pickle.dumps(router))
        hasty = start(lambda: within(0.3, lambda: ask(other, model="slow")))
        until(lambda: hasty.done() or router.status()["waiting"], "it is the one for which the checkpoint is loaded")
        patient = [start(lambda: ask(router, model="slow")) for _ in range(3)]
        hasty_too = start(lambda: within(1.0, lambda: ask(router, model="slow")))
        for given_up in (hasty, hasty_too):
            assert isinstance(given_up.exception(LONG), laya.DeadlineExceededError)
        assert time.monotonic() - begun < 30
        gate.wait_for()
        assert not any(one.done() for one in patient)
        gate.open()
        for one in patient:
            assert same(one.result(LONG), stand_in("slow", STATES[0], QUESTIONS))
        until(lambda: in_flight(router) == 0, "nothing is in flight")
        assert router.status()["waiting"] == {}

    @pytest.mark.slow
    def test_an_interrupt_ends_the_call_of_its_thread_only(self, make_router, make_gate, slow):
        loading, hosting = slow
        router, call = make_router(["a"], models={"slow": "mini"}, hosting=hosting, max_loaded=2), make_gate()

        def interrupt_the_call() -> None:
            call.wait_for()
            _thread.interrupt_main()

        start(interrupt_the_call)
        with pytest.raises(KeyboardInterrupt):
            ask(router, call.state)
        call.open()
        until(lambda: in_flight(router) == 0, "nothing is in flight")
        others: list[Future[Any]] = []

        def interrupt_the_load() -> None:
            loading.wait_for()
            others.extend(start(lambda: ask(router, model="slow")) for _ in range(3))
            asked = router._remote_agents["slow"]._asked
            until(lambda: len(asked._condition._waiters) == 3, "they wait for what the main thread asks")
            _thread.interrupt_main()

        start(interrupt_the_load)
        with pytest.raises(KeyboardInterrupt):
            ask(router, model="slow")
        loading.open()
        assert [one.exception(LONG) for one in others] == [None] * 3
        for one in others:
            assert same(one.result(LONG), stand_in("slow", STATES[0], QUESTIONS))


class TestDevicesLost:
    def test_the_process_ends_and_the_call_is_answered_by_a_new_one(self, make_router, tmp_path):
        router = make_router(["a"], max_loaded=1)
        router.load("a")
        (pid,) = pids_of(router, "a")
        assert same(ask(router, state := losses(tmp_path / "once", 1)), stand_in("a", state, QUESTIONS))
        assert not lives(pid)
        assert pids_of(router, "a") != [pid]

    @pytest.mark.slow
    def test_what_ends_every_agent_is_told_and_ends_no_others(self, make_router, tmp_path):
        router = make_router(["a", "b"], max_loaded=2)
        seen = Counting()
        router.add_hook(seen)
        poison = tmp_path / "always"
        with Traffic(router, stand_ins("b"), threads=2) as traffic:
            state = losses(poison, 100)
            with pytest.raises(AgentLostError, match="3 agents died"):
                ask(router, state)
            assert len(list(poison.glob("left-*"))) == 97
            traffic.wait_for(3)
        assert same(ask(router), stand_in("a", STATES[0], QUESTIONS))
        assert seen.errors == 1
        assert seen.loads("b") == 1


ORPHANS = """
import os, sys
import ray
ray.init(address={address!r}, logging_level="error", log_to_driver=False)
from cluster import ClusterRouter, Hosting
hosting = {{"a": Hosting(agent={agent!r}, options={{"name": "a"}})}}
router = ClusterRouter({{"a": "mini"}}, name={name!r}, default="a", num_cpus=0.1, max_loaded=3, hosting=hosting, device="cpu")
{work}
print("pid", router.status()["pid"], flush=True)
os._exit(0)
"""

STARTING = """
import threading, time
threading.Thread(target=lambda: router.load("a"), daemon=True).start()
while not any("agent:" + router.name in actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)):
    time.sleep(0.001)
"""


@pytest.mark.slow
class TestOrphans:
    @pytest.mark.parametrize(
        "work",
        ["router.scale('a', 2)", STARTING],
        ids=["ready", "starting"],
    )
    def test_a_driver_that_exits_without_close_leaves_nothing(self, ray_session, work, request):
        name = f"chaos-orphans-{request.node.callspec.id}"
        script = ORPHANS.format(address=ray_session.get_runtime_context().gcs_address, agent=AGENT, name=name, work=work)
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        router_pid = int(done.stdout.split()[-1])
        until(lambda: not lives(router_pid), "its router actor has ended")

        def left() -> list[str]:
            listed = ray_session.util.list_named_actors(all_namespaces=True)
            return [actor["name"] for actor in listed if name in actor["name"]]

        until(lambda: not left(), "no actor of it is left", 60)


@pytest.mark.slow
class TestHooksElsewhere:
    def test_those_of_agents_fire_there_by_value_and_by_path(self, make_router, quiet_folder, tmp_path):
        by_value, by_path = tmp_path / "value", tmp_path / "path"
        hosting = {"a": Hosting(hooks=(FileHook(str(by_value)), hook_path(by_path)))}
        router = make_router(models={"a": quiet_folder}, hosting=hosting, max_loaded=1)
        for state in STATES:
            ask(router, state)
        (pid,) = pids_of(router, "a")
        for file in (by_value, by_path):
            events = Counter((event, int(process)) for event, _, process in noted(file))
            assert events == {("on_predict_start", pid): len(STATES), ("on_predict_end", pid): len(STATES)}

    def test_those_of_the_router_actor_hear_each_event_once_and_in_order(self, make_router, tmp_path):
        file = tmp_path / "heard"
        router = make_router(["a", "b", "c"], max_loaded=2, actor_hooks=[hook_path(file)])
        other = pickle.loads(pickle.dumps(router))
        here, there = Counting(), Counting()
        router.add_hook(here)
        other.add_hook(there)
        with ThreadPoolExecutor(6) as pool:
            turns = [(asked, model) for _ in range(2) for asked in (router, other) for model in "abc"]
            list(pool.map(lambda turn: ask(turn[0], model=turn[1]), turns))
        router.unload()
        until(lambda: len(noted(file)) == len(here.lifecycle) + len(there.lifecycle), "all is noted")
        events = [(event, model) for event, model, _ in noted(file)]
        assert Counter(events) == Counter(here.lifecycle) + Counter(there.lifecycle)
        resident: list[str] = []
        for event, model in events:
            (resident.append if event == "on_load" else resident.remove)(model)
            assert len(resident) == len(set(resident)) <= 2
        assert resident == []
        assert {process for *_, process in noted(file)} == {str(router.status()["pid"])}


@pytest.mark.slow
class TestReplicas:
    def test_a_third_gets_work_of_clients_that_knew_two_and_ask_for_nothing(self, make_router):
        router = make_router(["a"], max_loaded=3)
        router.scale("a", 2)
        client = pickle.loads(pickle.dumps(router))
        with Traffic(client, stand_ins("a")) as traffic:
            traffic.wait_for(20)
            calls, answered = router.status()["calls"], traffic.answered["a"]
            traffic.wait_for(100)
            assert router.status()["calls"] == calls
            router.scale("a", 3)
            traffic.wait_for(100)
            before = {one["id"]: one["report"]["requests"] for one in fresh(router)}
            traffic.wait_for(100)
            after = {one["id"]: one["report"]["requests"] for one in fresh(router)}
            assert router.status()["calls"] - calls <= 4  # two for the clients' placement, however many calls there were
        assert traffic.answered["a"] >= answered + 300
        assert len(after) == 3
        assert all(after[replica] > before[replica] for replica in after), (before, after)

    def test_load_brings_a_second_one_and_its_end_takes_it_away(self, make_router, make_gate):
        hosting = {"a": Hosting(agent=AGENT, options={"name": "a"}, max_replicas=2)}
        router, gate = make_router(models={"a": "mini"}, hosting=hosting, max_loaded=3, busy_depth=2.0, idle_s=1.0), make_gate()
        ask(router)
        (first,) = pids_of(router, "a")
        held = [start(lambda: ask(router, gate.state)) for _ in range(4)]
        until(lambda: len(pids_of(router, "a")) == 2, "a second one is there")
        assert not any(one.done() for one in held)
        gate.open()
        for one in held:
            one.result(LONG)
        until(lambda: len(replicas_of(router, "a")) == len(living_agents(router)["a"]) == 1, "one of them has left")
        assert router.status()["evictions"] == 1
        assert same(ask(router), stand_in("a", STATES[0], QUESTIONS))
        assert lives(first) or len(pids_of(router, "a")) == 1


def fresh(router: Any) -> list[dict[str, Any]]:
    """Replicas of a with what they have just said of themselves."""
    router.loaded  # noqa: B018 has them asked
    return replicas_of(router, "a")
