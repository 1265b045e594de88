"""The reference of the hooks API, sentence by sentence, and everything that its pages and examples show.

The classes of the first part stand in the reference's order and carry its headings, so that the two can be read side by side. The
second part runs every Python block of docs/hooks and every script of examples/hooks.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import hashlib
import inspect
import json
import logging
import re
import runpy
import threading
import time
import typing
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import laya
from laya import BaseHook, Hook, PredictContext, PredictHook, hooks
from laya.hooks import (
    HOOK_EVENTS,
    AsyncHook,
    HookRegistry,
    aggregate_usage,
    dispatch,
    normalise_hooks,
    run_coroutine_sync,
)

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "hooks").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples" / "hooks").glob("*.py"))

NOUL: dict[str, Any] = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}
WRONG: dict[str, Any] = {"refund": {"type": "no such type", "instructions": "?"}}
SUPPLIED: dict[str, Any] = {"model": "a hook", "answers": {}, "usage": {"input_tokens": 3, "output_tokens": 0}}
LONG = "the invoice was paid twice and nobody answers " * 20
FIELDS = [name for name in inspect.signature(PredictContext).parameters if name not in ("lang", "request_ids")]

MakeRouter = Callable[..., laya.Router]


def context(*states: Any, **fields: Any) -> PredictContext:
    return PredictContext(states=list(states), questions=fields.pop("questions", {}), **fields)


def skip(ctx: PredictContext) -> None:
    ctx.skip([copy.deepcopy(SUPPLIED) for _ in ctx.states])


def fail(ctx: PredictContext) -> None:
    raise LookupError("the hook's own")


class Snapshots:
    """All six events: notes what the context holds then; the context itself goes on changing."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        for event in HOOK_EVENTS:
            setattr(self, event, self._taker(event))

    def _taker(self, event: str) -> Callable[[PredictContext], None]:
        return lambda ctx: self.seen.append((event, dict(vars(ctx))))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.seen]

    def of(self, event: str) -> dict[str, Any]:
        """The one context that an event saw."""
        (found,) = [fields for name, fields in self.seen if name == event]
        return found

    def set_at(self, event: str) -> set[str]:
        """The reference's fields that were not None then."""
        return {name for name in FIELDS if self.of(event)[name] is not None}


@contextmanager
def background_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(30)
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.fixture
def make_router(quiet_folder: Path) -> MakeRouter:
    """Makes Routers whose every checkpoint is the golden one, on the CPU."""

    def make(**options: Any) -> laya.Router:
        models = dict.fromkeys(("english", "multilingual", "typed-decisions"), quiet_folder)
        return laya.Router(models=models, device="cpu", **options)

    return make


@pytest.fixture
def router(make_router: MakeRouter, tiny: laya.Agent) -> laya.Router:
    """A Router whose English checkpoint is there already."""
    made = make_router()
    made.attach("english", tiny)
    return made


def ask(router: laya.Router, **options: Any) -> Any:
    return router.predict("x", NOUL, model="english", **options)


# ---------------------------------------------------------------- the reference


class TestImportable:
    """Everything from laya (the common names) or laya.hooks (the whole surface)."""

    @pytest.mark.parametrize(
        "name", ["PredictContext", "PredictHook", "Hook", "BaseHook", "AsyncHook", "Agent", "Router", "ONNXAgent", "load"]
    )
    def test_from_laya(self, name: str) -> None:
        assert name in laya.__all__
        assert getattr(laya, name) is not None

    @pytest.mark.parametrize(
        "name",
        [
            *["PredictContext", "Hook", "BaseHook", "PredictHook", "HookRegistry", "AsyncHook"],
            *["set_default_hooks", "add_default_hook", "clear_default_hooks", "default_hooks", "compose_hooks"],
            *["HOOK_EVENTS", "normalise_hooks", "dispatch", "run_coroutine_sync", "aggregate_usage"],
        ],
    )
    def test_from_laya_hooks(self, name: str) -> None:
        assert name in hooks.__all__
        assert getattr(laya, name, getattr(hooks, name)) is getattr(hooks, name)


class TestPredictContext:
    @pytest.mark.parametrize("call", ["system_one", "predict", "predict_batch", "predict_long"])
    def test_once_per_public_call_and_the_same_for_every_hook(self, tiny: laya.Agent, call: str) -> None:
        seen: list[PredictContext] = []
        state = ["a", "b"] if call == "predict_batch" else LONG
        with tiny.hooks_installed(*normalise_hooks(on_predict_start=seen.append)):
            getattr(tiny, call)(state, NOUL, on_predict_start=seen.append, on_predict_end=seen.append)
        assert len(seen) == 3
        assert len(set(seen)) == 1

    def test_of_router_predict_batch_one_per_request_with_one_state(self, router: laya.Router) -> None:
        seen: list[PredictContext] = []
        requests = [{"state": state, "questions": NOUL, "model": "english"} for state in ("a", "b", "c")]
        router.predict_batch(requests, on_predict_start=seen.append)
        assert [ctx.states for ctx in seen] == [["a"], ["b"], ["c"]]
        assert len(set(seen)) == 3

    def test_hooks_may_rewrite_states_and_questions(self, tiny: laya.Agent) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.states = ["a", "b"]
            ctx.questions = {"other": NOUL["refund"]}

        results = tiny.predict_batch(["x"], WRONG, on_predict_start=rewrite)
        assert results == tiny.predict_batch(["a", "b"], {"other": NOUL["refund"]})

    def test_hooks_may_rewrite_results(self, tiny: laya.Agent) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.results = [SUPPLIED]

        assert tiny.system_one("x", NOUL, on_predict_end=rewrite) is SUPPLIED

    def test_on_route_may_rewrite_the_decision(self, router: laya.Router, make_hook: Any) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.decision = {"model": "english", "reason": "because"}

        hook = make_hook(on_route=rewrite)
        assert router.predict("x", NOUL, model="multilingual", hooks=hook)["routing"]["model"] == "english"
        assert router.route("x", model="multilingual", hooks=hook).reason == "because"
        assert router.loaded == ["english"]

    def test_compared_by_identity_and_hashable(self) -> None:
        assert PredictContext.__eq__ is object.__eq__
        one = context("a")
        other = copy.copy(one)
        assert one != other
        assert len({one, other, one}) == 2

    def test_fields_in_order_with_defaults(self) -> None:
        parameters = list(inspect.signature(PredictContext).parameters.values())
        names = "states questions run_id results decision model agent router max_len head_max_len usage started_at elapsed_ms error"
        assert [parameter.name for parameter in parameters][: len(names.split())] == names.split()
        assert [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty] == ["states", "questions"]
        fresh = vars(PredictContext(["a"], {"q": 1}))
        assert {name: value for name, value in fresh.items() if value is not None}.keys() == {"states", "questions", "run_id", "started_at"}
        assert (fresh["states"], fresh["questions"]) == (["a"], {"q": 1})

    def test_types(self) -> None:
        types = typing.get_type_hints(PredictContext)
        assert {name: types[name] for name in FIELDS} == {
            "states": list[Any],
            "questions": dict[str, Any],
            "run_id": str,
            "results": list[dict[str, Any]] | None,
            "decision": dict[str, Any] | None,
            "model": str | None,
            "agent": Any,
            "router": Any,
            "max_len": int | None,
            "head_max_len": int | None,
            "usage": dict[str, int] | None,
            "started_at": float,
            "elapsed_ms": float | None,
            "error": BaseException | None,
        }

    def test_run_id_is_the_hex_of_a_uuid4_and_started_at_a_perf_counter(self) -> None:
        before = time.perf_counter()
        one, other = context(), context()
        assert uuid.UUID(hex=one.run_id).version == 4
        assert one.run_id == uuid.UUID(hex=one.run_id).hex != other.run_id
        assert before <= one.started_at <= other.started_at <= time.perf_counter()


