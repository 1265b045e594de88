"""The Router: which checkpoints are resident, and calls that are routed first."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

import laya
from laya.hooks import PredictContext, add_default_hook

SOON = 10.0  # seconds within which nothing here may still be waiting
ENGLISH = "What was the total on the invoice that you sent me?"
GERMAN = "ich habe die rechnung doppelt bezahlt und will das geld wieder haben"
REFUND: dict[str, Any] = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}
URGENCY: dict[str, Any] = {"urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "now"]}}

MakeRouter = Callable[..., laya.Router]


@pytest.fixture
def make_router(quiet_folder: Path) -> MakeRouter:
    """Makes Routers whose every checkpoint is the golden one, on the CPU."""

    def make(models: dict[str, Any] | None = None, **options: Any) -> laya.Router:
        here = dict.fromkeys(("english", "multilingual", "typed-decisions", "a", "b", "c"), quiet_folder)
        return laya.Router(models=here | (models or {}), device="cpu", **options)

    return make


@contextmanager
def thread(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Runs work on a thread that is over when the block is."""
    running = threading.Thread(target=work, daemon=True)
    running.start()
    yield running
    running.join(SOON)
    assert not running.is_alive()


class SlowHub:
    """Stands in for the hub's client: a download begins, and ends when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = threading.Event()
        self.go = threading.Event()
        self.calls = 0

    def __call__(self, repo_id: str, **options: Any) -> str:
        self.calls += 1
        self.asked.set()
        assert self.go.wait(SOON)
        return str(self.folder)


@pytest.fixture
def slow_hub(quiet_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowHub]:
    hub = SlowHub(quiet_folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    yield hub
    hub.go.set()


def models_of(hook: Any) -> list[tuple[str, str | None]]:
    return [(event, ctx.model) for event, ctx in hook.seen]


class TestLoad:
    def test_on_first_use_and_once(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        assert router.loaded == []
        agent = router.load("english")
        assert isinstance(agent, laya.Agent)
        assert router.load("english") is agent
        assert router.load("en") is agent
        assert router.loaded == ["english"]
        assert hook.events == ["on_load"]

    def test_what_on_load_and_on_evict_are_given(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        agent = router.load("multi")
        router.unload("multilingual")
        load, evict = (ctx for _, ctx in hook.seen)
        for ctx in (load, evict):
            assert (ctx.states, ctx.questions, ctx.model, ctx.router) == ([], {}, "multilingual", router)
            assert [ctx.results, ctx.decision, ctx.usage, ctx.elapsed_ms, ctx.error] == [None] * 5
        assert (load.agent, evict.agent) == (agent, None)

    def test_an_unknown_name(self, make_router: MakeRouter) -> None:
        with pytest.raises(ValueError, match="nonesuch"):
            make_router().load("nonesuch")

    @pytest.mark.parametrize("max_loaded", [0, -1, 1.5, "2", True, None])
    def test_max_loaded_is_a_positive_number(self, max_loaded: Any, make_router: MakeRouter) -> None:
        with pytest.raises(ValueError, match="max_loaded"):
            make_router(max_loaded=max_loaded)

    def test_a_failed_build_leaves_nothing_behind(self, make_router: MakeRouter, make_hook: Any, quiet_folder: Path) -> None:
        hook = make_hook()
        router = make_router({"a": "/no/such/folder"}, hooks=hook)
        for _ in range(2):
            with pytest.raises(laya.CheckpointError, match="/no/such/folder"):
                router.load("a")
        assert (router.loaded, hook.events) == ([], [])
        router.register("a", quiet_folder)
        router.load("a")
        assert (router.loaded, hook.events) == (["a"], ["on_load"])

    def test_a_failed_build_evicts_nothing(self, make_router: MakeRouter) -> None:
        router = make_router({"bad": "/no/such/folder"}, max_loaded=1)
        router.load("a")
        with pytest.raises(laya.CheckpointError):
            router.load("bad")
        assert router.loaded == ["a"]


class TestEviction:
    def test_the_least_recently_used_goes(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.load("a")
        router.load("b")
        router.predict("x", REFUND, model="a")
        hook.seen.clear()
        router.load("c")
        assert router.loaded == ["a", "c"]
        assert models_of(hook) == [("on_evict", "b"), ("on_load", "c")]

    @pytest.mark.parametrize("max_loaded", [1, 2, 3])
    def test_never_more_than_max_loaded(self, max_loaded: int, make_router: MakeRouter, make_hook: Any) -> None:
        counts: list[int] = []
        router = make_router(max_loaded=max_loaded, hooks=make_hook(on_load=lambda ctx: counts.append(len(ctx.router.loaded))))
        for name in ("a", "b", "c", "english"):
            router.load(name)
        assert max(counts) == max_loaded
        assert router.loaded == ["a", "b", "c", "english"][-max_loaded:]

    def test_an_evicted_one_is_built_again(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(max_loaded=1, hooks=hook)
        first = router.load("a")
        router.load("b")
        assert router.load("a") is not first
        assert models_of(hook) == [("on_load", "a"), ("on_evict", "a"), ("on_load", "b"), ("on_evict", "b"), ("on_load", "a")]

    def test_a_call_under_way_on_an_evicted_one_is_answered(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(max_loaded=1)
        hook = make_hook(on_predict_start=lambda ctx: ctx.router.load("b"))
        assert list(router.predict("x", REFUND, model="a", hooks=hook)["answers"]) == ["refund"]
        assert router.loaded == ["b"]


class TestUnload:
    def test_one(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.load("english")
        router.load("a")
        hook.seen.clear()
        router.unload("en")
        assert router.loaded == ["a"]
        assert models_of(hook) == [("on_evict", "english")]

    def test_all(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.load("a")
        router.load("b")
        hook.seen.clear()
        router.unload()
        assert router.loaded == []
        assert models_of(hook) == [("on_evict", "a"), ("on_evict", "b")]

    def test_what_is_not_loaded(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.unload("a")
        router.unload()
        assert hook.events == []
        with pytest.raises(ValueError, match="nonesuch"):
            router.unload("nonesuch")


class TestPreload:
    def test_raises_max_loaded_so_that_all_stay(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(max_loaded=1, hooks=hook)
        router.preload(["english"])
        router.preload(["multilingual"])
        assert set(router.loaded) == {"english", "multilingual"}
        assert router.max_loaded >= len(router.loaded)
        assert models_of(hook) == [("on_load", "english"), ("on_load", "multilingual")]

    def test_of_what_is_loaded_and_of_one_name_twice_builds_once(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.load("a")
        router.preload(["a", "b", "b"])
        assert models_of(hook) == [("on_load", "a"), ("on_load", "b")]
        assert router.max_loaded == 2

    def test_without_names_the_published_family(self, quiet_folder: Path) -> None:
        family = ("english", "multilingual", "typed-decisions")
        router = laya.Router(models=dict.fromkeys(family, quiet_folder), device="cpu")
        router.preload()
        assert set(router.loaded) == set(family)

    @pytest.mark.parametrize(("preload", "loaded"), [(False, []), (["a"], ["a"]), (["a", "b", "c"], ["a", "b", "c"])])
    def test_at_construction(self, preload: Any, loaded: list[str], make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        assert make_router(preload=preload, hooks=hook).loaded == loaded
        assert hook.events == ["on_load"] * len(loaded)

    def test_an_unknown_name_loads_none(self, make_router: MakeRouter) -> None:
        router = make_router()
        with pytest.raises(ValueError, match="nonesuch"):
            router.preload(["a", "nonesuch"])
        assert router.loaded == []


class TestAttach:
    def test_serves_without_any_event(self, make_router: MakeRouter, make_hook: Any, tiny: laya.Agent) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.attach("mine", tiny)
        assert hook.events == []
        assert router.loaded == ["mine"]
        assert router.load("mine") is tiny
        assert router.predict(ENGLISH, REFUND, model="mine")["answers"] == tiny.system_one(ENGLISH, REFUND)["answers"]
        assert router.predict(ENGLISH, REFUND, model="mine")["routing"]["model"] == "mine"

    def test_is_never_evicted_and_takes_no_place_from_others(self, make_router: MakeRouter, make_hook: Any, tiny: laya.Agent) -> None:
        hook = make_hook()
        router = make_router(max_loaded=1, hooks=hook)
        router.load("a")
        router.attach("mine", tiny)
        assert set(router.loaded) == {"a", "mine"}
        assert router.max_loaded >= 2
        router.load("b")
        router.load("c")
        assert set(router.loaded) == {"mine", "c"}
        assert [model for event, model in models_of(hook) if event == "on_evict"] == ["a", "b"]

    def test_under_a_built_in_name_or_its_alias(self, make_router: MakeRouter, tiny: laya.Agent) -> None:
        router = make_router()
        router.attach("en", tiny)
        assert router.loaded == ["english"]
        assert router.load("english") is tiny

    def test_twice_and_off_again_leaves_room_for_as_many_as_before(self, make_router: MakeRouter, tiny: laya.Agent) -> None:
        router = make_router(max_loaded=1)
        for _ in range(2):
            router.attach("mine", tiny)
        router.load("a")
        router.unload("mine")
        router.load("b")
        assert router.loaded == ["b"]

    def test_unload_takes_it_off(self, make_router: MakeRouter, make_hook: Any, tiny: laya.Agent) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.attach("mine", tiny)
        router.unload("mine")
        assert router.loaded == []
        assert models_of(hook) == [("on_evict", "mine")]
        assert tiny.system_one(ENGLISH, REFUND)["answers"]


class TestThreads:
    def test_a_cold_checkpoint_is_built_once(self, make_router: MakeRouter, make_hook: Any, slow_hub: SlowHub) -> None:
        hook = make_hook()
        router = make_router({"english": "someone/slow"}, hooks=hook)
        barrier = threading.Barrier(9)

        def load(_: int) -> Any:
            barrier.wait(SOON)
            return router.load("english")

        with ThreadPoolExecutor(8) as threads:
            loads = [threads.submit(load, index) for index in range(8)]
            barrier.wait(SOON)
            assert slow_hub.asked.wait(SOON)
            slow_hub.go.set()
            agents = [each.result(SOON) for each in loads]
        assert len({id(agent) for agent in agents}) == 1
        assert slow_hub.calls == 1
        assert hook.events == ["on_load"]
        assert router.loaded == ["english"]

    def test_a_failed_build_reaches_every_waiter_and_the_next_load_tries_again(self, make_router: MakeRouter, quiet_folder: Path) -> None:
        router = make_router({"english": "/no/such/folder"})
        barrier = threading.Barrier(8)

        def load(_: int) -> BaseException | None:
            barrier.wait(SOON)
            try:
                router.load("english")
            except laya.CheckpointError as error:
                return error
            return None

        with ThreadPoolExecutor(8) as threads:
            errors = [each.result(SOON) for each in [threads.submit(load, index) for index in range(8)]]
        assert [type(error) for error in errors] == [laya.CheckpointError] * 8
        assert router.loaded == []
        router.register("english", quiet_folder)
        assert isinstance(router.load("english"), laya.Agent)
        assert router.loaded == ["english"]

    def test_loads_of_other_names_and_other_calls_do_not_wait(self, make_router: MakeRouter, slow_hub: SlowHub) -> None:
        router = make_router({"a": "someone/slow"})
        with thread(lambda: router.load("a")):
            assert slow_hub.asked.wait(SOON)
            router.load("b")
            assert router.predict(ENGLISH, REFUND, model="b")["answers"]
            assert router.route(GERMAN).model == "multilingual"
            assert router.loaded == ["b"]
            router.unload("b")
            assert router.loaded == []
            slow_hub.go.set()
        assert router.loaded == ["a"]

    def test_unload_waits_for_a_build_under_way(self, make_router: MakeRouter, slow_hub: SlowHub) -> None:
        """An unload returned before the build landed, and the checkpoint came back afterwards."""
        router = make_router({"multilingual": "someone/slow"})
        with thread(lambda: router.load("multilingual")):
            assert slow_hub.asked.wait(SOON)
            with thread(lambda: router.unload("multilingual")) as unloading:
                unloading.join(0.05)
                assert unloading.is_alive()
                slow_hub.go.set()
        assert router.loaded == []

    def test_many_calls_on_more_checkpoints_than_fit(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(max_loaded=1, hooks=hook)
        wanted = router.predict(ENGLISH, REFUND, model="a")["answers"]

        def ask(index: int) -> bool:
            name = "abc"[index % 3]
            result = router.predict(ENGLISH, REFUND, model=name)
            return bool(result["answers"] == wanted and result["routing"]["model"] == name)

        with ThreadPoolExecutor(6) as threads:
            assert all(threads.map(ask, range(18)))
        assert len(router.loaded) == 1
        assert hook.events.count("on_load") - hook.events.count("on_evict") == 1


class TestHooksThatCallBack:
    """Lifecycle hooks run after the Router's own lock was released."""

    def test_on_load_may_load_another(self, make_router: MakeRouter, make_hook: Any) -> None:
        def load_another(ctx: PredictContext) -> None:
            if ctx.model == "english":
                ctx.router.load("multilingual")

        hook = make_hook(on_load=load_another)
        router = make_router(hooks=hook)
        with thread(lambda: router.load("english")):
            pass
        assert models_of(hook) == [("on_load", "english"), ("on_load", "multilingual")]
        # The load that was asked for is over last, so it is the one used last.
        assert router.loaded == ["multilingual", "english"]

    @pytest.mark.parametrize("event", ["on_load", "on_evict"])
    def test_either_may_ask_the_router_anything(self, event: str, make_router: MakeRouter, make_hook: Any) -> None:
        answers: list[Any] = []

        def ask(ctx: PredictContext) -> None:
            if ctx.model == "a":
                answers.append((ctx.router.loaded, ctx.router.predict(ENGLISH, REFUND, model="english")["answers"]))

        router = make_router(hooks=make_hook(**{event: ask}))

        def load_and_unload() -> None:
            router.load("a")
            router.unload("a")

        with thread(load_and_unload):
            pass
        assert len(answers) == 1
        assert answers[0][0] == (["a"] if event == "on_load" else [])

    def test_on_evict_may_load_it_again(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(hooks=make_hook(on_evict=lambda ctx: ctx.router.load("a")))
        router.load("a")
        with thread(lambda: router.unload("a")):
            pass
        assert router.loaded == ["a"]

    def test_the_agent_given_to_on_load_can_be_used_at_once(self, make_router: MakeRouter, make_hook: Any) -> None:
        warmed: list[Any] = []
        hook = make_hook(on_load=lambda ctx: warmed.append(ctx.agent.system_one("warm up", REFUND)))
        make_router(hooks=hook).load("a")
        assert list(warmed[0]["answers"]) == ["refund"]


class TestPredict:
    def test_is_the_agents_answer_with_the_routing(self, make_router: MakeRouter) -> None:
        router = make_router()
        result = router.predict(GERMAN, REFUND)
        plain = router.load("multilingual").system_one(GERMAN, REFUND)
        assert list(result) == ["model", "answers", "usage", "routing"]
        assert {key: result[key] for key in plain} == plain
        assert result["routing"] == router.route(GERMAN, REFUND)
        assert result["routing"]["model"] == "multilingual"
        assert type(result["routing"]) is dict
        json.dumps(result, allow_nan=False)

    def test_system_one_is_predict(self, make_router: MakeRouter) -> None:
        router = make_router()
        assert router.system_one(ENGLISH, REFUND, "a", max_len=64) == router.predict(ENGLISH, REFUND, "a", max_len=64)

    def test_the_events_of_a_cold_call(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        make_router(hooks=hook).predict(ENGLISH, REFUND)
        assert hook.events == ["on_route", "on_load", "on_predict_start", "on_predict_end"]

    def test_per_call_hooks_apply_to_the_whole_call(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(preload=["english"])
        router.predict(ENGLISH, REFUND, hooks=hook)
        assert hook.events == ["on_route", "on_predict_start", "on_predict_end"]
        assert len({id(ctx) for _, ctx in hook.seen}) == 1

    def test_what_the_hooks_are_given(self, make_router: MakeRouter, make_hook: Any) -> None:
        seen: list[dict[str, Any]] = []
        hook = make_hook(on_predict_start=lambda ctx: seen.append(dict(vars(ctx))))
        router = make_router(hooks=hook)
        result = router.predict(ENGLISH, REFUND, model="en", max_len=128, head_max_len=64)
        start, end = seen[0], hook.seen[-1][1]
        assert (start["states"], start["questions"], start["model"], start["router"]) == ([ENGLISH], REFUND, "english", router)
        assert start["agent"] is router.load("english")
        assert start["decision"]["model"] == "english"
        assert (start["max_len"], start["head_max_len"]) == (128, 64)
        assert [start[name] for name in ("results", "usage", "elapsed_ms", "error")] == [None] * 4
        assert end.results == [result]
        assert end.usage == {"input_tokens": result["usage"]["input_tokens"], "output_tokens": 0}
        assert end.elapsed_ms > 0

    def test_a_rewritten_decision_is_what_happens(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(hooks=make_hook(on_route=lambda ctx: ctx.decision.update(model="multi")))
        router.predict(ENGLISH, REFUND)
        assert router.loaded == ["multilingual"]

    def test_budgets_of_the_call(self, make_router: MakeRouter) -> None:
        router = make_router()
        assert router.predict("late " * 300, REFUND, max_len=100)["usage"]["input_tokens"] == 100
        with pytest.raises(ValueError, match="max_len"):
            router.predict(ENGLISH, REFUND, max_len=0)

    @pytest.mark.parametrize(
        ("state", "questions", "error"), [(None, REFUND, TypeError), (ENGLISH, {"q": {"type": "bool", "instructions": "x"}}, ValueError)]
    )
    def test_a_failed_call_is_told_and_ended(
        self, state: Any, questions: Any, error: type[Exception], make_router: MakeRouter, make_hook: Any
    ) -> None:
        hook = make_hook()
        router = make_router(preload=["english"])
        with pytest.raises(error) as caught:
            router.predict(state, questions, hooks=hook)
        assert hook.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]
        assert hook.seen[-1][1].error is caught.value

    @pytest.mark.parametrize("questions", [None, "refund", [], [REFUND["refund"]]], ids=["none", "text", "empty list", "list"])
    def test_questions_that_are_no_dict(self, questions: Any, make_router: MakeRouter) -> None:
        with pytest.raises(TypeError, match="questions"):
            make_router().predict(ENGLISH, questions)

    def test_a_hooks_timeout_of_the_call(self, make_router: MakeRouter) -> None:
        release = threading.Event()
        try:
            with pytest.raises(TimeoutError):
                make_router().predict(ENGLISH, REFUND, on_predict_start=lambda ctx: release.wait(SOON), hooks_timeout=0.05)
        finally:
            release.set()


SUPPLIED: dict[str, Any] = {"model": "a cache", "answers": {"refund": {"type": "noul", "noul": 0.5}}, "usage": {"input_tokens": 2}}


class TestSkip:
    def test_adds_routing_and_leaves_the_hooks_own_dict_alone(self, make_router: MakeRouter, make_hook: Any) -> None:
        given = json.loads(json.dumps(SUPPLIED))
        hook = make_hook(on_predict_start=lambda ctx: ctx.skip([given]))
        result = make_router(hooks=hook).predict(ENGLISH, REFUND)
        assert result == {**SUPPLIED, "routing": hook.seen[-1][1].decision}
        assert given == SUPPLIED

    def test_keeps_a_routing_that_is_there(self, make_router: MakeRouter) -> None:
        given = {**SUPPLIED, "routing": {"model": "mine"}}
        assert make_router().predict(ENGLISH, REFUND, on_predict_start=lambda ctx: ctx.skip([given])) == given

    def test_the_end_hooks_see_the_routing(self, make_router: MakeRouter) -> None:
        seen: list[PredictContext] = []
        make_router().predict(ENGLISH, REFUND, on_predict_start=lambda ctx: ctx.skip([SUPPLIED]), on_predict_end=seen.append)
        results: Any = seen[0].results
        assert results[0]["routing"]["model"] == "english"


def ask(state: Any, questions: Any = REFUND, model: str | None = "a", **more: Any) -> dict[str, Any]:
    return {"state": state, "questions": questions, "model": model, **more}


def in_any_order(passes: Any) -> list[PredictContext]:
    """The contexts of an agent's passes by their first state: groups of different questions run at the same time."""
    return sorted(passes.contexts("on_predict_start"), key=lambda ctx: str(ctx.states[0]))


class TestPredictBatch:
    def test_each_result_is_that_of_its_own_predict_in_order(self, make_router: MakeRouter) -> None:
        router = make_router()
        requests = [
            ask(GERMAN, model=None),
            ask("late", URGENCY, model=None),
            ask(GERMAN, {**REFUND, **URGENCY}, model="multilingual"),
            ask({"body": ENGLISH}, model=None),
            ask("late " * 300, model="english", max_len=100),
            ask(ENGLISH, model=None, lang="de"),
            ask("12345", model=None, lang_guess="de"),
            ask(ENGLISH, model=None, task="multi"),
        ]
        results = router.predict_batch(requests)
        assert [result["routing"]["model"] for result in results] == [
            *["multilingual", "english", "multilingual", "english", "english"],
            *["multilingual"] * 3,
        ]
        for request, result in zip(requests, results, strict=True):
            wanted = router.predict(**request)
            assert result["routing"] == wanted["routing"]
            assert result["usage"] == wanted["usage"]
            assert list(result["answers"]) == list(wanted["answers"])
            for qid, answer in wanted["answers"].items():
                assert result["answers"][qid]["answer_confidence"] == pytest.approx(answer["answer_confidence"], abs=1e-3)

    def test_nothing(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        assert make_router(hooks=hook).predict_batch([]) == []
        assert hook.events == []

    def test_hooks_fire_once_a_request_with_one_state_each(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook, per_call = make_hook(), make_hook()
        router = make_router(hooks=hook, preload=["a", "b"])
        hook.seen.clear()
        router.predict_batch([ask("one"), ask("two", model="b"), ask("three")], hooks=per_call)
        assert hook.events == per_call.events
        for event in ("on_route", "on_predict_start", "on_predict_end"):
            assert sorted(ctx.states[0] for ctx in hook.contexts(event)) == ["one", "three", "two"]
            assert all(len(ctx.states) == 1 for ctx in hook.contexts(event))
        assert len({ctx.run_id for _, ctx in hook.seen}) == 3
        assert [ctx.model for ctx in hook.contexts("on_predict_start")] == ["a", "a", "b"]

    def test_routes_come_first_and_ends_in_reverse_start_order(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        make_router(preload=["a"]).predict_batch([ask("one"), ask("two"), ask("three")], hooks=hook)
        assert [(event, ctx.states[0]) for event, ctx in hook.seen] == [
            *[("on_route", name) for name in ("one", "two", "three")],
            *[("on_predict_start", name) for name in ("one", "two", "three")],
            *[("on_predict_end", name) for name in ("three", "two", "one")],
        ]

    def test_like_requests_share_a_pass(self, make_router: MakeRouter, make_hook: Any) -> None:
        both, turned = {**REFUND, **URGENCY}, {**URGENCY, **REFUND}
        passes = make_hook()
        router = make_router(preload=["a"])
        router.load("a").add_hook(passes)
        contexts = make_hook()
        router.predict_batch(
            [
                ask("1", both),
                ask("2", turned),
                ask("3", both),
                ask("4", both, max_len=128),
                ask("5", both, head_max_len=64),
                ask("6", turned),
            ],
            hooks=contexts,
        )
        asked = in_any_order(passes)
        assert [ctx.states for ctx in asked] == [["1", "3"], ["2", "6"], ["4"], ["5"]]
        run_ids = {ctx.states[0]: ctx.run_id for ctx in contexts.contexts("on_predict_start")}
        for ctx in asked:
            assert ctx.request_ids == [run_ids[state] for state in ctx.states]
            assert ctx.router is None
        assert [(ctx.max_len, ctx.head_max_len) for ctx in asked] == [(None, None), (None, None), (128, None), (None, 64)]

    def test_they_are_grouped_by_what_the_hooks_left(self, make_router: MakeRouter, make_hook: Any) -> None:
        def rewrite(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                ctx.states, ctx.questions = ["rewritten"], dict(REFUND)

        passes = make_hook()
        router = make_router(preload=["a"])
        router.load("a").add_hook(passes)
        results = router.predict_batch([ask("1"), ask("2", URGENCY), ask("3", URGENCY)], on_predict_start=rewrite)
        assert [ctx.states for ctx in in_any_order(passes)] == [["1", "rewritten"], ["3"]]
        assert [list(result["answers"]) for result in results] == [["refund"], ["refund"], ["urgency"]]

    def test_a_request_that_a_hook_answers_is_not_scored(self, make_router: MakeRouter, make_hook: Any) -> None:
        passes = make_hook()
        router = make_router(preload=["a"])
        router.load("a").add_hook(passes)

        def cache(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                ctx.skip([SUPPLIED])

        results = router.predict_batch([ask("1"), ask("2"), ask("3")], on_predict_start=cache)
        assert [ctx.states for ctx in passes.contexts("on_predict_start")] == [["1", "3"]]
        assert results[1] == {**SUPPLIED, "routing": results[0]["routing"]}

    @pytest.mark.parametrize(
        ("request_", "error", "told"),
        [
            pytest.param("text", TypeError, "str", id="a text"),
            pytest.param(None, TypeError, "NoneType", id="none"),
            pytest.param({"questions": REFUND}, ValueError, "state", id="no state"),
            pytest.param({"state": "x"}, ValueError, "questions", id="no questions"),
            pytest.param(ask("x", modle="a"), ValueError, "modle", id="an unknown key"),
        ],
    )
    def test_what_is_no_request_is_named_by_its_index(
        self, request_: Any, error: type[Exception], told: str, make_router: MakeRouter
    ) -> None:
        with pytest.raises(error, match=rf"requests\[1\].*{told}"):
            make_router().predict_batch([ask("fine"), request_])


def veto(ctx: PredictContext) -> None:
    if ctx.states == ["veto"]:
        raise PermissionError("not this one")


class TestFailuresInABatch:
    BAD = ask("bad", {"q": {"type": "bool", "instructions": "x"}})

    def test_each_started_request_of_the_group_is_told_and_ended(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(preload=["a"])
        with pytest.raises(ValueError, match="question 'q'") as caught:
            router.predict_batch([ask("1"), self.BAD, ask("3")], hooks=hook)
        assert [(event, ctx.states[0]) for event, ctx in hook.seen if event != "on_route"] == [
            *[("on_predict_start", name) for name in ("1", "bad", "3")],
            *[(event, name) for name in ("3", "bad", "1") for event in ("on_error", "on_predict_end")],
        ]
        assert {ctx.error for _, ctx in hook.seen} == {caught.value}

    def test_return_exceptions_puts_each_in_its_place(self, make_router: MakeRouter) -> None:
        router = make_router({"gone": "/no/such/folder"})
        results = router.predict_batch(
            [
                ask("fine"),
                self.BAD,
                ask("veto"),
                ask(None),
                ask("x", model="nonesuch"),
                ask("x", model="gone"),
                {"state": "x"},
                ask("x", max_len=0),
                ask("also fine", model="b"),
            ],
            on_predict_start=veto,
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [
            *[dict, ValueError, PermissionError, TypeError, ValueError, laya.CheckpointError, ValueError, ValueError, dict]
        ]
        assert "question 'q'" in str(results[1])
        assert "nonesuch" in str(results[4])
        assert "requests[6]" in str(results[6])
        assert results[0]["answers"] == router.predict("fine", REFUND, model="a")["answers"]

    def test_a_neighbour_that_fails_changes_no_hook_of_the_others(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook(on_predict_start=veto)
        make_router(preload=["a"]).predict_batch([ask("1"), ask("veto"), ask("3")], hooks=hook, return_exceptions=True)
        assert [(event, ctx.states[0], ctx.error is None) for event, ctx in hook.seen if event != "on_route"] == [
            *[("on_predict_start", "1", True), ("on_predict_start", "veto", False), ("on_predict_start", "3", True)],
            *[("on_predict_end", "3", True), ("on_error", "veto", False), ("on_predict_end", "veto", False), ("on_predict_end", "1", True)],
        ]

    def test_a_result_that_is_none_fails_its_own_request_alone(self, make_router: MakeRouter) -> None:
        def junk(ctx: PredictContext) -> None:
            if ctx.states == ["junk"]:
                results: Any = ["not a result"]
                ctx.skip(results)

        results = make_router().predict_batch([ask("1"), ask("junk"), ask("3")], on_predict_start=junk, return_exceptions=True)
        assert [isinstance(result, Exception) for result in results] == [False, True, False]

    def test_an_end_hook_that_fails_on_success(self, make_router: MakeRouter) -> None:
        def end(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                raise KeyError("end")

        router = make_router()
        with pytest.raises(KeyError, match="end"):
            router.predict_batch([ask("1"), ask("2")], on_predict_end=end)
        results = router.predict_batch([ask("1"), ask("2")], on_predict_end=end, return_exceptions=True)
        assert [type(result) for result in results] == [dict, KeyError]


class TestHooksOfBothLevels:
    def test_defaults_fire_once_a_request(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        add_default_hook(hook)
        router = make_router()
        router.predict(ENGLISH, REFUND)
        assert hook.events == ["on_route", "on_load", "on_predict_start", "on_predict_end"]
        hook.seen.clear()
        router.predict_batch([ask("1"), ask("2"), ask("3")])
        assert [hook.events.count(event) for event in ("on_route", "on_load", "on_predict_start", "on_predict_end")] == [3, 1, 3, 3]
        assert all(ctx.router is router for _, ctx in hook.seen)

    def test_hooks_installed_on_an_agent_fire_there_with_the_requests(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(preload=["a"])
        agent = router.load("a")
        on_agent, on_router = make_hook(), make_hook()
        agent.add_hook(on_agent)
        router.predict("x", REFUND, model="a", hooks=on_router)
        assert on_agent.events == ["on_predict_start", "on_predict_end"]
        ctx = on_agent.seen[0][1]
        assert ctx.request_ids == [on_router.seen[0][1].run_id]
        assert ctx.run_id != ctx.request_ids[0]
        assert (ctx.agent, ctx.router, ctx.decision, ctx.model) == (agent, None, None, agent.model_id)

    def test_called_directly_the_agent_serves_no_request(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(preload=["a"])
        hook = make_hook()
        add_default_hook(hook)
        router.load("a").system_one("x", REFUND)
        assert [ctx.request_ids for _, ctx in hook.seen] == [None, None]

    def test_a_call_of_its_own_that_an_agents_hook_makes_has_the_defaults(
        self, make_router: MakeRouter, make_hook: Any, tiny: laya.Agent
    ) -> None:
        """It serves none of the requests of the pass that it is made in."""
        router = make_router(preload=["a"])
        router.load("a").add_hook(make_hook(on_predict_start=lambda ctx: tiny.system_one("a call of its own", REFUND)))
        hook = make_hook()
        add_default_hook(hook)
        router.predict("x", REFUND, model="a")
        own = [ctx for ctx in hook.contexts("on_predict_start") if ctx.states == ["a call of its own"]]
        assert [ctx.request_ids for ctx in own] == [None]

    def test_an_agents_hook_may_veto(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(preload=["a"])
        router.load("a").add_hook(make_hook(on_predict_start=lambda ctx: veto(PredictContext(["veto"], {}))))
        on_router = make_hook()
        with pytest.raises(PermissionError):
            router.predict("x", REFUND, model="a", hooks=on_router)
        assert on_router.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]


class TestPredictLong:
    DOCUMENT = " ".join(f"invoice {index} which late the payment" for index in range(120))

    def test_is_the_agents_with_the_routing(self, make_router: MakeRouter) -> None:
        router = make_router()
        result = router.predict_long(self.DOCUMENT, REFUND, model="a", window=100, stride=50)
        plain = router.load("a").predict_long(self.DOCUMENT, REFUND, window=100, stride=50)
        assert {key: result[key] for key in plain} == plain
        assert result["routing"]["model"] == "a"
        assert plain["usage"]["windows"] > 1

    def test_hooks_of_the_router_see_the_state_and_those_of_the_agent_its_windows(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router(preload=["a"])
        on_router, on_agent = make_hook(), make_hook()
        router.load("a").add_hook(on_agent)
        result = router.predict_long(self.DOCUMENT, REFUND, model="a", hooks=on_router)
        assert on_router.events == ["on_route", "on_predict_start", "on_predict_end"]
        assert on_router.seen[1][1].states == [self.DOCUMENT]
        assert on_agent.events == ["on_predict_start", "on_predict_end"]
        assert len(on_agent.seen[0][1].states) == result["usage"]["windows"]
        assert on_agent.seen[0][1].request_ids == [on_router.seen[0][1].run_id]

    def test_an_answer_of_a_hook_never_reads_as_a_window(self, make_router: MakeRouter) -> None:
        result = make_router().predict_long(self.DOCUMENT, REFUND, model="a", on_predict_start=lambda ctx: ctx.skip([SUPPLIED]))
        assert result["usage"] == {"input_tokens": 2, "windows": 0}
        assert result["answers"] == SUPPLIED["answers"]
        assert "windows" not in SUPPLIED["usage"]

    def test_its_arguments_are_checked(self, make_router: MakeRouter) -> None:
        with pytest.raises(ValueError, match="stride"):
            make_router().predict_long(self.DOCUMENT, REFUND, model="a", window=64, stride=65)


class TestMini:
    def test_the_bundled_checkpoint_is_a_name_like_any_other(self, mini: laya.Agent) -> None:
        router = laya.Router(default="mini", device="cpu")
        found = router.predict("12345 67", REFUND)
        assert (found["routing"]["model"], router.loaded) == ("mini", ["mini"])
        assert found["answers"] == mini.system_one("12345 67", REFUND)["answers"]


def test_a_router_survives_a_folder_that_moves(make_router: MakeRouter, quiet_folder: Path, tmp_path: Path) -> None:
    """A resident checkpoint needs its files no more."""
    folder = Path(shutil.copytree(quiet_folder, tmp_path / "moving"))
    router = make_router({"a": folder})
    wanted = router.predict(ENGLISH, REFUND, model="a")
    shutil.rmtree(folder)
    assert router.predict(ENGLISH, REFUND, model="a") == wanted


class Stub:
    """An agent of the user's own making."""

    def predict_batch(self, states: Any, questions: Any, **options: Any) -> list[dict[str, Any]]:
        return [{"model": "stub", "answers": {}, "usage": {}} for _ in states]

    def predict_long(self, state: Any, questions: Any, **options: Any) -> dict[str, Any]:
        return self.predict_batch([state], questions)[0]


class TestAttachedNames:
    def test_a_name_that_was_known_means_its_checkpoint_again_afterwards(self, quiet_folder: Path) -> None:
        router = laya.Router(models={"english": quiet_folder}, device="cpu")
        router.attach("english", Stub())
        assert router.predict("hello", {}, model="english")["routing"]["repo"] == "english"
        router.unload("english")
        assert router.predict("hello", {}, model="english")["routing"]["repo"] == str(quiet_folder)
        assert isinstance(router.load("english"), laya.Agent)


class TestWhatIsCheckedFirst:
    @pytest.mark.parametrize(
        "call",
        [
            lambda router, **hooks: router.predict_batch([{"state": "a", "questions": {}}], batch_size=0, **hooks),
            lambda router, **hooks: router.predict_long("a", {}, batch_size=0, **hooks),
            lambda router, **hooks: router.predict_long("a", {}, aggregate="mean", **hooks),
            lambda router, **hooks: router.predict("a", {}, lang=["de"], **hooks),
        ],
        ids=["batch_size", "batch_size of predict_long", "aggregate", "lang"],
    )
    def test_arguments_before_any_event(self, call: Any, make_hook: Any) -> None:
        hook = make_hook()
        with pytest.raises((TypeError, ValueError), match=r"batch_size|aggregate|lang"):
            call(laya.Router(), hooks=hook)
        assert hook.events == []

    def test_a_preload_of_nothing_loads_nothing(self) -> None:
        router = laya.Router()
        router.preload([])
        assert router.loaded == []


class TestLifecycleHooksThatFail:
    def test_all_events_are_told_and_the_first_error_is_raised(self, quiet_folder: Path) -> None:
        router = laya.Router(models={"one": quiet_folder, "two": quiet_folder}, device="cpu")
        router.preload(["one", "two"])
        told = []

        class Failing(laya.BaseHook):
            def on_evict(self, ctx: laya.PredictContext) -> None:
                told.append(ctx.model)
                raise RuntimeError(f"of {ctx.model}")

        router.add_hook(Failing())
        with pytest.raises(RuntimeError, match="of one") as caught:
            router.unload()
        assert told == ["one", "two"]
        assert caught.value.__notes__ == ["on_evict of 'two' failed too: RuntimeError: of two"]


class TestResultsThatHooksTake:
    def test_one_emptied_fails_alone_where_failures_are_returned(self, quiet_folder: Path) -> None:
        router = laya.Router(models={"english": quiet_folder}, device="cpu")

        def empty(ctx: laya.PredictContext) -> None:
            if ctx.states == ["b"]:
                ctx.results = []

        requests = [{"state": state, "questions": {}, "lang": "en"} for state in "abc"]
        found = router.predict_batch(requests, on_predict_end=empty, return_exceptions=True)
        assert [type(result) for result in found] == [dict, ValueError, dict]
        with pytest.raises(ValueError, match="no result is left"):
            router.predict_batch(requests, on_predict_end=empty)
