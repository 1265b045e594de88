"""ClusterRouter on a real Ray: the same answers as one process, loading on demand, eviction that drains first."""

from __future__ import annotations

import math
import pickle
import threading
from collections import Counter

import pytest

import laya
from cluster import AgentLostError, ClusterRouter, Hosting, NoRoomError
from cluster.asking import RouterHandle

QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "delivery", "technical"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "middle", "high"]},
    "angry": {"type": "noul", "instructions": "The writer is angry"},
}
STATES = [
    "I was charged twice, give me my money back!",
    {"subject": "parcel", "body": "where is it?"},
    [{"role": "user", "content": "hello"}],
]
MODELS = {"a": "mini", "b": "mini", "c": "mini", "broken": "/no/such/folder"}


class Recorder(laya.BaseHook):
    def __init__(self):
        self.events = []

    def on_route(self, ctx):
        self.events.append(("route", ctx.decision["model"]))

    def on_predict_start(self, ctx):
        self.events.append(("start", ctx.model))

    def on_predict_end(self, ctx):
        self.events.append(("end", ctx.model))

    def on_error(self, ctx):
        self.events.append(("error", type(ctx.error).__name__))


class Lifecycle(laya.BaseHook):
    def __init__(self):
        self.events = []

    def on_load(self, ctx):
        self.events.append(("load", ctx.model))

    def on_evict(self, ctx):
        self.events.append(("evict", ctx.model))


@pytest.fixture(scope="module")
def router(ray_session):
    router = ClusterRouter(MODELS, max_loaded=2, default="a", name="test-router", num_cpus=1, min_residency_s=0.1)
    yield router
    router.close()


def test_answers_equal_those_of_one_process(router, mini):
    for state in STATES:
        here = mini.system_one(state, QUESTIONS)
        there = router.predict(state, QUESTIONS, model="a")
        assert there["answers"] == here["answers"]
        assert there["usage"] == here["usage"]
        assert there["routing"]["model"] == "a"


def test_a_batch_keeps_its_order_and_shares_passes(router, mini):
    requests = [{"state": state, "questions": QUESTIONS, "model": "a"} for state in STATES * 5]
    results = router.predict_batch(requests)
    expected = mini.predict_batch(STATES * 5, QUESTIONS)
    assert [result["answers"] for result in results] == [result["answers"] for result in expected]


def test_hooks_of_the_call_fire_here(router):
    recorder = Recorder()
    router.predict("hello", QUESTIONS, model="a", hooks=recorder)
    assert recorder.events == [("route", "a"), ("start", "a"), ("end", "a")]


def test_errors_arrive_with_their_class_and_fire_hooks(router):
    recorder = Recorder()
    with pytest.raises(ValueError, match="question 'x': type must be"):
        router.predict("hello", {"x": {"type": "bool"}}, model="a", hooks=recorder)
    assert recorder.events == [("route", "a"), ("start", "a"), ("error", "ValueError"), ("end", "a")]


def test_one_bad_request_leaves_its_neighbours_alone(router):
    good = {"state": "hello", "questions": QUESTIONS, "model": "a"}
    results = router.predict_batch([good, {**good, "state": None}, {**good, "questions": {"x": {}}}, good], return_exceptions=True)
    assert [type(result) for result in results] == [dict, TypeError, ValueError, dict]
    assert results[0]["answers"] == results[3]["answers"]


def test_a_checkpoint_that_cannot_be_built_says_why_and_takes_no_slot(router):
    for _ in range(2):
        with pytest.raises(laya.CheckpointError, match="/no/such/folder"):
            router.load("broken")
    assert "broken" not in router.loaded
    assert router.predict("hello", QUESTIONS, model="a")["answers"]


def test_long_documents(router, mini):
    text = "The parcel is late. " * 400
    assert router.predict_long(text, QUESTIONS, model="a")["answers"] == mini.predict_long(text, QUESTIONS)["answers"]


def test_it_travels_into_tasks(router, ray_session):
    @ray_session.remote(num_cpus=0)
    def ask(remote_router):
        return remote_router.predict("hello", QUESTIONS, model="a")["answers"]

    assert ray_session.get(ask.remote(router)) == router.predict("hello", QUESTIONS, model="a")["answers"]


def test_a_copy_finds_the_same_router_actor(router):
    copy = pickle.loads(pickle.dumps(router))
    assert copy.loaded == router.loaded