class TestSkip:
    def test_sets_results(self) -> None:
        ctx = context("a")
        ctx.skip([SUPPLIED])
        assert ctx.results == [SUPPLIED]

    def test_the_forward_pass_is_skipped_the_end_runs_and_the_results_are_returned(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook(on_predict_start=skip)
        assert tiny.system_one("x", WRONG, hooks=hook) == SUPPLIED  # these questions fail in any forward pass
        assert tiny.predict_batch(["x", "y"], WRONG, hooks=hook) == [SUPPLIED, SUPPLIED]
        assert hook.events == ["on_predict_start", "on_predict_end"] * 2

    def test_hooks_fire_once_a_call_with_every_state_at_once(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        tiny.predict_batch(["a", "b", "c"], NOUL, hooks=hook)
        assert [ctx.states for ctx in hook.contexts("on_predict_start")] == [["a", "b", "c"]]

    def test_on_a_router_a_skipped_payload_gets_its_routing(self, router: laya.Router) -> None:
        decision = router.route("x", model="english")
        assert ask(router, on_predict_start=skip) == {**SUPPLIED, "routing": decision}

    def test_without_overwriting_one_that_it_has(self, router: laya.Router) -> None:
        own = {**SUPPLIED, "routing": {"model": "of its own"}}
        assert ask(router, on_predict_start=lambda ctx: ctx.skip([own])) == own


class TestHookProtocol:
    def test_is_a_protocol_of_the_six_events(self) -> None:
        assert typing.is_protocol(Hook) if hasattr(typing, "is_protocol") else getattr(Hook, "_is_protocol", False)
        for event in HOOK_EVENTS:
            assert list(inspect.signature(getattr(Hook, event)).parameters) == ["self", "ctx"]
            assert typing.get_type_hints(getattr(Hook, event)) == {"ctx": PredictContext, "return": type(None)}

    @pytest.mark.parametrize("event", HOOK_EVENTS)
    def test_any_subset_will_do_and_the_rest_is_skipped(self, make_router: MakeRouter, event: str) -> None:
        seen: list[PredictContext] = []
        only = type("Only", (), {event: lambda self, ctx: seen.append(ctx)})()
        watched = make_router(hooks=only)
        watched.predict("x", NOUL, model="english")
        with suppress(ValueError):
            watched.predict("x", WRONG, model="english")
        watched.unload()
        assert len(seen) == {"on_load": 1, "on_evict": 1, "on_error": 1}.get(event, 2)

    def test_only_the_six_names_are_consulted(self, tiny: laya.Agent) -> None:
        class Watched:
            on_predict_middle = None
            asked: typing.ClassVar[set[str]] = set()

            def __getattribute__(self, name: str) -> Any:
                if not name.startswith("__"):
                    Watched.asked.add(name)
                return object.__getattribute__(self, name)

            def on_predict_end(self, ctx: PredictContext) -> None:
                pass

        tiny.system_one("x", NOUL, hooks=Watched())
        assert Watched.asked <= set(HOOK_EVENTS)

    @pytest.mark.parametrize("value", ["not callable", None], ids=["text", "None"])
    @pytest.mark.parametrize("event", HOOK_EVENTS)
    def test_one_of_the_six_that_is_not_callable_fails_at_configuration(self, event: str, value: Any) -> None:
        hook = type("Wrong", (BaseHook,), {event: value})()
        with pytest.raises(TypeError, match=event):
            laya.Router(hooks=hook)


class TestBaseHook:
    def test_has_an_empty_body_for_every_event(self) -> None:
        ctx = context("x")
        before = dict(vars(ctx))
        assert [getattr(BaseHook(), event)(ctx) for event in HOOK_EVENTS] == [None] * 6
        assert vars(ctx) == before

    def test_subclasses_override_what_they_need_and_may_call_super(self, tiny: laya.Agent) -> None:
        shipped: list[Any] = []

        class Audit(BaseHook):
            def on_predict_end(self, ctx: PredictContext) -> None:
                super().on_predict_end(ctx)
                shipped.append((ctx.run_id, ctx.results))

        result = tiny.system_one("x", NOUL, hooks=Audit())
        assert [results for _, results in shipped] == [[result]]

    def test_is_the_concrete_counterpart_of_the_protocol(self) -> None:
        hook: Hook = BaseHook()
        assert normalise_hooks(hook) == [hook]


class TestConvenienceTypes:
    def test_predict_hook_is_a_callable_of_a_context_that_returns_nothing(self) -> None:
        assert typing.get_args(PredictHook) == ([PredictContext], None)

    @pytest.mark.parametrize("event", ["on_predict_start", "on_predict_end"])
    def test_one_or_a_sequence_each_wrapped_into_a_minimal_hook(self, tiny: laya.Agent, event: str) -> None:
        seen: list[PredictContext] = []
        ways: list[Any] = [seen.append, [seen.append, seen.append], (seen.append, seen.append, seen.append)]
        for given in ways:
            tiny.system_one("x", NOUL, **{event: given})
        assert len(seen) == 1 + 2 + 3
        (wrapped,) = normalise_hooks(**{event: seen.append})
        assert [name for name in HOOK_EVENTS if hasattr(wrapped, name)] == [event]


class TestRuntimeRegistration:
    @pytest.mark.parametrize("runtime", ["Agent", "Router", "ONNXAgent"])
    def test_every_runtime_mixes_in_the_registry(self, runtime: str) -> None:
        assert issubclass(getattr(laya, runtime), HookRegistry)

    def test_add_hook_takes_one_or_a_sequence_and_returns_self(self) -> None:
        a, b, c = BaseHook(), BaseHook(), BaseHook()
        router = laya.Router()
        assert router.add_hook(a).add_hook([b, c]) is router
        assert router.hooks == [a, b, c]

    def test_remove_hook_goes_by_identity_and_tells_whether_it_was_installed(self) -> None:
        class Alike(BaseHook):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = BaseHook.__hash__

        installed = Alike()
        router = laya.Router(hooks=installed)
        assert router.remove_hook(Alike()) is False
        assert router.remove_hook(installed) is True
        assert router.remove_hook(installed) is False

    def test_hooks_installed_for_the_block_and_removed_on_exit(self, tiny: laya.Agent, make_hook: Any) -> None:
        debug = make_hook()
        with tiny.hooks_installed(debug):
            tiny.system_one("x", NOUL)
        tiny.system_one("x", NOUL)
        assert debug.events == ["on_predict_start", "on_predict_end"]

    def test_hooks_installed_takes_any_number_of_hooks_and_sequences(self) -> None:
        a, b, c, d = (BaseHook() for _ in range(4))
        router = laya.Router(hooks=a)
        with router.hooks_installed(b, [c, d]):
            assert router.hooks == [a, b, c, d]
        assert router.hooks == [a]

    def test_the_previous_list_is_restored_when_the_block_raises(self) -> None:
        kept = BaseHook()
        router = laya.Router(hooks=kept)
        with pytest.raises(KeyError), router.hooks_installed(BaseHook()):
            raise KeyError
        assert router.hooks == [kept]

    def test_plain_callables_are_not_taken(self) -> None:
        router = laya.Router()
        with pytest.raises(TypeError):
            router.add_hook(print)
        with pytest.raises(TypeError), router.hooks_installed(print):
            pass

    def test_mutation_is_thread_safe(self) -> None:
        router = laya.Router()

        def work(_: int) -> None:
            for _ in range(200):
                hook = BaseHook()
                router.add_hook(hook)
                assert router.remove_hook(hook)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert router.hooks == []

    def test_a_call_in_flight_reads_a_snapshot(self, tiny: laya.Agent, make_hook: Any) -> None:
        late = make_hook()

        def swap(ctx: PredictContext) -> None:
            tiny.add_hook(late)
            tiny.remove_hook(early)

        early = make_hook(on_predict_start=swap)
        tiny.add_hook(early)
        tiny.system_one("x", NOUL)
        tiny.remove_hook(late)
        assert early.events == ["on_predict_start", "on_predict_end"]
        assert late.events == []


class TestProcessWideDefaults:
    def test_defaults_then_installed_then_per_call(self, tiny: laya.Agent, make_hook: Any) -> None:
        order: list[str] = []
        per_call, installed, default = (
            make_hook(on_predict_start=lambda ctx, name=name: order.append(name)) for name in ("per call", "installed", "default")
        )
        hooks.set_default_hooks(hooks=[default])
        with tiny.hooks_installed(installed):
            tiny.system_one("x", NOUL, hooks=per_call)
        assert order == ["default", "installed", "per call"]

    def test_set_replaces_the_set_and_takes_the_hooks_arguments(self) -> None:
        first, second = BaseHook(), BaseHook()
        hooks.set_default_hooks(hooks=[first])
        hooks.set_default_hooks(hooks=second, on_predict_start=print, on_predict_end=[print, print])
        assert hooks.default_hooks()[0] is second
        assert [[event for event in HOOK_EVENTS if hasattr(hook, event)] for hook in hooks.default_hooks()[1:]] == [
            ["on_predict_start"],
            ["on_predict_end"],
            ["on_predict_end"],
        ]

    def test_add_appends_clear_removes_everything_and_the_list_is_a_copy(self) -> None:
        first, second = BaseHook(), BaseHook()
        hooks.set_default_hooks(first)
        hooks.add_default_hook(second)
        hooks.default_hooks().clear()
        assert hooks.default_hooks() == [first, second]
        hooks.clear_default_hooks()
        assert hooks.default_hooks() == []

    def test_compose_is_defaults_and_installed(self) -> None:
        default, installed = BaseHook(), BaseHook()
        hooks.set_default_hooks(default)
        assert hooks.compose_hooks(laya.Router(hooks=installed).hooks) == [default, installed]

    def test_they_get_every_event_and_also_of_runtimes_built_before(self, make_router: MakeRouter, make_hook: Any) -> None:
        built_before = make_router()
        hook = make_hook()
        hooks.set_default_hooks(hook)
        with pytest.raises(ValueError, match="refund"):
            built_before.predict("x", WRONG, model="english")
        built_before.unload()
        assert set(hook.events) == set(HOOK_EVENTS)

    def test_there_is_no_opt_out_but_clear(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        hooks.set_default_hooks(hook)
        tiny.system_one("x", NOUL, hooks=[], on_predict_start=[], on_predict_end=[])
        assert len(hook.events) == 2
        hooks.clear_default_hooks()
        tiny.system_one("x", NOUL)
        assert len(hook.events) == 2


class TestAsyncHooks:
    def test_async_methods_run_to_completion_in_the_call(self, tiny: laya.Agent) -> None:
        shipped: list[Any] = []

        class Remote:
            async def on_predict_end(self, ctx: PredictContext) -> None:
                await asyncio.sleep(0.01)
                shipped.append(ctx.results)

        result = tiny.system_one("x", NOUL, hooks=[AsyncHook(Remote())])
        assert shipped == [[result]]

    @pytest.mark.parametrize("event", ["on_predict_start", "on_predict_end"])
    def test_a_plain_async_callable_works_too(self, tiny: laya.Agent, event: str) -> None:
        seen: list[str] = []

        async def note(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append(ctx.run_id)

        arguments: dict[str, Any] = {event: note}
        tiny.system_one("x", NOUL, **arguments)
        assert len(seen) == 1

    def test_without_a_running_loop_by_asyncio_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ran: list[Any] = []
        run = asyncio.run

        def watched(coro: Any, **options: Any) -> Any:
            ran.append(coro)
            return run(coro, **options)

        monkeypatch.setattr(asyncio, "run", watched)

        async def where() -> int:
            return threading.get_ident()

        assert run_coroutine_sync(where()) == threading.get_ident()
        assert len(ran) == 1

    def test_with_one_on_a_dedicated_background_loop(self, tiny: laya.Agent) -> None:
        found: list[tuple[asyncio.AbstractEventLoop, int]] = []

        async def note(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            found.append((asyncio.get_running_loop(), threading.get_ident()))

        async def caller() -> asyncio.AbstractEventLoop:
            tiny.system_one("x", NOUL, on_predict_start=note, on_predict_end=note)  # would wait for itself on the caller's loop
            return asyncio.get_running_loop()

        own = asyncio.run(caller())
        assert len(set(found)) == 1
        assert found[0][0] is not own
        assert found[0][1] != threading.get_ident()

    def test_on_the_loop_that_was_given(self) -> None:
        found: list[asyncio.AbstractEventLoop] = []

        class Where:
            async def on_predict_start(self, ctx: PredictContext) -> None:
                found.append(asyncio.get_running_loop())

        async def caller(hook: Any) -> None:
            dispatch([hook], "on_predict_start", context())

        with background_loop() as loop:
            hook = AsyncHook(Where(), loop=loop)
            dispatch([hook], "on_predict_start", context())
            asyncio.run(caller(hook))
            assert found == [loop, loop]

    def test_a_stopped_loop_and_the_callers_own_are_value_errors(self) -> None:
        class Never:
            async def on_predict_start(self, ctx: PredictContext) -> None:
                raise AssertionError

        async def caller() -> None:
            dispatch([AsyncHook(Never(), loop=asyncio.get_running_loop())], "on_predict_start", context())

        stopped = asyncio.new_event_loop()
        with pytest.raises(ValueError, match="running"):
            dispatch([AsyncHook(Never(), loop=stopped)], "on_predict_start", context())
        stopped.close()
        with pytest.raises(ValueError, match="own"):
            asyncio.run(caller())

    def test_a_hook_without_async_methods_is_unaffected(self) -> None:
        seen: list[int] = []

        class Plain:
            def on_predict_end(self, ctx: PredictContext) -> None:
                seen.append(threading.get_ident())

        wrapped = AsyncHook(Plain(), loop=asyncio.new_event_loop())
        dispatch([wrapped], "on_predict_end", context())
        assert seen == [threading.get_ident()]
        assert [event for event in HOOK_EVENTS if hasattr(wrapped, event)] == ["on_predict_end"]
        assert wrapped.loop is not None
        wrapped.loop.close()


# Names as the pages write them; the parameters as the reference does, those behind a bare * by keyword alone.
AGENT = """model_id_or_path="convaiinnovations/laya", device=None, token=None, subfolder=None, fast=False, compile=False,
    hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=True, hooks_concurrent=True, hooks_timeout=None"""
ONE = """state, questions, hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None,
    hooks_timeout=None, max_len=None, head_max_len=None"""
ROUTED = """state, questions, model=None, task=None, lang=None, lang_guess=None, hooks=None, on_predict_start=None,
    on_predict_end=None, hooks_raise=None, hooks_timeout=None, max_len=None, head_max_len=None"""

SIGNATURES = {
    "laya.Agent": AGENT,
    "laya.load": AGENT,
    "laya.Agent.predict_batch": """states, questions, batch_size=None, hooks=None, on_predict_start=None, on_predict_end=None,
        hooks_raise=None, hooks_timeout=None, max_len=None, head_max_len=None, sort_by_length=False""",
    "laya.Agent.system_one": ONE,
    "laya.Agent.predict": ONE,
    "laya.Agent.predict_long": """state, questions, window=None, stride=None, aggregate="auto", batch_size=None, lang=None,
        hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None, hooks_timeout=None""",
    "laya.Router": """models=None, device=None, token=None, max_loaded=2, default="english", auto_task_detection=False,
        standalone_repos=False, preload=False, lang_guess=None, hooks=None, on_predict_start=None, on_predict_end=None,
        hooks_raise=True, hooks_concurrent=True""",
    "laya.Router.route": "state, questions=None, model=None, task=None, lang=None, lang_guess=None, hooks=None, hooks_raise=None",
    "laya.Router.route_batch": "requests, hooks_timeout=None, *, hooks=None, hooks_raise=None",
    "laya.Router.predict": ROUTED,
    "laya.Router.system_one": ROUTED,
    "laya.Router.predict_batch": """requests, batch_size=None, hooks_timeout=None, min_confidence=None, sort_by_length=False,
        hooks=None, on_predict_start=None, on_predict_end=None, hooks_raise=None""",
    "laya.Router.load": "name",
    "laya.Router.preload": "names=None",
    "laya.Router.unload": "name=None",
    "laya.Router.attach": "name, agent",
    "laya.ONNXAgent": """model_id_or_path, onnx_path="laya.onnx", subfolder=None, hooks=None, on_predict_start=None,
        on_predict_end=None, hooks_raise=True, hooks_concurrent=True""",
    "laya.ONNXAgent.system_one": ONE,
    "laya.ONNXAgent.predict": ONE,
    "laya.hooks.AsyncHook": "hook, loop=None",
    "laya.hooks.PredictContext.skip": "results",
    "laya.hooks.HookRegistry.add_hook": "hook",
    "laya.hooks.HookRegistry.remove_hook": "hook",
    "laya.hooks.HookRegistry.hooks_installed": "*hooks",
    "laya.hooks.set_default_hooks": "hooks=None, on_predict_start=None, on_predict_end=None",
    "laya.hooks.add_default_hook": "hook",
    "laya.hooks.clear_default_hooks": "",
    "laya.hooks.default_hooks": "",
    "laya.hooks.compose_hooks": "installed",
    "laya.hooks.normalise_hooks": "hooks=None, on_predict_start=None, on_predict_end=None",
    "laya.hooks.dispatch": "hooks, event, ctx, *, raise_errors=True, lock=None, timeout=None",
    "laya.hooks.run_coroutine_sync": "coro, loop=None",
    "laya.hooks.aggregate_usage": "results",
}

# Names by which the API page calls the same things.
SHOWN_AS = {
    **{f"laya.Agent.{name}": f"agent.{name}" for name in ("predict_batch", "system_one", "predict_long")},
    **{
        f"laya.Router.{name}": f"router.{name}"
        for name in ("route", "route_batch", "predict", "predict_batch", "preload", "load", "unload")
    },
    "laya.Router.attach": "router.attach",
    "laya.ONNXAgent.system_one": "onnx_agent.system_one",
    "laya.Agent": "Agent",
    "laya.load": "load",
    "laya.Router": "Router",
    "laya.ONNXAgent": "ONNXAgent",
    "laya.hooks.normalise_hooks": "normalise_hooks",
    "laya.hooks.dispatch": "dispatch",
    "laya.hooks.run_coroutine_sync": "run_coroutine_sync",
    "laya.hooks.aggregate_usage": "aggregate_usage",
    "laya.hooks.HookRegistry.add_hook": "agent.add_hook",
    "laya.hooks.HookRegistry.remove_hook": "agent.remove_hook",
    "laya.hooks.HookRegistry.hooks_installed": "agent.hooks_installed",
    "laya.hooks.PredictContext.skip": "PredictContext.skip",
}


def resolve(name: str) -> Any:
    found: Any = laya
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


class TestSignatures:
    @pytest.mark.parametrize(("name", "written"), SIGNATURES.items(), ids=SIGNATURES)
    def test_names_order_and_defaults(self, name: str, written: str) -> None:
        wanted = list(inspect.signature(eval(f"lambda {' '.join(written.split())}: None")).parameters.values())
        found = [
            parameter.replace(annotation=inspect.Parameter.empty) for parameter in inspect.signature(resolve(name)).parameters.values()
        ]
        found = found[found[:1] != [] and found[0].name == "self" :]
        assert found[: len(wanted)] == wanted
        for extra in found[len(wanted) :]:
            assert extra.kind is inspect.Parameter.KEYWORD_ONLY
            assert extra.default is not inspect.Parameter.empty

    @pytest.mark.parametrize("name", SHOWN_AS)
    def test_the_page_shows_the_same(self, name: str) -> None:
        page = "".join((ROOT / "docs" / "hooks" / "api.md").read_text(encoding="utf-8").split())
        assert f"{SHOWN_AS[name]}({''.join(SIGNATURES[name].split())}" in page


class TestConfigurationOfAnAgent:
    def test_hooks_takes_an_object_or_a_sequence_at_every_entry_point(self, tiny: laya.Agent, quiet_folder: Path, make_hook: Any) -> None:
        a, b = make_hook(), make_hook()
        for given in (a, [a], (a, b)):
            laya.Agent(str(quiet_folder), device="cpu", hooks=given).system_one("x", {})
            for call in (tiny.system_one, tiny.predict, tiny.predict_long):
                call("x", {}, hooks=given)
            tiny.predict_batch(["x"], {}, hooks=given)
        assert (len(a.seen), len(b.seen)) == (2 * 15, 2 * 5)

    def test_load_installs_what_it_is_given(self, quiet_folder: Path) -> None:
        hook = BaseHook()
        agent = laya.load(
            str(quiet_folder), device="cpu", hooks=hook, on_predict_start=print, on_predict_end=print, hooks_raise=False, hooks_timeout=2
        )
        assert isinstance(agent, laya.Agent)
        assert agent.hooks[0] is hook
        assert len(agent.hooks) == 3
        assert (agent.hooks_raise, agent.hooks_timeout) == (False, 2)

    def test_predict_is_an_alias_of_system_one(self) -> None:
        assert laya.Agent.predict is laya.Agent.system_one

    @pytest.mark.parametrize("call", ["system_one", "predict_batch", "predict_long"])
    def test_hooks_raise_none_means_the_instances_value(self, quiet_folder: Path, call: str) -> None:
        agent = laya.load(str(quiet_folder), device="cpu", on_predict_start=fail, hooks_raise=False)
        predict = getattr(agent, call)
        state = ["x"] if call == "predict_batch" else "x"
        with pytest.warns(RuntimeWarning, match="the hook's own"):
            predict(state, NOUL)
        with pytest.raises(LookupError):
            predict(state, NOUL, hooks_raise=True)
        agent.hooks_raise = True
        with pytest.raises(LookupError):
            predict(state, NOUL)
        with pytest.warns(RuntimeWarning, match="the hook's own"):
            predict(state, NOUL, hooks_raise=False)

    @pytest.mark.parametrize("call", ["system_one", "predict_batch", "predict_long"])
    def test_hooks_timeout_none_means_the_instances_value(self, quiet_folder: Path, call: str) -> None:
        released = threading.Event()
        agent = laya.load(str(quiet_folder), device="cpu", hooks_timeout=0.05)
        predict = getattr(agent, call)
        state = ["x"] if call == "predict_batch" else "x"
        with pytest.raises(TimeoutError):
            predict(state, NOUL, on_predict_start=lambda ctx: released.wait(30))
        predict(state, NOUL, on_predict_start=lambda ctx: time.sleep(0.1), hooks_timeout=30)
        agent.hooks_timeout = None
        with pytest.raises(TimeoutError):
            predict(state, NOUL, on_predict_start=lambda ctx: released.wait(30), hooks_timeout=0.05)
        released.set()

    @pytest.mark.parametrize("concurrent", [True, False])
    def test_hooks_concurrent(self, quiet_folder: Path, concurrent: bool) -> None:
        meeting = threading.Barrier(2)
        met: list[bool] = []

        def meet(ctx: PredictContext) -> None:
            try:
                meeting.wait(20 if concurrent else 0.2)
                met.append(True)
            except threading.BrokenBarrierError:
                met.append(False)

        agent = laya.load(str(quiet_folder), device="cpu", on_predict_start=meet, hooks_concurrent=concurrent)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda state: agent.system_one(state, {}), "ab"))
        assert met == [concurrent] * 2


class TestPredictLong:
    """The table: what the start hook did, usage["windows"], answer["window"]."""

    def test_hooks_wrap_one_shared_inference_over_the_decoded_windows(self, tiny: laya.Agent) -> None:
        starts: list[list[Any]] = []
        ends: list[PredictContext] = []
        tiny.predict_long(LONG, NOUL, on_predict_start=lambda ctx: starts.append(list(ctx.states)), on_predict_end=ends.append)
        (windows,) = starts
        assert len(windows) > 2
        assert LONG not in windows
        places = [LONG.find(text.strip()) for text in windows]
        assert places[0] == 0
        assert LONG.rstrip().endswith(windows[-1].strip())
        assert all(isinstance(text, str) and text.strip() in LONG for text in windows)
        (end,) = ends
        assert end.results is not None
        assert len(end.results) == len(windows)

    @pytest.mark.parametrize("state", [LONG, "short"], ids=["long", "fits at once"])
    def test_answered_by_skip(self, tiny: laya.Agent, state: str) -> None:
        own = {**SUPPLIED, "answers": {"refund": {"type": "noul", "noul": 0.5}}}
        result = tiny.predict_long(state, NOUL, on_predict_start=lambda ctx: ctx.skip([own]))
        assert result["usage"]["windows"] == 0
        assert result["answers"] == own["answers"]

    def test_left_as_it_was_built(self, tiny: laya.Agent) -> None:
        windows: list[Any] = []
        result = tiny.predict_long(LONG, NOUL, on_predict_start=lambda ctx: windows.extend(ctx.states))
        assert result["usage"]["windows"] == len(windows) > 1
        span = result["answers"]["refund"]["window"]
        assert span.keys() >= {"index", "token_start", "token_end"}
        assert 0 <= span["index"] < len(windows)
        assert 0 <= span["token_start"] < span["token_end"]
        alone = tiny.system_one(windows[span["index"]], NOUL)["answers"]["refund"]["noul"]
        assert result["answers"]["refund"]["noul"] == pytest.approx(alone, abs=0.02)  # the deciding span is the one that is named

    @pytest.mark.parametrize(
        ("replace", "scored"),
        [
            (lambda windows: windows[:1], 1),
            (lambda windows: windows[:2], 2),
            (lambda windows: [*windows, "more"], None),
            (lambda windows: list(reversed(windows)), None),
            (lambda windows: [text.upper() for text in windows], None),
            (lambda windows: ["a", "b", "c"], 3),
        ],
        ids=["to one", "fewer", "more", "in another order", "rewritten", "others"],
    )
    def test_replaced_in_any_way(self, tiny: laya.Agent, replace: Callable[[list[Any]], list[Any]], scored: int | None) -> None:
        left: list[Any] = []

        def rewrite(ctx: PredictContext) -> None:
            ctx.states = replace(ctx.states)
            left.extend(ctx.states)

        result = tiny.predict_long(LONG, NOUL, on_predict_start=rewrite)
        assert result["usage"]["windows"] == len(left)
        assert scored in (None, len(left))
        assert "window" not in result["answers"]["refund"]

    def test_replaced_in_place(self, tiny: laya.Agent) -> None:
        result = tiny.predict_long(LONG, NOUL, on_predict_start=lambda ctx: ctx.states.reverse())
        assert "window" not in result["answers"]["refund"]

    def test_windows_are_counted_where_the_state_fits_at_once(self, tiny: laya.Agent) -> None:
        assert tiny.predict_long("short", NOUL)["usage"]["windows"] == 1


class TestRouterSurface:
    def test_system_one_is_an_alias_of_predict(self) -> None:
        assert laya.Router.system_one is laya.Router.predict

    def test_load_builds_on_first_use_and_fires_on_load(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        assert router.load("english") is router.load("english")
        assert [(event, ctx.model) for event, ctx in hook.seen] == [("on_load", "english")]

    def test_preload_builds_several_and_fires_per_build(self, make_router: MakeRouter, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.load("english")
        router.preload(["english", "multilingual", "typed-decisions"])
        assert [(event, ctx.model) for event, ctx in hook.seen] == [
            ("on_load", "english"),
            ("on_load", "multilingual"),
            ("on_load", "typed-decisions"),
        ]
        assert sorted(router.loaded) == ["english", "multilingual", "typed-decisions"]

    def test_unload_frees_one_or_all_and_fires_on_evict(self, make_router: MakeRouter, make_hook: Any) -> None:
        router = make_router()
        router.preload()
        hook = make_hook()
        router.add_hook(hook)
        router.unload("english")
        assert "english" not in router.loaded
        router.unload()
        assert router.loaded == []
        assert hook.events == ["on_evict"] * 3
        assert hook.contexts("on_evict")[0].model == "english"

    def test_attach_registers_and_does_not_fire(self, make_router: MakeRouter, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        router = make_router(hooks=hook)
        router.attach("mine", tiny)
        assert hook.events == []
        assert router.loaded == ["mine"]
        assert router.load("mine") is tiny

    @pytest.mark.parametrize("call", ["route", "route_batch", "predict", "predict_batch"])
    def test_per_call_hooks_apply_to_the_whole_call_on_route_included(self, router: laya.Router, make_hook: Any, call: str) -> None:
        hook = make_hook()
        request = {"state": "x", "questions": NOUL, "model": "english"}
        if call.endswith("_batch"):
            getattr(router, call)([request, request], hooks=hook)
        else:
            getattr(router, call)(**request, hooks=hook)
        wanted = {"route": [1, 0], "route_batch": [2, 0], "predict": [1, 1], "predict_batch": [2, 2]}[call]
        assert [hook.events.count(event) for event in ("on_route", "on_predict_start")] == wanted
        assert hook.events.count("on_predict_end") == wanted[1]

    @pytest.mark.parametrize("nothing", [None, []], ids=["None", "empty list"])
    def test_on_predict_batch_the_list_is_composed_as_on_predict_and_runs_per_request(
        self, router: laya.Router, make_hook: Any, nothing: Any
    ) -> None:
        order: list[str] = []
        installed, per_call = (
            make_hook(on_predict_start=lambda ctx, name=name: order.append(f"{name} {ctx.states[0]}")) for name in ("installed", "per call")
        )
        requests = [{"state": state, "questions": NOUL, "model": "english"} for state in "ab"]
        with router.hooks_installed(installed):
            router.predict_batch(requests, hooks=[per_call])
            assert order == ["installed a", "per call a", "installed b", "per call b"]
            order.clear()
            router.predict_batch(requests, hooks=nothing)
            assert order == ["installed a", "installed b"]

    def test_route_is_public_and_dispatches_installed_and_per_call_hooks(self, make_router: MakeRouter, make_hook: Any) -> None:
        installed, per_call = make_hook(), make_hook()
        router = make_router(hooks=installed)
        assert router.route("x", model="english", hooks=per_call).model == "english"
        assert installed.events == per_call.events == ["on_route"]
        assert router.loaded == []


class TestONNXAgent:
    @pytest.fixture
    def onnx(self, quiet_folder: Path, tiny: laya.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """One whose network is never read: which events run does not depend on what computes."""
        network = tmp_path / "laya.onnx"
        network.touch()
        monkeypatch.setattr("laya.onnx_agent.OnnxEngine", lambda *given, **named: tiny._engine)
        return resolve("laya.ONNXAgent")(str(quiet_folder), str(network))

    def test_predict_is_an_alias_of_system_one(self) -> None:
        agent = resolve("laya.ONNXAgent")
        assert agent.predict is agent.system_one

    def test_exposes_only_the_predict_level_events(self, onnx: Any, make_hook: Any) -> None:
        hook = make_hook()
        with onnx.hooks_installed(hook):
            onnx.system_one("x", NOUL)
            with pytest.raises(ValueError, match="refund"):
                onnx.predict("x", WRONG)
        assert hook.events == ["on_predict_start", "on_predict_end", "on_predict_start", "on_error", "on_predict_end"]
        assert not {"route", "load", "unload", "attach"} & set(dir(onnx))


ALWAYS = {"states", "questions", "run_id", "started_at"}


class TestEventPayloads:
    """Which fields are set, by event and runtime."""

    def test_of_an_agents_call(self, tiny: laya.Agent) -> None:
        seen = Snapshots()
        result = tiny.predict_batch(["a", "b"], NOUL, hooks=seen, max_len=48, head_max_len=24)
        assert seen.events == ["on_predict_start", "on_predict_end"]
        start = ALWAYS | {"model", "agent", "max_len", "head_max_len"}
        assert seen.set_at("on_predict_start") == start
        assert seen.set_at("on_predict_end") == start | {"results", "usage", "elapsed_ms"}
        end = seen.of("on_predict_end")
        assert (end["states"], end["questions"], end["model"], end["max_len"], end["head_max_len"]) == (
            *(["a", "b"], NOUL, tiny.model_id),
            *(48, 24),
        )
        assert end["agent"] is tiny
        assert end["results"] == result

    def test_of_an_agents_call_that_fails(self, tiny: laya.Agent) -> None:
        seen = Snapshots()
        with pytest.raises(ValueError, match="refund") as raised:
            tiny.system_one("a", WRONG, hooks=seen)
        assert seen.events == ["on_predict_start", "on_error", "on_predict_end"]
        assert seen.set_at("on_error") == ALWAYS | {"model", "agent", "error"}
        assert seen.set_at("on_predict_end") == ALWAYS | {"model", "agent", "error", "elapsed_ms"}
        assert seen.of("on_error")["error"] is raised.value

    def test_of_a_routers_call(self, router: laya.Router, tiny: laya.Agent) -> None:
        seen = Snapshots()
        result = ask(router, hooks=seen)
        assert seen.events == ["on_route", "on_predict_start", "on_predict_end"]
        routed = ALWAYS | {"decision", "router"}
        assert seen.set_at("on_route") == routed
        assert seen.set_at("on_predict_start") == routed | {"model", "agent"}
        assert seen.set_at("on_predict_end") == routed | {"model", "agent", "results", "usage", "elapsed_ms"}
        assert (seen.of("on_route")["states"], seen.of("on_route")["questions"]) == (["x"], NOUL)
        assert seen.of("on_route")["decision"]["model"] == "english"
        end = seen.of("on_predict_end")
        assert (end["model"], end["agent"], end["router"], end["results"]) == ("english", tiny, router, [result])

    def test_of_a_routers_call_that_fails(self, router: laya.Router) -> None:
        seen = Snapshots()
        with pytest.raises(ValueError, match="refund"):
            router.predict("x", WRONG, model="english", hooks=seen)
        assert seen.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]
        failed = ALWAYS | {"decision", "router", "model", "agent", "error"}
        assert seen.set_at("on_error") == failed
        assert seen.set_at("on_predict_end") == failed | {"elapsed_ms"}

    def test_of_loading_and_evicting(self, make_router: MakeRouter) -> None:
        seen = Snapshots()
        router = make_router(hooks=seen)
        agent = router.load("english")
        router.unload("english")
        assert seen.events == ["on_load", "on_evict"]
        assert seen.set_at("on_load") == ALWAYS | {"model", "agent", "router"}
        assert seen.set_at("on_evict") == ALWAYS | {"model", "router"}
        for event in ("on_load", "on_evict"):
            fields = seen.of(event)
            assert (fields["states"], fields["questions"], fields["model"], fields["router"]) == ([], {}, "english", router)
        assert seen.of("on_load")["agent"] is agent


class TestTimingDetails:
    def test_results_and_usage_after_a_failure_where_a_start_hook_had_skipped(self, tiny: laya.Agent) -> None:
        seen = Snapshots()
        with pytest.raises(LookupError):
            tiny.system_one("x", NOUL, hooks=seen, on_predict_start=[skip, fail])
        assert seen.of("on_error")["results"] == seen.of("on_predict_end")["results"] == [SUPPLIED]
        assert seen.of("on_error")["usage"] is None
        assert seen.of("on_error")["elapsed_ms"] is None
        assert seen.of("on_predict_end")["usage"] == SUPPLIED["usage"]

    @pytest.mark.parametrize("start", [None, skip, fail], ids=["answered", "skipped", "failed"])
    def test_elapsed_ms_is_always_set_at_the_end_and_counts_from_started_at(self, tiny: laya.Agent, start: Any) -> None:
        seen = Snapshots()
        with suppress(LookupError):
            tiny.system_one("x", NOUL, hooks=seen, on_predict_start=start)
        end = seen.of("on_predict_end")
        assert 0 < end["elapsed_ms"] <= (time.perf_counter() - end["started_at"]) * 1000

    def test_usage_is_summed_from_the_results(self, tiny: laya.Agent) -> None:
        seen = Snapshots()
        results = tiny.predict_batch(["a", "b and more of it"], NOUL, hooks=seen)
        assert seen.of("on_predict_end")["usage"] == aggregate_usage(results)

    def test_run_id_is_always_populated_and_the_same_in_a_call(self, make_router: MakeRouter) -> None:
        seen = Snapshots()
        router = make_router(hooks=seen)
        with suppress(ValueError):
            router.predict("x", WRONG, model="english")
        router.unload()
        assert all(re.fullmatch("[0-9a-f]{32}", fields["run_id"]) for _, fields in seen.seen)
        call = [fields["run_id"] for event, fields in seen.seen if event not in ("on_load", "on_evict")]
        assert len(call) == 4
        assert len(set(call)) == 1


class Nothing:
    """No event at all."""


class NotCallable:
    on_predict_end = 3


REFUSED: dict[str, dict[str, Any]] = {
    "a class instead of an instance": {"hooks": BaseHook},
    "a class among hooks": {"hooks": [BaseHook(), BaseHook]},
    "none of the six events": {"hooks": Nothing()},
    "an event that is not callable": {"hooks": NotCallable()},
    "a plain callable": {"hooks": print},
    "no callable at the start": {"on_predict_start": "print"},
    "no callable among those at the start": {"on_predict_start": [print, None]},
    "no callable at the end": {"on_predict_end": BaseHook()},
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
class TestValidation:
    def test_when_normalised(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            normalise_hooks(**arguments)

    def test_at_construction_for_installed_hooks(self, arguments: dict[str, Any], quiet_folder: Path) -> None:
        with pytest.raises(TypeError):
            laya.Router(**arguments)
        with pytest.raises(TypeError):
            laya.load(str(quiet_folder), device="cpu", **arguments)

    def test_at_call_time_for_per_call_hooks(
        self, arguments: dict[str, Any], tiny: laya.Agent, make_router: MakeRouter, make_hook: Any
    ) -> None:
        watching = make_hook()
        router = make_router(hooks=watching)
        with tiny.hooks_installed(watching):
            with pytest.raises(TypeError):
                tiny.system_one("x", NOUL, **arguments)
            with pytest.raises(TypeError):
                tiny.predict_batch(["x"], NOUL, **arguments)
            with pytest.raises(TypeError):
                tiny.predict_long("x", NOUL, **arguments)
        with pytest.raises(TypeError):
            router.predict("x", NOUL, **arguments)
        with pytest.raises(TypeError):
            router.predict_batch([{"state": "x", "questions": NOUL}], **arguments)
        if "hooks" in arguments:
            with pytest.raises(TypeError):
                router.route("x", **arguments)
        assert watching.events == []
        assert router.loaded == []


class TestAdvancedHelpers:
    def test_hook_events_are_the_six_in_a_tuple(self) -> None:
        assert HOOK_EVENTS == ("on_predict_start", "on_predict_end", "on_route", "on_load", "on_evict", "on_error")

    def test_normalise_flattens_everything_into_one_ordered_list(self) -> None:
        a, b = BaseHook(), BaseHook()
        calls: list[str] = []
        found = normalise_hooks(
            [a, b], lambda ctx: calls.append("start"), [lambda ctx: calls.append("end"), lambda ctx: calls.append("end 2")]
        )
        assert found[:2] == [a, b]
        for hook, event in zip(found[2:], ("on_predict_start", "on_predict_end", "on_predict_end"), strict=True):
            getattr(hook, event)(context())
        assert calls == ["start", "end", "end 2"]
        assert normalise_hooks() == []
        assert isinstance(normalise_hooks((a,)), list)

    def test_dispatch_calls_the_event_on_every_hook_that_implements_it(self) -> None:
        seen: list[PredictContext] = []
        given = normalise_hooks(BaseHook(), [seen.append, seen.append], seen.append)
        ctx = context("...")
        dispatch(given, "on_predict_start", ctx)
        assert seen == [ctx, ctx]

    def test_dispatch_applies_the_raise_policy(self) -> None:
        seen: list[PredictContext] = []
        given = normalise_hooks(on_predict_start=[fail, seen.append])
        with pytest.raises(LookupError):
            dispatch(given, "on_predict_start", context())
        assert seen == []
        with pytest.warns(RuntimeWarning, match="the hook's own"):
            dispatch(given, "on_predict_start", context(), raise_errors=False)
        assert len(seen) == 1

    def test_dispatch_holds_the_lock(self) -> None:
        lock = threading.Lock()
        held: list[bool] = []
        dispatch(normalise_hooks(on_predict_end=lambda ctx: held.append(lock.locked())), "on_predict_end", context(), lock=lock)
        assert held == [True]
        assert not lock.locked()

    def test_dispatch_applies_the_timeout(self) -> None:
        released = threading.Event()
        with pytest.raises(TimeoutError):
            dispatch(normalise_hooks(on_predict_end=lambda ctx: released.wait(30)), "on_predict_end", context(), timeout=0.05)
        released.set()

    def test_dispatch_runs_a_result_that_can_be_awaited(self) -> None:
        done: list[bool] = []

        async def hook(ctx: PredictContext) -> None:
            await asyncio.sleep(0)
            done.append(True)

        dispatch(normalise_hooks(on_predict_end=hook), "on_predict_end", context())
        assert done == [True]

    def test_run_coroutine_sync_runs_an_awaitable_to_completion(self) -> None:
        async def answer() -> int:
            await asyncio.sleep(0)
            return 42

        async def caller() -> Any:
            return run_coroutine_sync(answer())

        assert run_coroutine_sync(answer()) == 42
        assert asyncio.run(caller()) == 42

    def test_aggregate_usage_sums_per_state_usage(self) -> None:
        results = [{"usage": {"input_tokens": 3, "output_tokens": 1}}, {"usage": {"input_tokens": 4, "output_tokens": 0}}, {}]
        assert aggregate_usage(results) == {"input_tokens": 7, "output_tokens": 1}
        assert aggregate_usage([]) == {"input_tokens": 0, "output_tokens": 0}


# ---------------------------------------------------------------- what the pages and the examples show

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page, each preceded by empty lines so that tracebacks name the page's own."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(2)) + found[2] for found in _FENCE.finditer(text) if found[1] == "python"]


def run_page(page: Path, until: str | None = None) -> dict[str, Any]:
    """Runs a page's blocks in order in one namespace, up to and including the first that contains a text."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)
        if until is not None and until in block:
            return namespace
    assert until is None
    return namespace


class TestPages:
    def test_they_are_those_that_the_reference_names(self) -> None:
        assert {page.stem for page in PAGES} == {"index", "api", "lifecycle", "errors", "patterns", "examples"}
        api = (ROOT / "docs" / "hooks" / "api.md").read_text(encoding="utf-8")
        for name in ("lifecycle", "errors", "patterns", "examples"):
            assert f"({name}.md)" in api

    @pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
    def test_every_python_block_runs(self, page: Path) -> None:
        run_page(page)

    @pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
    def test_no_block_escapes(self, page: Path) -> None:
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith(("```", "~~~"))]
        assert set(fences) <= {"```python", "```text", "```mermaid", "```"}
        assert fences.count("```python") == len(blocks(page)) > 0
        assert fences.count("```") * 2 == len(fences)

    def test_lifecycle_has_flow_charts(self) -> None:
        charts = [
            found[2] for found in _FENCE.finditer((ROOT / "docs/hooks/lifecycle.md").read_text(encoding="utf-8")) if found[1] == "mermaid"
        ]
        assert len(charts) == 4
        assert all(chart.startswith("flowchart ") for chart in charts)

    @pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
    def test_links_lead_somewhere(self, page: Path) -> None:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for name, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
            target = page.parent / name if name else page
            assert target.is_file(), name
            headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", target.read_text(encoding="utf-8")), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, f"{name}#{anchor}"

    def test_files_that_are_named_exist(self) -> None:
        for page in PAGES:
            for name in re.findall(r"\b(?:examples|laya|cluster)/[\w/]+\.py\b", page.read_text(encoding="utf-8")):
                assert (ROOT / name).is_file(), f"{page.name}: {name}"


REFERENCE_KEY = """
def key(ctx, index):
    payload = json.dumps([ctx.states[index], ctx.questions, ctx.model,
                          ctx.max_len, ctx.head_max_len], default=str)
    return hashlib.sha256(payload.encode()).hexdigest()
"""

KEYS: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/hooks/api.md": lambda: run_page(ROOT / "docs/hooks/api.md", until="def key("),
    "docs/hooks/patterns.md": lambda: run_page(ROOT / "docs/hooks/patterns.md", until="def key("),
    "docs/hooks/examples.md": lambda: run_page(ROOT / "docs/hooks/examples.md", until="def key("),
    "examples/hooks/cache.py": lambda: runpy.run_path(str(ROOT / "examples/hooks/cache.py")),
}


@cache
def key_of(source: str) -> Callable[[PredictContext, int], str]:
    found: Callable[[PredictContext, int], str] = KEYS[source]()["key"]
    return found


CHOICE: dict[str, Any] = {"team": {"type": "choice", "instructions": "Which team?", "criteria": {"a": "first", "b": "second"}}}
BASE: dict[str, Any] = {"state": "text", "questions": CHOICE | NOUL, "model": "mini", "max_len": None, "head_max_len": None}
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "another state": {"state": "Text"},
    "a state that is a dict": {"state": {"subject": "text", "body": "äöü"}},
    "its keys the other way round": {"state": {"body": "äöü", "subject": "text"}},
    "a state that is a list": {"state": ["text"]},
    "a state that JSON does not know": {"state": Path("other")},
    "questions the other way round": {"questions": NOUL | CHOICE},
    "criteria the other way round": {"questions": {"team": {**CHOICE["team"], "criteria": {"b": "second", "a": "first"}}} | NOUL},
    "criteria as a list": {"questions": {"team": {**CHOICE["team"], "criteria": ["a", "b"]}} | NOUL},
    "that list the other way round": {"questions": {"team": {**CHOICE["team"], "criteria": ["b", "a"]}} | NOUL},
    "other instructions": {"questions": {"team": {**CHOICE["team"], "instructions": "Who?"}} | NOUL},
    "fewer questions": {"questions": CHOICE},
    "another model": {"model": "english"},
    "no model": {"model": None},
    "another max_len": {"max_len": 64},
    "another head_max_len": {"head_max_len": 64},
    "both": {"max_len": 64, "head_max_len": 64},
}


def case(name: str) -> PredictContext:
    """A context whose second state is the case's."""
    fields = {**BASE, **CASES[name]}
    return PredictContext(states=["another one", fields.pop("state")], **fields)


class TestTheCacheKey:
    """The API page, the example, and the caching blocks of two more pages teach one key."""

    @pytest.mark.parametrize("source", KEYS)
    def test_is_the_references(self, source: str) -> None:
        text = (ROOT / source).read_text(encoding="utf-8")
        code = text if source.endswith(".py") else next(block for block in blocks(ROOT / source) if "def key(" in block)
        (found,) = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef) and node.name == "key"]
        (wanted,) = ast.parse(REFERENCE_KEY).body
        assert isinstance(wanted, ast.FunctionDef)
        assert [argument.arg for argument in found.args.args] == ["ctx", "index"]
        statements = found.body[1:] if ast.get_docstring(found) else found.body
        assert [ast.dump(node) for node in statements] == [ast.dump(node) for node in wanted.body]

    @pytest.mark.parametrize("name", CASES)
    def test_all_four_are_alike_and_what_the_fields_say(self, name: str) -> None:
        ctx = case(name)
        fields = {**BASE, **CASES[name]}
        covered = [fields[field] for field in ("state", "questions", "model", "max_len", "head_max_len")]
        wanted = hashlib.sha256(json.dumps(covered, default=str).encode()).hexdigest()
        assert {source: key_of(source)(ctx, 1) for source in KEYS} == dict.fromkeys(KEYS, wanted)

    @pytest.mark.parametrize("source", KEYS)
    def test_one_known_digest(self, source: str) -> None:
        text = '["text", {"q": {"type": "noul"}}, "mini", 64, null]'
        ctx = PredictContext(states=["text"], questions={"q": {"type": "noul"}}, model="mini", max_len=64)
        assert key_of(source)(ctx, 0) == hashlib.sha256(text.encode()).hexdigest()

    @pytest.mark.parametrize("source", KEYS)
    def test_whatever_the_answer_depends_on_makes_another_key(self, source: str) -> None:
        digests = {name: key_of(source)(case(name), 1) for name in CASES}
        assert len(set(digests.values())) == len(CASES)

    @pytest.mark.parametrize("source", KEYS)
    def test_and_nothing_else_does(self, source: str) -> None:
        one, other = case("base"), case("base")
        other.usage, other.decision, other.agent = {"input_tokens": 1}, {"model": "x"}, object()
        assert key_of(source)(one, 1) == key_of(source)(other, 1)
        assert key_of(source)(one, 0) != key_of(source)(one, 1)


def load_example(name: str) -> Any:
    """An example's namespace, as a module that is not run as a script."""
    return type("Example", (), {key: staticmethod(value) for key, value in runpy.run_path(str(ROOT / f"examples/hooks/{name}.py")).items()})


# What each script says when it is run; a regular expression.
SAYS = {
    "async_shipping": r"sent 5 records in batches of \[3, 2\], dropped 0",
    "audit": r'"decisions": \[\{"leaving": [\d.]+\}, \{"leaving": [\d.]+\}\].*"error": null(.|\n)*"error": "TypeError"',
    "cache": r"hits 0, misses 1(.|\n)*hits 1, misses 1(.|\n)*hits 1, misses 2",
    "guardrail": r"needs review: False(.|\n)*needs review: True(.|\n)*refused: (.|\n)*refused: ",
    "metrics": r'laya_calls_total\{model="english",outcome="ValueError"\} 1\n.*outcome="ok"\} 2',
    "redact": r"refund \[email\], card \[card\], order 4711000011112222(.|\n)*\[phone\] or pay \[iban\]",
    "tenant": r"'acme, acme', 'globex, globex', 'acme, acme'(.|\n)*'acme': \{'calls': 4",
    "tracing": r"laya.predict below \w+: UNSET(.|\n)*laya.predict below \w+: ERROR, tokens None, events \['exception'\]",
}


class TestExampleScripts:
    def test_they_are_those_that_the_examples_page_names(self) -> None:
        page = (ROOT / "docs/hooks/examples.md").read_text(encoding="utf-8")
        assert {path.stem for path in EXAMPLES} == set(SAYS)
        assert {f"examples/hooks/{path.name}" for path in EXAMPLES} <= set(re.findall(r"examples/hooks/\w+\.py", page))

    @pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
    def test_run_as_a_script(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        runpy.run_path(str(path), run_name="__main__")
        assert re.search(SAYS[path.stem], capsys.readouterr().out)
        assert hooks.default_hooks() == []

    @pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
    def test_teach_in_their_docstring(self, path: Path) -> None:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert len(docstring) > 300
        assert f"python examples/hooks/{path.name}" in docstring


class TestExamplesInUse:
    def test_the_cache_gives_copies_and_takes_copies(self, tiny: laya.Agent) -> None:
        memory = load_example("cache").AnswerCache()
        with tiny.hooks_installed(memory):
            first = tiny.predict_batch(["a", "b"], NOUL)
            kept = copy.deepcopy(first)
            first[0]["answers"].clear()
            again = tiny.predict("a", NOUL)
            again["answers"].clear()
            assert tiny.predict_batch(["b", "a"], NOUL) == [kept[1], kept[0]]
        assert (memory.hits, memory.misses, len(memory)) == (2, 1, 2)

    def test_the_cache_is_bounded_and_drops_what_was_unused_for_longest(self, tiny: laya.Agent) -> None:
        memory = load_example("cache").AnswerCache(capacity=2)
        with tiny.hooks_installed(memory):
            for state in ("a", "b", "a", "c", "a", "b"):
                tiny.predict(state, {})
        assert len(memory) == 2
        assert (memory.hits, memory.misses) == (2, 4)  # a twice; c drove b out
        with pytest.raises(ValueError, match="capacity"):
            load_example("cache").AnswerCache(0)

    def test_the_cache_stores_no_failure_and_no_route(self, router: laya.Router) -> None:
        memory = load_example("cache").AnswerCache()
        with router.hooks_installed(memory):
            with pytest.raises(ValueError, match="refund"):
                router.predict("x", WRONG, model="english")
            assert len(memory) == 0
            ask(router)
            assert router.predict("x", NOUL, lang="en")["routing"]["reason"] == "lang says 'en'"
        assert memory.hits == 1

    def test_the_cache_serves_many_threads(self, tiny: laya.Agent) -> None:
        memory = load_example("cache").AnswerCache(capacity=3)
        with tiny.hooks_installed(memory), ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: tiny.predict(f"state {number % 6}", {}), range(200)))
        assert memory.hits + memory.misses == 200
        assert len(memory) == 3

    def test_the_audit_tells_nothing_of_the_texts_and_loses_no_line(self, tiny: laya.Agent, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        audit = load_example("audit").AuditLog(path)
        with tiny.hooks_installed(audit), ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: tiny.predict(f"secret {number}", NOUL), range(40)))
            with pytest.raises(ValueError, match="surrogate"):
                tiny.predict("secret \ud800", NOUL)
        audit.close()
        text = path.read_text(encoding="utf-8")
        records = [json.loads(line) for line in text.splitlines()]
        assert "secret" not in text
        assert [record["error"] for record in records] == [None] * 40 + ["ValueError"]
        assert len({record["states"][0] for record in records}) == 41

    @pytest.mark.parametrize(
        ("text", "clean"),
        [
            ("mail jane.doe+x@mail.example.com.", "mail [email]."),
            ("card 4111-1111-1111-1111!", "card [card]!"),
            ("order 4111-1111-1111-1112", "order 4111-1111-1111-1112"),
            ("call +44 (0)20 7946 0958 now", "call [phone] now"),
            ("DE89370400440532013000", "[iban]"),
            ("invoice 2024-01-05, room 12", "invoice 2024-01-05, room 12"),
            ("", ""),
        ],
    )
    def test_redaction(self, text: str, clean: str) -> None:
        assert load_example("redact").redact(text) == clean

    def test_redaction_walks_into_states_and_leaves_the_callers_alone(self, tiny: laya.Agent) -> None:
        seen: list[Any] = []
        given = [{"a@b.example": ["c@d.example", 3, None]}, ["e@f.example"]]
        tiny.predict_batch(given, {}, hooks=load_example("redact").Redact(), on_predict_start=lambda ctx: seen.extend(ctx.states))
        assert seen == [{"a@b.example": ["[email]", 3, None]}, ["[email]"]]
        assert given == [{"a@b.example": ["c@d.example", 3, None]}, ["e@f.example"]]

    @pytest.mark.parametrize("piece", ["A", "-", "1", "a@", "+1", "/9j4AAQ", "1 ", "AB12 ", "a.", "a@a."])
    def test_redaction_takes_a_megabyte_without_a_word_break(self, piece: str) -> None:
        text = (piece * 1_000_000)[:1_000_000]
        started = time.perf_counter()
        load_example("redact").redact(text)
        assert time.perf_counter() - started < 10

    def test_metrics_add_up(self, router: laya.Router) -> None:
        metrics = load_example("metrics").Metrics()
        with router.hooks_installed(metrics), ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: ask(router), range(20)))
            with pytest.raises(ValueError, match="refund"):
                router.predict("x", WRONG, model="english")
        assert metrics.value("calls", model="english", outcome="ok") == metrics.value("states", model="english") - 1 == 20
        assert metrics.value("calls", model="english", outcome="ValueError") == 1
        assert 'laya_call_seconds_bucket{le="+Inf",model="english"} 21\n' in metrics.render()
        assert 'laya_call_seconds_count{model="english"} 21\n' in metrics.render()

    def test_the_guard_refuses(self, tiny: laya.Agent) -> None:
        guardrail = load_example("guardrail")
        guard = guardrail.InputGuard(max_states=2, max_characters=10, forbidden=["sec(ret)?"])
        for states in (["a", "b", "c"], ["a" * 11], ["SECRET"], [{"key": ["", " "]}], [""]):
            with pytest.raises(guardrail.RefusedError):
                tiny.predict_batch(states, NOUL, hooks=guard)
        tiny.predict_batch([{"secret": "fine"}, ["fine", 1]], {}, hooks=guard)

    def test_unsure_answers_are_marked_in_copies(self, tiny: laya.Agent) -> None:
        before: list[Any] = []
        review = load_example("guardrail").ReviewUnsure({"refund": 1.0})
        hook = normalise_hooks(on_predict_end=lambda ctx: before.extend(ctx.results or []))
        result = tiny.predict("x", NOUL | {"other": NOUL["refund"]}, hooks=[*hook, review])
        assert result["answers"]["refund"]["needs_review"] is True
        assert "needs_review" not in result["answers"]["other"]
        assert "needs_review" not in before[0]["answers"]["refund"]

    def test_spans_are_closed_whatever_happens_and_hang_together(self, router: laya.Router, tiny: laya.Agent) -> None:
        example = load_example("tracing")
        exporter = example.InMemorySpanExporter()
        provider = example.TracerProvider()
        provider.add_span_processor(example.SimpleSpanProcessor(exporter))
        tracing = example.Tracing(provider.get_tracer("test"))
        with tiny.hooks_installed(tracing), router.hooks_installed(tracing):
            ask(router)
            inner, outer = exporter.get_finished_spans()
            assert inner.parent.span_id == outer.context.span_id
            exporter.clear()
            router.predict_batch([{"state": state, "questions": NOUL, "model": "english"} for state in "ab"])
            shared, *requests = exporter.get_finished_spans()
            assert {link.context.span_id for link in shared.links} == {span.context.span_id for span in requests}
            exporter.clear()
            with pytest.raises(LookupError):  # the veto of a hook that stands before
                tiny.predict("x", NOUL, on_predict_start=fail)
            with pytest.raises(ValueError, match="refund"):
                router.predict("x", WRONG, model="english")
        assert [len(span.events) for span in exporter.get_finished_spans()] == [1, 1]
        first = normalise_hooks(on_predict_start=fail)
        with pytest.raises(LookupError):
            tiny.predict("x", NOUL, hooks=[*first, tracing])
        assert tracing.open_spans == 0
        provider.shutdown()

    def test_shipping_drops_and_counts_rather_than_wait(self, tiny: laya.Agent, caplog: pytest.LogCaptureFixture) -> None:
        example = load_example("async_shipping")
        batches: list[list[Any]] = []
        entered, go = threading.Event(), threading.Event()

        async def send(batch: list[Any]) -> None:
            entered.set()
            await asyncio.to_thread(go.wait, 30)
            if len(batches) == 1:
                batches.append([])
                raise ConnectionError
            batches.append(batch)

        shipper = example.Shipper(send, batch_size=1, capacity=2, attempts=1)
        with tiny.hooks_installed(shipper.hook), caplog.at_level(logging.WARNING):
            tiny.predict("x", {})
            assert entered.wait(30)  # the first is under way, two fit into the queue
            for _ in range(5):
                tiny.predict("x", {})
            go.set()
        shipper.close()
        assert (shipper.sent, shipper.dropped) == (2, 3 + 1)
        assert "ConnectionError" in caplog.text

    def test_shipping_works_from_inside_a_loop(self, tiny: laya.Agent) -> None:
        batches: list[list[Any]] = []

        async def send(batch: list[Any]) -> None:
            batches.append(batch)

        shipper = load_example("async_shipping").Shipper(send)

        async def caller() -> None:
            tiny.predict("x", {}, hooks=shipper.hook)

        asyncio.run(caller())
        shipper.close()
        assert [len(batch) for batch in batches] == [1]

    def test_tenants_are_kept_apart(self, router: laya.Router) -> None:
        example = load_example("tenant")
        tagger = example.TenantTagger()
        hooks.add_default_hook(tagger)

        def handle(name: str) -> str:
            with example.tenant(name):
                result = ask(router, hooks_timeout=30)
                assert result["usage"]["tenant"] == result["tenant"]
                return str(result["tenant"])

        names = [f"tenant {number % 3}" for number in range(30)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(handle, names)) == names
        assert [tagger.usage(f"tenant {number}")["calls"] for number in range(3)] == [10, 10, 10]
        assert tagger.usage("nobody") == {}

    def test_a_cached_result_is_tagged_anew(self, tiny: laya.Agent) -> None:
        example = load_example("tenant")
        hooks.add_default_hook(example.TenantTagger())
        with tiny.hooks_installed(load_example("cache").AnswerCache()):
            for name in ("acme", "globex"):
                with example.tenant(name):
                    assert tiny.predict("x", NOUL)["tenant"] == name
