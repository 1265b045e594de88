"""Where hooks are kept: on a runtime, for a block, and for the whole process."""

from __future__ import annotations

import pickle
import threading
from contextlib import ExitStack
from typing import Any

import pytest

import laya
from laya import hooks
from laya.hooks import BaseHook, HookRegistry, PredictContext, compose_hooks, default_hooks
from laya.hooks.dispatch import HookTurn

QUESTIONS = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}


def three() -> tuple[BaseHook, BaseHook, BaseHook]:
    return BaseHook(), BaseHook(), BaseHook()


class TestAddAndRemove:
    def test_hooks_stand_in_the_order_added(self) -> None:
        a, b, c = three()
        assert HookRegistry([a]).add_hook(b).add_hook([c, a]).hooks == [a, b, c, a]

    def test_add_returns_the_runtime_itself(self) -> None:
        registry = HookRegistry()
        assert registry.add_hook(BaseHook()) is registry

    def test_remove_goes_by_identity_and_tells_whether_it_was_there(self) -> None:
        class Equal(BaseHook):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = object.__hash__

        a, b = Equal(), Equal()
        registry = HookRegistry([a])
        assert registry.remove_hook(b) is False
        assert registry.hooks[0] is a
        assert registry.remove_hook(a) is True
        assert registry.hooks == []
        assert registry.remove_hook(a) is False

    @pytest.mark.parametrize("bad", [print, BaseHook, object(), [BaseHook(), print]], ids=["callable", "class", "object", "list"])
    def test_what_is_no_hook_is_refused_and_nothing_added(self, bad: Any) -> None:
        registry = HookRegistry()
        with pytest.raises(TypeError):
            registry.add_hook(bad)
        assert registry.hooks == []

    def test_the_list_seen_is_a_copy(self) -> None:
        registry = HookRegistry([BaseHook()])
        registry.hooks.clear()
        assert len(registry.hooks) == 1

    def test_threads_lose_nothing(self) -> None:
        registry, keep = HookRegistry(), BaseHook()
        barrier = threading.Barrier(8)

        def work() -> None:
            barrier.wait(30)
            for _ in range(100):
                hook = BaseHook()
                registry.add_hook([hook, keep])
                assert registry.remove_hook(hook)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(registry.hooks) == 800
        assert all(hook is keep for hook in registry.hooks)


class TestSnapshot:
    def test_a_call_in_flight_is_not_disturbed(self, tiny: laya.Agent, make_hook: Any) -> None:
        late = make_hook()

        def swap(ctx: PredictContext) -> None:
            tiny.add_hook(late)
            assert tiny.remove_hook(early)

        early = make_hook(on_predict_start=swap)
        tiny.add_hook(early)
        try:
            tiny.system_one("x", QUESTIONS)
            assert early.events == ["on_predict_start", "on_predict_end"]
            assert late.events == []
            tiny.system_one("x", QUESTIONS)
            assert len(early.events) == 2
            assert late.events == ["on_predict_start", "on_predict_end"]
        finally:
            tiny.remove_hook(late)


class TestHooksInstalled:
    def test_for_the_block_and_no_longer(self) -> None:
        a, b, c = three()
        registry = HookRegistry([a])
        with registry.hooks_installed(b, [c]) as inside:
            assert inside is registry
            assert registry.hooks == [a, b, c]
        assert registry.hooks == [a]

    def test_also_when_the_block_raises(self) -> None:
        registry = HookRegistry()
        with pytest.raises(KeyError), registry.hooks_installed(BaseHook()):
            raise KeyError
        assert registry.hooks == []

    def test_nothing_to_install(self) -> None:
        registry = HookRegistry()
        with registry.hooks_installed():
            assert registry.hooks == []

    def test_a_hook_that_was_there_before_stays(self) -> None:
        a, b, _ = three()
        registry = HookRegistry([a, b])
        with registry.hooks_installed(a):
            assert registry.hooks == [a, b, a]
        assert registry.hooks == [a, b]

    def test_one_bad_hook_installs_none(self) -> None:
        bad: Any = print
        registry = HookRegistry()
        with pytest.raises(TypeError), registry.hooks_installed(BaseHook(), bad):
            pytest.fail("the block ran")
        assert registry.hooks == []

    def test_nested(self) -> None:
        a, b, _ = three()
        registry = HookRegistry()
        with registry.hooks_installed(a):
            with registry.hooks_installed(b):
                assert registry.hooks == [a, b]
            assert registry.hooks == [a]
        assert registry.hooks == []

    def test_blocks_of_two_threads_that_overlap(self) -> None:
        """Neither block's end may take the other's hook along, nor bring its own back."""
        a, b, _ = three()
        registry = HookRegistry()
        first, second = ExitStack(), ExitStack()
        first.enter_context(registry.hooks_installed(a))
        second.enter_context(registry.hooks_installed(b))
        first.close()
        assert registry.hooks == [b]
        second.close()
        assert registry.hooks == []

    def test_a_hook_added_inside_the_block_stays(self) -> None:
        a, b, _ = three()
        registry = HookRegistry()
        with registry.hooks_installed(a):
            registry.add_hook(b)
        assert registry.hooks == [b]

    def test_a_hook_taken_off_inside_the_block(self) -> None:
        a, b, _ = three()
        registry = HookRegistry([b])
        with registry.hooks_installed(a):
            assert registry.remove_hook(a)
            assert registry.hooks == [b]
        assert registry.hooks == [b]