def test_an_attached_agent_stays_in_its_process_and_its_name_means_its_checkpoint_elsewhere(router, mini):
    router.attach("mine", mini)
    copy = pickle.loads(pickle.dumps(router))
    assert router.load("mine") is mini
    assert "mine" in router.loaded
    assert "mine" not in copy.loaded
    assert str(copy.table.sources["mine"]) == "mini"
    router.unload("mine")


def test_an_agent_of_the_cluster_takes_no_hooks(router):
    with pytest.raises(TypeError, match="on_predict_end= is not taken by an agent of a cluster"):
        router.load("a").predict("hello", QUESTIONS, on_predict_end=print)


@pytest.mark.slow
def test_the_least_recently_used_leaves_and_no_request_is_lost(router, mini):
    router.unload()
    lifecycle = Lifecycle()
    router.add_hook(lifecycle)
    router.load("a")
    router.load("b")  # both slots are taken
    expected = mini.system_one("hello", QUESTIONS)["answers"]
    failures = []

    def ask(model):
        for _ in range(2):
            answers = router.predict("hello", QUESTIONS, model=model)["answers"]
            if answers != expected:
                failures.append(answers)

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("a", "b", "c", "a")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    router.remove_hook(lifecycle)
    loads, evictions = (Counter(model for event, model in lifecycle.events if event == kind) for kind in ("load", "evict"))
    assert loads["c"] > 0
    assert sorted((loads - evictions).elements()) == sorted(router.loaded), lifecycle.events


@pytest.mark.slow
def test_an_event_is_told_once_to_the_client_that_it_happened_for(router):
    router.unload()
    other = pickle.loads(pickle.dumps(router))
    here, there = Lifecycle(), Lifecycle()
    router.add_hook(here)
    other.add_hook(there)
    router.load("a")
    other.load("b")
    other.load("c")  # a goes
    router.unload("b")
    other.load("c")
    router.remove_hook(here)
    assert here.events == [("load", "a"), ("evict", "b")]
    assert there.events == [("load", "b"), ("evict", "a"), ("load", "c")]


def test_scale_and_unload(router):
    router.unload()
    assert router.loaded == []
    router.scale("a", 2)
    ready = [replica for replica in router.status()["replicas"] if replica["state"] == "ready"]
    assert [replica["checkpoint"] for replica in ready] == ["a", "a"]
    router.unload("a")
    assert router.loaded == []


def test_another_shape_under_the_same_name_is_refused(router):
    with pytest.raises(ValueError, match="runs with 2 slots, not 5"):
        ClusterRouter(MODELS, max_loaded=5, name="test-router")


def test_without_its_router_actor_a_call_says_so(ray_session):
    router = ClusterRouter(MODELS, max_loaded=1, name="short-lived", num_cpus=1)
    ray_session.kill(router._router.actor, no_restart=True)
    with pytest.raises(AgentLostError, match="router actor 'short-lived' is gone"):
        router.predict("hello", QUESTIONS, model="a")
    router.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_loaded": 0},
        {"min_residency_s": 0},
        {"min_residency_s": math.nan},
        {"idle_s": None},
        {"busy_depth": "many"},
        {"capacity_bytes": "1GB"},
        {"strategy": "pack"},
        {"hosting": {"a": {"num_cpus": 1}}},
        {"hosting": {"a": Hosting(min_replicas=2, max_replicas=2)}, "max_loaded": 1},
        {"name": "agent:a"},
        {"preload": ["a", "b", "c"]},
        {"actor_hooks": ["tests.nowhere:Hook"]},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_and_leave_no_router(ray_session, wrong):
    told = {"hosting": "Hosting|min_replicas", "name": "must not be empty or contain ':'", "actor_hooks": "cannot be imported"}
    with pytest.raises(ValueError, match=told.get(next(iter(wrong)), next(iter(wrong)))):
        ClusterRouter(MODELS, **{"name": "never", **wrong})
    with pytest.raises(AgentLostError, match="there is no router actor 'never' any more"):
        RouterHandle("never")


@pytest.mark.parametrize("wrong", [{"min_replicas": 1.5}, {"max_replicas": 0}, {"size_bytes": -1}, {"min_replicas": 3, "max_replicas": 2}])
def test_a_hosting_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Hosting(**wrong)


@pytest.mark.parametrize("replicas", [-1, 1.5, True, "2"])
def test_replicas_are_a_whole_number(router, replicas):
    with pytest.raises(ValueError, match="whole number"):
        router.scale("a", replicas)


def test_more_replicas_than_there_is_room_for_are_refused(router):
    router.load("b")
    router.pin("b")
    with pytest.raises(NoRoomError, match="keeps"):
        router.scale("a", 2)
    router.unpin("b")
