"""Public cases on a real cluster; those that every Router has to pass are in tests/conformance (UC-11, and UC-13 but for its builds)."""

from __future__ import annotations

from functools import partial

import pytest

import laya
from cluster import Hosting
from tests.cases import case
from tests.chaos.support import AGENT, Counting, agree, kill, lives, pids_of, replicas_of, same
from tests.patience import LONG, start, until

ONE = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}


@pytest.mark.slow
def test_uc_13_an_unload_waits_for_the_build_it_is_about_and_for_no_other(make_router, make_gate):
    gate = make_gate()
    hosting = {"multilingual": Hosting(agent=AGENT, options={"load_gate": str(gate.path)})}
    router = make_router(["english"], models={"multilingual": "mini"}, hosting=hosting, max_loaded=2)
    router.load("english")
    building = start(lambda: router.load("multilingual"))
    gate.wait_for()
    unloading = start(lambda: router.unload("multilingual"))
    until(lambda: router.status()["waiting"], "the build is waited for")
    start(lambda: router.unload("english")).result(LONG)
    assert "english" not in router.loaded
    assert not unloading.done()
    assert not building.done()
    gate.open()
    building.result(LONG)
    unloading.result(LONG)
    assert router.loaded == []


@pytest.mark.slow
class TestUC51:
    GIVEN = case("UC-51")
    LIMIT_S = GIVEN["deadline_s"]

    @pytest.fixture
    def router(self, make_router, quiet_folder):
        router = make_router(models={"english": quiet_folder, "multilingual": quiet_folder}, max_loaded=2)
        router.preload(["english", "multilingual"])
        return router

    def test_killed_between_calls(self, router, quiet_folder):
        here = laya.load(str(quiet_folder), device="cpu")
        expected = [here.predict(state, ONE)["answers"] for state in self.GIVEN["then"]]
        seen = Counting()
        router.add_hook(seen)
        (german,) = pids_of(router, "multilingual")
        (pid,) = pids_of(router, "english")
        kill(pid)
        for state, wanted in zip(self.GIVEN["then"], expected, strict=True):
            found = start(partial(router.predict, state, ONE)).result(self.LIMIT_S)
            assert same(found["answers"], wanted)
        assert seen.lifecycle == [("on_load", "english")]
        assert (seen.starts, seen.ends, seen.errors) == (3, 3, 0)
        assert pids_of(router, "multilingual") == [german]
        assert set(router.loaded) == {"english", "multilingual"}
        assert agree(router)

    def test_killed_during_a_call(self, make_router, make_gate, quiet_folder):
        gate, networked = make_gate(), Hosting(agent=AGENT, options={"network": True})
        names = {"english": quiet_folder, "multilingual": quiet_folder}
        router = make_router(models=names, hosting=dict.fromkeys(names, networked), max_loaded=2)
        router.preload(["english", "multilingual"])
        here = laya.load(str(quiet_folder), device="cpu")
        seen = Counting()
        router.add_hook(seen)
        (german,) = pids_of(router, "multilingual")
        held = start(lambda: router.predict(gate.state, ONE, model="english"))
        gate.wait_for()
        (pid,) = gate.pids()
        kill(pid)
        gate.open()
        assert same(held.result(self.LIMIT_S)["answers"], here.predict(gate.state, ONE)["answers"])
        for state in self.GIVEN["then"]:
            assert same(router.predict(state, ONE)["answers"], here.predict(state, ONE)["answers"])
        assert seen.lifecycle == [("on_load", "english")]
        assert (seen.starts, seen.ends, seen.errors) == (4, 4, 0)
        assert lives(german)
        assert [one["checkpoint"] for one in sorted(replicas_of(router), key=lambda one: one["id"])] == ["multilingual", "english"]
        assert agree(router)
