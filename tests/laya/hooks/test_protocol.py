"""What counts as a hook, and how arguments become one ordered list."""

from __future__ import annotations

from typing import Any

import pytest

import laya
from laya.hooks import HOOK_EVENTS, BaseHook, Hook, HookRegistry, PredictContext, normalise_hooks, set_default_hooks

EVENTS = {"on_predict_start", "on_predict_end", "on_route", "on_load", "on_evict", "on_error"}


class Start:
    def on_predict_start(self, ctx: PredictContext) -> None: ...


class End:
    def on_predict_end(self, ctx: PredictContext) -> None: ...


class Nothing:
    on_prediction = print


class NotCallable:
    on_predict_end = "log"


class AlsoCallable:
    """A hook may have more than the six, and may be called itself."""

    name = "audit"

    def __call__(self, ctx: PredictContext) -> None: ...

    def on_error(self, ctx: PredictContext) -> None: ...


def events_of(hook: Any) -> set[str]:
    return {event for event in HOOK_EVENTS if callable(getattr(hook, event, None))}


def test_the_six_events() -> None:
    assert isinstance(HOOK_EVENTS, tuple)
    assert len(HOOK_EVENTS) == 6
    assert set(HOOK_EVENTS) == EVENTS


class TestBaseHook:
    def test_has_all_six_and_they_do_nothing(self) -> None:
        assert events_of(BaseHook()) == EVENTS
        ctx = PredictContext(states=[], questions={})
        before = dict(vars(ctx))
        assert [getattr(BaseHook(), event)(ctx) for event in HOOK_EVENTS] == [None] * 6
        assert vars(ctx) == before

    def test_is_a_hook_to_the_type_checker(self) -> None:
        hook: Hook = BaseHook()
        assert normalise_hooks(hook) == [hook]

    def test_a_subclass_may_call_super(self) -> None:
        class Audit(BaseHook):
            def on_predict_end(self, ctx: PredictContext) -> None:
                super().on_predict_end(ctx)
                ctx.results = []

        ctx = PredictContext(states=[], questions={})
        Audit().on_predict_end(ctx)
        assert ctx.results == []


class TestNormaliseHooks:
    def test_nothing(self) -> None:
        assert normalise_hooks() == []
        assert normalise_hooks([], [], ()) == []

    def test_one_object_or_a_sequence_of_them(self) -> None:
        start, end = Start(), End()
        assert normalise_hooks(start) == [start]
        assert normalise_hooks([start, end]) == [start, end]
        assert normalise_hooks((end, start)) == [end, start]

    def test_a_callable_becomes_a_hook_of_its_one_event(self) -> None:
        seen: list[PredictContext] = []
        start, end = normalise_hooks(on_predict_start=seen.append, on_predict_end=seen.append)
        assert (events_of(start), events_of(end)) == ({"on_predict_start"}, {"on_predict_end"})
        ctx = PredictContext(states=[], questions={})
        start.on_predict_start(ctx)
        end.on_predict_end(ctx)
        assert seen == [ctx, ctx]

    def test_objects_then_start_callables_then_end_callables(self) -> None:
        order: list[str] = []
        hook = Start()
        found = normalise_hooks(
            hook,
            [lambda ctx: order.append("s1"), lambda ctx: order.append("s2")],
            [lambda ctx: order.append("e1"), lambda ctx: order.append("e2")],
        )
        assert found[0] is hook
        ctx = PredictContext(states=[], questions={})
        for each in found:
            for event in events_of(each):
                getattr(each, event)(ctx)
        assert order == ["s1", "s2", "e1", "e2"]

    def test_the_same_object_twice_stays_twice(self) -> None:
        hook = Start()
        assert normalise_hooks([hook, hook]) == [hook, hook]

    def test_a_hook_that_is_callable_is_a_hook(self) -> None:
        hook = AlsoCallable()
        assert normalise_hooks(hook) == [hook]

    def test_the_callers_list_is_not_kept(self) -> None:
        given = [Start()]
        found = normalise_hooks(given)
        given.clear()
        assert len(found) == 1


BAD: dict[str, dict[str, Any]] = {
    "a class instead of an instance": {"hooks": Start},
    "a class in a list": {"hooks": [Start(), End]},
    "none of the six events": {"hooks": Nothing()},
    "any object": {"hooks": object()},
    "a text": {"hooks": "on_predict_start"},
    "a plain function": {"hooks": lambda ctx: None},
    "an event that is not callable": {"hooks": NotCallable()},
    "no callable at the start": {"on_predict_start": "log"},
    "no callable in a list at the start": {"on_predict_start": [print, 3]},
    "no callable at the end": {"on_predict_end": Start()},
    "a mapping of callables": {"on_predict_end": {"log": print}},
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
class TestRefused:
    def test_when_normalised(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            normalise_hooks(**arguments)

    def test_at_construction(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            HookRegistry(**arguments)
        with pytest.raises(TypeError):
            laya.Router(**arguments)

    def test_as_defaults(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            set_default_hooks(**arguments)

    def test_at_the_call_before_anything_happens(self, arguments: dict[str, Any], tiny: laya.Agent, make_hook: Any) -> None:
        watching = make_hook()
        with tiny.hooks_installed(watching):
            for call in (tiny.predict_batch, tiny.predict_long):
                with pytest.raises(TypeError):
                    call(["x"], {}, **arguments)
            with pytest.raises(TypeError):
                tiny.system_one("x", {}, **arguments)
        assert watching.events == []


class TestMessages:
    def test_a_class_is_told_to_be_called(self) -> None:
        with pytest.raises(TypeError, match=r"Start\(\)"):
            normalise_hooks(Start)

    def test_a_function_is_told_where_it_belongs(self) -> None:
        with pytest.raises(TypeError, match=r"on_predict_start=.*on_predict_end="):
            normalise_hooks(print)

    def test_the_event_at_fault_is_named(self) -> None:
        with pytest.raises(TypeError, match="on_predict_end"):
            normalise_hooks(NotCallable())