class TestDefaults:
    def test_set_replaces_add_appends_clear_removes(self) -> None:
        a, b, c = three()
        assert default_hooks() == []
        hooks.set_default_hooks(hooks=[a])
        hooks.add_default_hook(b)
        assert default_hooks() == [a, b]
        hooks.set_default_hooks(c)
        assert default_hooks() == [c]
        hooks.clear_default_hooks()
        assert default_hooks() == []

    def test_set_takes_the_callables_too(self) -> None:
        hooks.set_default_hooks(on_predict_start=print, on_predict_end=[print, print])
        assert len(default_hooks()) == 3

    def test_set_without_arguments_leaves_none(self) -> None:
        hooks.set_default_hooks(BaseHook())
        hooks.set_default_hooks()
        assert default_hooks() == []

    def test_a_bad_set_leaves_the_old_one(self) -> None:
        a, _, _ = three()
        hooks.set_default_hooks(a)
        with pytest.raises(TypeError):
            hooks.set_default_hooks([BaseHook(), object()])
        assert default_hooks() == [a]

    def test_what_is_returned_is_a_copy(self) -> None:
        hooks.set_default_hooks(BaseHook())
        default_hooks().clear()
        assert len(default_hooks()) == 1

    def test_compose_puts_them_first(self) -> None:
        a, b, c = three()
        hooks.set_default_hooks(a)
        registry = HookRegistry([b, c])
        assert compose_hooks(registry.hooks) == [a, b, c]
        assert registry.hooks == [b, c]


class TestOrder:
    def test_defaults_then_installed_then_per_call(self, tiny: laya.Agent) -> None:
        order: list[str] = []

        def note(name: str) -> Any:
            return lambda ctx: order.append(name)

        hooks.set_default_hooks(on_predict_start=note("default"), on_predict_end=note("default ends"))
        class_hook = type("Installed", (BaseHook,), {"on_predict_start": lambda self, ctx: order.append("installed")})()
        with tiny.hooks_installed(class_hook):
            tiny.system_one("x", QUESTIONS, on_predict_start=note("per call"), on_predict_end=note("per call ends"))
        assert order == ["default", "installed", "per call", "default ends", "per call ends"]

    def test_defaults_are_read_at_each_call(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        tiny.system_one("x", QUESTIONS)
        hooks.add_default_hook(hook)
        tiny.system_one("x", QUESTIONS)
        assert hook.events == ["on_predict_start", "on_predict_end"]
        hooks.clear_default_hooks()
        tiny.system_one("x", QUESTIONS)
        assert len(hook.events) == 2

    def test_they_apply_to_a_router_built_before_also_at_load_and_evict(self, quiet_folder: Any, make_hook: Any) -> None:
        router = laya.Router(models={"english": quiet_folder}, device="cpu")
        hook = make_hook()
        hooks.set_default_hooks(hook)
        router.load("english")
        router.route("hello", model="english")
        router.unload("english")
        assert hook.events == ["on_load", "on_route", "on_evict"]


class TestPolicies:
    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, False, "1", [1]])
    def test_a_timeout_is_positive_and_finite(self, timeout: Any, tiny: laya.Agent, make_hook: Any) -> None:
        with pytest.raises(ValueError, match="hooks_timeout"):
            HookRegistry(hooks_timeout=timeout)
        with pytest.raises(ValueError, match="hooks_timeout"):
            laya.Router(hooks_timeout=timeout)
        hook = make_hook()
        for call in (tiny.system_one, tiny.predict_long):
            with pytest.raises(ValueError, match="hooks_timeout"):
                call("x", QUESTIONS, hooks=hook, hooks_timeout=timeout)
        assert hook.events == []

    @pytest.mark.parametrize("timeout", [None, 1, 0.5])
    def test_others_are_taken(self, timeout: Any) -> None:
        assert HookRegistry(hooks_timeout=timeout).hooks_timeout == timeout

    @pytest.mark.parametrize(
        ("installed", "per_call", "raises"), [(True, None, True), (True, False, False), (False, None, False), (False, True, True)]
    )
    def test_hooks_raise_of_the_call_comes_before_that_of_the_instance(
        self, installed: bool, per_call: bool | None, raises: bool, tiny: laya.Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(ctx: PredictContext) -> None:
            raise LookupError("hook")

        monkeypatch.setattr(tiny, "hooks_raise", installed)
        if raises:
            with pytest.raises(LookupError, match="hook"):
                tiny.system_one("x", QUESTIONS, on_predict_start=fail, hooks_raise=per_call)
        else:
            with pytest.warns(RuntimeWarning, match="LookupError: hook"):
                result = tiny.system_one("x", QUESTIONS, on_predict_start=fail, hooks_raise=per_call)
            assert list(result["answers"]) == ["refund"]


@pytest.mark.parametrize("hooks_concurrent", [True, False])
def test_a_registry_travels_without_its_locks(hooks_concurrent: bool) -> None:
    registry = HookRegistry([BaseHook()], hooks_raise=False, hooks_concurrent=hooks_concurrent, hooks_timeout=1.5)
    there: HookRegistry = pickle.loads(pickle.dumps(registry))
    assert ([type(hook) for hook in there.hooks], there.hooks_raise, there.hooks_timeout) == ([BaseHook], False, 1.5)
    held: list[bool] = []

    def look(ctx: PredictContext) -> None:
        turn = there._call_hooks().lock
        held.append(isinstance(turn, HookTurn) and turn.locked())

    there.add_hook(type("Probe", (), {"on_load": lambda self, ctx: look(ctx)})())
    there._call_hooks().fire("on_load", PredictContext(states=[], questions={}))
    assert held == [not hooks_concurrent]
    assert len(registry.hooks) == 1
