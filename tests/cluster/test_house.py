"""The house between its rules and its agents: orders of events that a cluster rarely shows, over agents that answer what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError

import cluster.fleet
import cluster.house
from cluster.fleet import Agent, Fleet
from cluster.hosting import Hosting, RouterConfig
from cluster.house import House
from cluster.messages import AgentId, AgentReport, Loaded, Notice
from laya.names import find_source

SOURCE = find_source("mini")


class Actor:
    """An actor's handle whose process answers at once, but for the methods that a test says something else of."""

    def __init__(self, id: AgentId, **acts: Callable[[], Awaitable[Any]]) -> None:  # noqa: A002 the field's name everywhere else
        self.id = id
        self.acts = acts
        self.killed = False
        self.notices: list[Notice] = []

    def __getattr__(self, method: str) -> Any:
        async def answer(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            if method in self.acts:
                return await self.acts[method]()
            if self.killed:
                raise ActorDiedError
            match method:
                case "load":
                    return Loaded(60)
                case "describe":
                    return report(self.id)
                case "notice":
                    self.notices += arguments
            return None

        return type("Method", (), {"remote": staticmethod(lambda *arguments: asyncio.ensure_future(answer(*arguments)))})


def report(id: AgentId, **given: Any) -> AgentReport:  # noqa: A002
    zero: dict[str, Any] = dict.fromkeys(("in_flight", "requests", "states", "moved", "input_tokens", "waiting_rows", "rss_bytes"), 0)
    said = {"id": id, "node": "n", "pid": 1, "loaded": True, "draining": False, "idle_s": 0.0, "forward_s": 0.0, "notice": Notice()}
    return AgentReport(**{**zero, **said, "size_bytes": 60, "token_budget": 0, **given})


def config(slots: int = 2, **given: Any) -> RouterConfig:
    said: dict[str, Any] = {"sources": dict.fromkeys("abc", SOURCE), "hosting": {}, "agent_options": {}, "strategy": None, "hooks": ()}
    rest: dict[str, Any] = {"device": None, "token": None, "threads": 1, "capacity_bytes": None, "busy_depth": 4.0, "idle_s": 60.0}
    return RouterConfig(**{"name": "r", "slots": slots, "min_residency_s": 0.1, **said, **rest, **given})


@pytest.fixture
def acts(monkeypatch):
    """What actors do instead of answering, by "checkpoint.method"; the fleet starts such ones, and Ray's kill ends them."""
    acts: dict[str, Callable[[], Awaitable[Any]]] = {}

    def start(fleet: Fleet, id: AgentId, placing: dict[str, Any]) -> None:  # noqa: A002
        mine = {method: act for known, act in acts.items() for name, _, method in [known.partition(".")] if name == id.checkpoint}
        fleet.agents[id.replica] = Agent(id, Actor(id, **mine))

    monkeypatch.setattr(Fleet, "start", start)
    monkeypatch.setattr(ray, "kill", lambda handle, no_restart: setattr(handle, "killed", no_restart))
    return acts


def raising(error: BaseException) -> Callable[[], Awaitable[Any]]:
    async def act() -> Any:
        raise error

    return act


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def time_passes(house: House, until: Callable[[], Any]) -> None:
    while not until():
        house.perform(house.residency.advance())
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("ray_session")
class TestHouse:
    def test_an_agent_that_cannot_be_closed_is_ended_all_the_same(self, acts):
        acts["a.close"] = raising(RayTaskError("close", "its traceback", AttributeError("no close")))

        async def scenario() -> None:
            house = House(config(slots=1))
            await house.placed("a")
            actor = house.fleet.agents[0].handle
            placed = asyncio.ensure_future(house.placed("b"))
            await time_passes(house, placed.done)
            assert list(placed.result().agents) == [1]
            assert actor.killed
            assert house.has_left(0)

        play(scenario)

    def test_one_that_the_system_ended_for_its_memory_is_dead(self, acts):
        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            house.fleet.agents[0].handle.acts["describe"] = raising(OutOfMemoryError("killed by the memory monitor"))
            await house.looks.at([0])
            assert not house.residency.ready("a")
            assert not house.has_left(0)
            assert list((await house.placed("a")).agents) == [1]

        play(scenario)

    def test_a_load_that_ends_as_its_slot_goes_is_begun_anew(self, acts):
        loads: list[asyncio.Future[Loaded]] = []

        async def load() -> Loaded:
            loads.append(asyncio.get_running_loop().create_future())
            return await loads[-1]

        acts["b.load"] = load

        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            placed = asyncio.ensure_future(house.placed("b"))
            await time_passes(house, lambda: loads)
            loads[0].set_result(Loaded(60))
            house.perform(house.residency.resize(1))  # before the house has heard that the load has ended
            house.perform(house.residency.resize(2))
            await time_passes(house, lambda: len(loads) == 2)
            assert house.done["loads"] == 1
            assert not placed.done()
            loads[1].set_result(Loaded(60))
            assert list((await placed).agents) == [2]

        play(scenario)

    def test_an_agent_that_is_out_of_reach_holds_up_nobody_who_needs_no_room(self, acts, monkeypatch):
        async def scenario() -> None:
            monkeypatch.setattr(cluster.house, "_PATIENCE_S", 60.0)
            house = House(config())
            await house.placed("a")
            hung = asyncio.Event()
            house.fleet.agents[0].handle.acts["describe"] = hung.wait
            looking = asyncio.ensure_future(house.looks.at([0]))
            await house.placed("b")
            assert not looking.done()
            await house.looks.at([0], within_s=0.01)
            hung.set()
            await looking

        play(scenario)

    def test_who_asks_how_an_agent_is_shares_the_look_that_is_under_way(self, acts):
        looks = 0

        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            agent = house.fleet.agents[0]

            async def describe() -> AgentReport:
                nonlocal looks
                looks += 1
                await asyncio.sleep(0.01)
                return report(agent.id)

            agent.handle.acts["describe"] = describe
            await asyncio.gather(*(house.looks.at([0]) for _ in range(5)))
            assert looks == 1
            await house.looks.at([0])
            assert looks == 2

        play(scenario)

    def test_one_that_is_being_closed_has_left_in_good_order(self, acts):
        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            closed, actor = asyncio.Event(), house.fleet.agents[0].handle
            actor.acts["close"] = closed.wait
            house.perform(house.residency.release("a"))
            await time_passes(house, lambda: house._closing)
            actor.acts["describe"] = raising(ActorDiedError())
            await house.looks.at([0])
            assert house.has_left(0)
            closed.set()

        play(scenario)

    def test_a_request_that_is_given_up_leaves_no_trace_in_the_diary(self, acts):
        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            emptied = asyncio.Event()
            house.fleet.agents[0].handle.acts["drain"] = emptied.wait
            leaving = asyncio.ensure_future(house.see_off([0], house.residency.release("a")))
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            emptied.set()
            await time_passes(house, lambda: not house.residency.replicas)
            assert [event.event for event in house.diary.take("a")] == ["on_load", "on_evict"]

        play(scenario)

    def test_a_closed_house_begins_nothing(self, acts):
        async def scenario() -> None:
            house = House(config())
            placed = asyncio.ensure_future(house.placed("a"))
            await asyncio.sleep(0)
            house.close()
            await asyncio.sleep(0.05)
            assert not house.fleet.agents
            placed.cancel()

        play(scenario)

    def test_what_a_name_was_registered_for_is_known_in_a_later_life(self, acts):
        other = find_source("tests/goldens/tiny")

        async def scenario() -> None:
            House(config(name="registered")).register("a", other)
            later = House(config(name="registered"))
            await later.open(restarted=True)
            assert (later.sources["a"], later.sources["b"]) == (other, SOURCE)
            anew = House(config(name="registered"))
            await anew.open(restarted=False)
            assert anew.sources["a"] == SOURCE
            again = House(config(name="registered"))
            await again.open(restarted=True)
            assert again.sources["a"] == SOURCE

        play(scenario)

    @pytest.mark.parametrize(("least_described", "least_told", "living"), [(0, 0, 2), (1, 0, 1), (0, 2, 2)])
    def test_a_later_life_keeps_what_scale_asked_for(self, acts, monkeypatch, least_described, least_told, living):
        ids = [AgentId("r", replica, "a", SOURCE) for replica in range(living)]
        found = [Agent(one, Actor(one), report(one, notice=Notice(5, least_told))) for one in ids]

        async def find(fleet: Fleet) -> list[Agent]:
            return found

        monkeypatch.setattr(Fleet, "find", find)

        async def scenario() -> None:
            house = House(config(hosting={"a": Hosting(min_replicas=least_described)}))
            await house.open(restarted=True)
            assert house.residency.book.guest("a").least == least_told
            assert [replica.id for replica in house.residency.ready("a")] == list(range(living))

        play(scenario)

    def test_replicas_that_take_requests_are_of_one_checkpoint_whatever_its_name_means_by_now(self, acts):
        other = find_source("tests/goldens/tiny")

        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            house.register("a", other)
            house.perform(house.residency.scale("a", 2))
            await time_passes(house, lambda: len(house.residency.ready("a")) == 2)
            assert {agent.id.source for agent in house.fleet.agents.values()} == {SOURCE}
            emptied = asyncio.Event()
            for agent in house.fleet.agents.values():
                agent.handle.acts["drain"] = emptied.wait
            house.perform(house.residency.release("a"))
            placed = asyncio.ensure_future(house.placed("a"))
            emptied.set()
            await time_passes(house, placed.done)
            assert [agent.id.source for agent in house.fleet.agents.values()] == [other]

        play(scenario)

    def test_a_load_that_nobody_waits_for_any_more_is_stopped_by_an_unload(self, acts):
        acts["a.load"] = asyncio.Event().wait

        async def scenario() -> None:
            house = House(config(slots=1))
            placed = asyncio.ensure_future(house.placed("a"))
            await time_passes(house, lambda: house.fleet.agents)
            placed.cancel()
            await asyncio.sleep(0.01)
            actor = house.fleet.agents[0].handle
            await house.see_off([0], house.residency.release("a"))
            assert actor.killed
            assert list((await house.placed("b")).agents) == [1]

        play(scenario)

    def test_an_agent_that_is_silent_for_too_long_counts_as_dead(self, acts, monkeypatch):
        monkeypatch.setattr(cluster.fleet, "ANSWER_S", 0.01)
        monkeypatch.setattr(cluster.fleet, "_SILENT_S", 0.1)

        async def scenario() -> None:
            house = House(config())
            await house.placed("a")
            house.fleet.agents[0].handle.acts["describe"] = asyncio.Event().wait
            await house.looks.at([0])
            assert house.residency.ready("a")
            while house.residency.ready("a"):
                await house.looks.at([0])
            assert not house.fleet.agents

        play(scenario)

    def test_what_is_to_be_kept_and_never_can_be_fails_who_waits_for_it(self, acts):
        async def scenario() -> None:
            house = House(config(capacity_bytes=100, hosting={"a": Hosting(min_replicas=2, max_replicas=2, size_bytes=60)}))
            house.perform(house.residency.describe("a", 2, 2, 60))
            await house.until(lambda: "a" in house.failures)
            assert "100 bytes, each needs 60" in str(house.failures["a"])

        play(scenario)
