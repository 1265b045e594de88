"""How a client remembers where a checkpoint is, without a cluster: one thread asks, the others wait, and failures are forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from cluster.asking import RouterHandle
from cluster.messages import LifecycleEvent, Placement, RouterReply
from cluster.remote_agent import RemoteAgent
from laya.names import find_source


class RouterStub:
    """A router actor whose answers the test decides; what it is asked is counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.touched = 0
        self.answers: list[Callable[[], RouterReply[Placement]]] = []
        self._lock = threading.Lock()

    def ask(self, method: str, *arguments: Any) -> Any:
        if method == "touch":
            self.touched += 1
            return None
        with self._lock:
            self.asked += 1
            answer = self.answers.pop(0)
        return answer()


def placed(*events: LifecycleEvent) -> Callable[[], RouterReply[Placement]]:
    return lambda: RouterReply(Placement(1, {0: object()}), None, list(events))


def remote_agent(router: RouterStub, told: Callable[[Any], None]) -> RemoteAgent:
    return RemoteAgent(cast("RouterHandle", router), "english", find_source("english"), told)


@pytest.fixture
def router() -> RouterStub:
    return RouterStub()


@pytest.fixture
def told() -> list[LifecycleEvent]:
    return []


@pytest.fixture
def agent(router: RouterStub, told: list[LifecycleEvent]) -> RemoteAgent:
    return remote_agent(router, told.extend)


def test_what_is_known_is_not_asked_again_unless_it_must_be(agent: RemoteAgent, router: RouterStub) -> None:
    router.answers = [placed(), placed()]
    first = agent.place()
    assert agent.place() is first
    assert router.asked == 1
    assert agent.place(fresh=True) is not first
    assert router.asked == 2


@pytest.mark.parametrize("fresh", [False, True])
def test_threads_that_ask_meanwhile_wait_for_the_same_answer(agent: RemoteAgent, router: RouterStub, fresh: bool) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow() -> RouterReply[Placement]:
        entered.set()
        assert release.wait(30)
        return placed()()

    router.answers = [slow]
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(agent.place, fresh)
        assert entered.wait(30)
        others = [threads.submit(agent.place, fresh) for _ in range(3)]
        release.set()
        assert {id(other.result(30)) for other in others} == {id(first.result(30))}
    assert router.asked == 1


def test_a_failure_reaches_who_waits_and_the_next_one_asks_again(agent: RemoteAgent, router: RouterStub) -> None:
    router.answers = [lambda: RouterReply(None, ValueError("broken")), placed()]
    with pytest.raises(ValueError, match="broken"):
        agent.place()
    assert agent.place().agents
    assert router.asked == 2


def test_leaving_forgets_only_the_placement_that_was_used(agent: RemoteAgent, router: RouterStub) -> None:
    router.answers = [placed(), placed()]
    old = agent.place()
    new = agent.place(fresh=True)
    agent._drop(old)
    assert agent.place() is new
    assert router.asked == 2


def test_events_are_told_also_of_a_load_that_failed(agent: RemoteAgent, router: RouterStub, told: list[LifecycleEvent]) -> None:
    gone = LifecycleEvent("on_evict", "multilingual")
    router.answers = [lambda: RouterReply(None, ValueError("broken"), [gone])]
    with pytest.raises(ValueError, match="broken"):
        agent.place()
    assert told == [gone]


def test_a_hook_that_fails_never_hides_why_the_load_failed(router: RouterStub) -> None:
    def fail(events: Any) -> None:
        raise KeyError("hook")

    agent = remote_agent(router, fail)
    router.answers = [lambda: RouterReply(None, ValueError("broken"), [LifecycleEvent("on_evict", "multilingual")])]
    with pytest.raises(ValueError, match="broken") as caught:
        agent.place()
    assert caught.value.__notes__ == ["a lifecycle hook failed too: KeyError: 'hook'"]
