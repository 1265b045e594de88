"""Which checkpoints a Router keeps: loading once, making room, letting go, and hooks that call back in meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import laya
from laya.hooks import PredictContext, add_default_hook
from tests.cases import case
from tests.conformance.support import ENGLISH, ONE, Diary, all_at_once, assert_close, error_of, failing
from tests.patience import LONG, start

Make = Callable[..., Any]

THREADS: int = case("UC-11")["threads"]
SOON = 10.0  # seconds in which the reports want an answer

LOADED = {"run_id", "started_at", "model", "agent", "router"}
EVICTED = LOADED - {"agent"}


@pytest.fixture
def attached(router: Any, reference: laya.Agent) -> Iterator[Any]:
    """The shared Router with an agent of this process attached as ``mine``."""
    router.attach("mine", reference)
    yield router
    router.unload("mine")


class TestAttach:
    def test_fires_nothing_and_is_resident(self, router: Any, reference: laya.Agent) -> None:
        diary = Diary()
        router.add_hook(diary)
        router.attach("mine", reference)
        assert diary.events == []
        assert router.load("mine") is reference
        assert set(router.loaded) == {"english", "multilingual", "mine"}
        assert diary.events == []

    def test_serves_under_its_name(self, attached: Any, reference: laya.Agent) -> None:
        diary = Diary()
        result = attached.predict(ENGLISH, ONE, model="mine", hooks=diary)
        assert result["answers"] == reference.system_one(ENGLISH, ONE)["answers"]
        assert result["routing"]["model"] == "mine"
        assert diary.the("on_predict_start").ctx.agent is reference

    def test_under_an_alias_stands_for_the_built_in_name(self, make_warm_router: Make, reference: laya.Agent) -> None:
        router = make_warm_router()
        router.attach("en", reference)
        assert router.load("english") is reference

    def test_unload_takes_it_off_and_leaves_it_usable(self, router: Any, reference: laya.Agent) -> None:
        router.attach("mine", reference)
        diary = Diary()
        router.add_hook(diary)
        router.unload("mine")
        assert diary.models == [("on_evict", "mine")]
        assert set(router.loaded) == {"english", "multilingual"}
        assert reference.system_one(ENGLISH, ONE)["answers"]


class TestHooksOfAnEviction:
    """Seen on an agent that is attached, which is let go at once."""

    def test_what_they_are_given(self, attached: Any) -> None:
        diary = Diary()
        attached.add_hook(diary)
        attached.unload("mine")
        note = diary.the("on_evict")
        assert note.populated == EVICTED
        assert (note.fields["states"], note.fields["questions"], note.fields["model"]) == ([], {}, "mine")
        assert note.ctx.router is attached

    def test_defaults_then_installed(self, attached: Any) -> None:
        order: list[str] = []
        attached.add_hook(Diary(on_evict=lambda ctx: order.append("installed")))
        add_default_hook(Diary(on_evict=lambda ctx: order.append("default")))
        attached.unload("mine")
        assert order == ["default", "installed"]

    def test_may_ask_the_router_anything(self, attached: Any) -> None:
        seen: list[Any] = []

        def ask(ctx: PredictContext) -> None:
            seen.append((set(ctx.router.loaded), ctx.router.predict(ENGLISH, ONE)["routing"]["model"]))

        attached.add_hook(Diary(on_evict=ask))
        start(lambda: attached.unload("mine")).result(LONG)
        assert seen == [({"english", "multilingual"}, "english")]

    def test_one_that_fails_is_told_and_brings_nothing_back(self, attached: Any) -> None:
        attached.add_hook(Diary(on_evict=failing(KeyError("broken hook"))))
        with pytest.raises(KeyError, match="broken hook"):
            attached.unload("mine")
        assert set(attached.loaded) == {"english", "multilingual"}

    def test_with_hooks_raise_off_it_is_a_warning(self, make_warm_router: Make, reference: laya.Agent) -> None:
        router = make_warm_router(hooks_raise=False, hooks=Diary(on_evict=failing(KeyError("broken hook"))))
        router.attach("mine", reference)
        with pytest.warns(RuntimeWarning, match="on_evict.*KeyError"):
            router.unload("mine")

    def test_one_that_overruns_is_a_timeout_error(self, make_warm_router: Make, reference: laya.Agent) -> None:
        release = threading.Event()
        router = make_warm_router(hooks_timeout=0.05, hooks=Diary(on_evict=lambda ctx: release.wait(LONG)))
        router.attach("mine", reference)
        try:
            with pytest.raises(TimeoutError, match="on_evict"):
                router.unload("mine")
        finally:
            release.set()


class TestArguments:
    @pytest.mark.parametrize("max_loaded", [0, -1, 1.5, "2", True, None])
    def test_max_loaded_is_a_positive_number(self, max_loaded: Any, make_router: Make) -> None:
        with pytest.raises(ValueError, match="max_loaded"):
            make_router(max_loaded=max_loaded)

    def test_unknown_names_change_nothing(self, router: Any) -> None:
        diary = Diary()
        router.add_hook(diary)
        for call in (router.load, router.unload, lambda name: router.preload(["english", name])):
            with pytest.raises(ValueError, match="nonesuch"):
                call("nonesuch")
        assert diary.events == []
        assert set(router.loaded) == {"english", "multilingual"}

    def test_what_is_resident_is_not_loaded_again(self, router: Any) -> None:
        diary = Diary()
        router.add_hook(diary)
        agent = router.load("english")
        assert router.load("en") is agent
        router.preload(["english", "multi", "en"])
        assert diary.events == []


# What is loaded takes seconds in a cluster: the tests stand in an order in which each finds most of what it needs.


class TestCallsUnderWay:
    def test_a_call_whose_agent_leaves_while_it_runs_is_answered(self, router: Any, reference: laya.Agent) -> None:
        result = router.predict(ENGLISH, ONE, on_predict_start=lambda ctx: ctx.router.unload("english"))
        assert_close(result["answers"], reference.system_one(ENGLISH, ONE)["answers"])


class TestPreload:
    def test_uc_13_one_after_the_other_all_stay(self, router: Any) -> None:
        router.unload("multilingual")
        diary = Diary()
        router.add_hook(diary)
        router.preload(["english"])
        router.preload(["multilingual", "en", "multi"])
        assert set(router.loaded) == {"english", "multilingual"}
        assert diary.models == [("on_load", "multilingual")]
        assert router.max_loaded >= 2


class TestRoom:
    def test_the_one_used_longest_ago_leaves_and_an_attached_one_never_does(self, attached: Any) -> None:
        """A cold call that needs room: it is made, then the checkpoint is loaded, then the call begins."""
        diary = Diary()
        attached.predict(ENGLISH, ONE, model="multilingual")
        attached.predict(ENGLISH, ONE, model="english")
        attached.add_hook(diary)
        attached.predict(ENGLISH, ONE, model="typed-decisions")
        assert diary.models == [
            ("on_route", None),
            ("on_evict", "multilingual"),
            ("on_load", "typed-decisions"),
            ("on_predict_start", "typed-decisions"),
            ("on_predict_end", "typed-decisions"),
        ]
        assert set(attached.loaded) == {"mine", "english", "typed-decisions"}
        assert attached.max_loaded >= len(attached.loaded)


class TestLoad:
    def test_uc_11_a_cold_checkpoint_is_loaded_once(self, cold_router: Any) -> None:
        diary = Diary()
        cold_router.add_hook(diary)
        outcomes = all_at_once([lambda: cold_router.load("english")] * THREADS)
        agents = [outcome.result(LONG) for outcome in outcomes]
        assert len({id(agent) for agent in agents}) == 1
        assert cold_router.loaded == ["english"]
        note = diary.the("on_load")
        assert diary.events == ["on_load"]
        assert note.populated == LOADED
        assert (note.fields["states"], note.fields["questions"], note.fields["model"]) == ([], {}, "english")
        assert note.ctx.agent is agents[0]
        assert note.ctx.router is cold_router

    def test_one_that_fails_is_told_and_takes_nothing_back(self, cold_router: Any) -> None:
        diary = Diary(on_load=failing(KeyError("broken hook")))
        with cold_router.hooks_installed(diary), pytest.raises(KeyError, match="broken hook"):
            cold_router.load("english")
        assert cold_router.loaded == ["english"]
        assert cold_router.predict(ENGLISH, ONE)["answers"]


class TestHooksThatCallBack:
    def test_uc_13_on_load_may_load_another_and_use_the_agent(self, cold_router: Any, reference: laya.Agent) -> None:
        warmed: list[Any] = []

        def load_another(ctx: PredictContext) -> None:
            warmed.extend(ctx.agent.predict_batch([ENGLISH], ONE))
            if ctx.model == "english":
                ctx.router.load("multilingual")

        diary = Diary(on_load=load_another)
        cold_router.add_hook(diary)
        start(lambda: cold_router.load("english")).result(LONG)
        assert diary.models == [("on_load", "english"), ("on_load", "multilingual")]
        # The one that was asked for first is over last, so it is the one used last.
        assert cold_router.loaded == ["multilingual", "english"]
        for result in warmed:
            assert_close(result, reference.system_one(ENGLISH, ONE))


class TestUnload:
    def test_one_then_all_then_what_is_not_there(self, router: Any) -> None:
        diary = Diary()
        router.add_hook(diary)
        router.unload("en")
        assert (router.loaded, diary.models) == (["multilingual"], [("on_evict", "english")])
        diary.clear()
        router.unload()
        assert (router.loaded, diary.models) == ([], [("on_evict", "multilingual")])
        assert diary.the("on_evict").populated == EVICTED
        router.unload()
        router.unload("english")
        assert len(diary.events) == 1


class TestBuilds:
    def test_uc_11_a_failed_build_reaches_all_and_the_next_load_tries_again(self, make_router: Make, folder: Path) -> None:
        diary = Diary()
        router = make_router(models={"english": "/no/such/folder"}, hooks=diary)
        errors = [error_of(outcome, SOON) for outcome in all_at_once([lambda: router.load("english")] * THREADS)]
        assert [type(error) for error in errors] == [laya.CheckpointError] * THREADS
        assert all("/no/such/folder" in str(error) for error in errors)
        assert (router.loaded, diary.events) == ([], [])
        router.register("english", folder)
        router.load("english")
        assert (router.loaded, diary.models) == (["english"], [("on_load", "english")])

    def test_uc_13_an_unload_during_a_build_leaves_nothing_behind(self, cold_router: Any) -> None:
        """An unload returned before the build landed, and the checkpoint came back afterwards."""
        begun = threading.Event()

        def load() -> None:
            begun.set()
            cold_router.load("multilingual")

        loading = start(load)
        assert begun.wait(LONG)
        threading.Event().wait(0.05)  # into the build, as it was reported
        start(lambda: cold_router.unload("multilingual")).result(LONG)
        loading.result(LONG)
        assert cold_router.loaded == []
