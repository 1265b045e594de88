"""Agents: predict_batch and predict_long with their hooks, whatever engine runs the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from laya.hooks import PredictContext
from tests.conformance.support import DOCUMENT, ENGLISH, MIXED, ONE, QUESTIONS, Act, Diary, supplied

Make = Callable[..., Any]

CALLS: dict[str, Callable[..., Any]] = {
    "system_one": lambda agent, **options: agent.system_one(ENGLISH, QUESTIONS, **options),
    "predict": lambda agent, **options: agent.predict(ENGLISH, QUESTIONS, **options),
    "predict_batch": lambda agent, **options: agent.predict_batch([ENGLISH], QUESTIONS, **options),
    "predict_long": lambda agent, **options: agent.predict_long(ENGLISH, QUESTIONS, **options),
}
FAILING: dict[str, Callable[..., Any]] = {
    "system_one": lambda agent, **options: agent.system_one(ENGLISH, {"q": {}}, **options),
    "predict_batch": lambda agent, **options: agent.predict_batch([ENGLISH, None], QUESTIONS, **options),
}

START = {"run_id", "started_at", "states", "questions", "model", "agent"}


class TestPayloads:
    """Which fields hold something, event by event."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_of_a_call_that_is_answered(self, call: Callable[..., Any], agent: Any) -> None:
        diary = Diary()
        call(agent, hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            ("on_predict_start", START),
            ("on_predict_end", START | {"results", "usage", "elapsed_ms"}),
        ]

    @pytest.mark.parametrize("call", FAILING.values(), ids=FAILING.keys())
    def test_of_a_call_that_fails(self, call: Callable[..., Any], agent: Any) -> None:
        diary = Diary()
        with pytest.raises((TypeError, ValueError)):
            call(agent, hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            ("on_predict_start", START),
            ("on_error", START | {"error"}),
            ("on_predict_end", START | {"error", "elapsed_ms"}),
        ]

    def test_of_a_call_that_a_hook_answers(self, agent: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        agent.system_one(ENGLISH, ONE, hooks=diary)
        assert diary.the("on_predict_end").populated == START | {"results", "usage", "elapsed_ms"}

    def test_of_budgets(self, agent: Any) -> None:
        diary = Diary()
        agent.system_one(ENGLISH, ONE, hooks=diary, max_len=128, head_max_len=64)
        assert diary.the("on_predict_start").populated == START | {"max_len", "head_max_len"}

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_the_agent_itself_and_its_model_id(self, call: Callable[..., Any], agent: Any) -> None:
        diary = Diary()
        call(agent, hooks=diary)
        assert all(note.ctx.agent is agent for note in diary.notes)
        assert {note.ctx.model for note in diary.notes} == {agent.model_id}

    def test_no_event_of_a_router(self, agent: Any) -> None:
        diary = Diary()
        agent.add_hook(diary)
        for call in CALLS.values():
            call(agent)
        assert set(diary.events) == {"on_predict_start", "on_predict_end"}


class TestPredictBatch:
    def test_hooks_fire_once_a_call_with_every_state(self, agent: Any) -> None:
        diary = Diary()
        results = agent.predict_batch(MIXED, QUESTIONS, hooks=diary)
        assert diary.events == ["on_predict_start", "on_predict_end"]
        assert diary.the("on_predict_start").fields["states"] == MIXED
        end = diary.the("on_predict_end").fields
        assert end["results"] == results
        assert end["usage"] == {"input_tokens": sum(result["usage"]["input_tokens"] for result in results), "output_tokens": 0}

    def test_a_state_rewritten_by_a_hook(self, agent: Any) -> None:
        states = ["secret", "other"]
        found = agent.predict_batch(states, ONE, on_predict_start=lambda ctx: ctx.states.__setitem__(0, "redacted"))
        assert found == agent.predict_batch(["redacted", "other"], ONE)
        assert states == ["secret", "other"]

    def test_skip_takes_one_result_a_state(self, agent: Any) -> None:
        given = [{**supplied(), "model": name} for name in ("first", "second")]
        diary = Diary(on_predict_start=lambda ctx: ctx.skip(given))
        assert agent.predict_batch(["a", "b"], ONE, hooks=diary) == given
        assert diary.the("on_predict_end").fields["usage"] == {"input_tokens": 6, "output_tokens": 0}

    def test_skip_takes_one_result_for_the_call(self, agent: Any) -> None:
        assert agent.predict_batch(["a", "b", "c"], ONE, on_predict_start=lambda ctx: ctx.skip([supplied()])) == [supplied()]

    @pytest.mark.parametrize("count", [0, 2, 4])
    def test_another_number_is_refused(self, count: int, agent: Any) -> None:
        with pytest.raises(ValueError, match="3 states"):
            agent.predict_batch(["a", "b", "c"], ONE, on_predict_start=lambda ctx: ctx.skip([supplied()] * count))

    def test_the_cache_of_the_reference(self, make_agent: Make) -> None:
        cache: dict[str, Any] = {}
        hits: list[int] = []

        def key(ctx: PredictContext, index: int) -> str:
            return repr([ctx.states[index], ctx.questions, ctx.model, ctx.max_len, ctx.head_max_len])

        def read(ctx: PredictContext) -> None:
            found: list[Any] = [cache.get(key(ctx, index)) for index in range(len(ctx.states))]
            if all(hit is not None for hit in found):
                hits.append(len(found))
                ctx.skip(found)

        def write(ctx: PredictContext) -> None:
            for index, result in enumerate(ctx.results or []):
                cache[key(ctx, index)] = result

        agent = make_agent(on_predict_start=read, on_predict_end=write)
        first, second = agent.predict_batch(["a", "b"], ONE)
        assert hits == []
        assert agent.predict_batch(["b", "a"], ONE) == [second, first]
        assert agent.predict_batch(["a"], ONE) == [first]
        assert hits == [2, 1]
        agent.predict_batch(["a"], ONE, max_len=128)
        assert hits == [2, 1]

    @pytest.mark.parametrize(("states", "questions"), [([], QUESTIONS), (["a", "b"], {}), ([], {})])
    def test_hooks_fire_for_nothing_too(self, states: list[Any], questions: Any, agent: Any) -> None:
        diary = Diary()
        assert len(agent.predict_batch(states, questions, hooks=diary)) == len(states)
        assert diary.events == ["on_predict_start", "on_predict_end"]
        assert diary.the("on_predict_end").fields["usage"] == {"input_tokens": 0, "output_tokens": 0}


REPLACE: dict[str, Act] = {
    "a new list": lambda ctx: setattr(ctx, "states", ["one", "two", "three"]),
    "one text in place": lambda ctx: ctx.states.__setitem__(0, "another text"),
    "one more": lambda ctx: ctx.states.append("one more"),
    "one fewer": lambda ctx: ctx.states.pop(),
    "turned round": lambda ctx: ctx.states.reverse(),
    "redacted": lambda ctx: setattr(ctx, "states", [re.sub(r"\d", "#", text) for text in ctx.states]),
}


def windows_named(result: Any) -> list[str]:
    """The questions whose answer names a window."""
    return [qid for qid, answer in result["answers"].items() if "window" in answer]


class TestPredictLong:
    """What the start hook did, and what the answer may claim then."""

    def test_left_as_it_was_built_windows_are_counted_and_named(self, agent: Any) -> None:
        diary = Diary()
        result = agent.predict_long(DOCUMENT, QUESTIONS, hooks=diary)
        texts = diary.the("on_predict_start").fields["states"]
        assert diary.events == ["on_predict_start", "on_predict_end"]
        assert result["usage"]["windows"] == len(texts) > 2
        assert windows_named(result) == list(QUESTIONS)
        for answer in result["answers"].values():
            window = answer["window"]
            assert list(window) == ["index", "token_start", "token_end", "count"]
            assert window["count"] == len(texts)
            assert 0 <= window["index"] < len(texts)
            assert window["token_start"] < window["token_end"]

    def test_the_windows_are_texts_in_scan_order_that_hold_all_of_the_state(self, agent: Any) -> None:
        diary = Diary()
        agent.predict_long(DOCUMENT, QUESTIONS, hooks=diary)
        texts = diary.the("on_predict_start").fields["states"]
        places = [DOCUMENT.index(text) for text in texts]
        assert places[0] == 0
        assert places == sorted(places)
        assert DOCUMENT.endswith(texts[-1])
        for place, text, following in zip(places, texts, places[1:], strict=False):
            assert following <= place + len(text)

    @pytest.mark.parametrize("replace", REPLACE.values(), ids=REPLACE.keys())
    def test_replaced_what_was_scored_is_counted_and_no_window_named(self, replace: Act, agent: Any) -> None:
        diary = Diary(on_predict_start=replace)
        result = agent.predict_long(DOCUMENT, ONE, hooks=diary)
        assert result["usage"]["windows"] == len(diary.the("on_predict_end").fields["states"])
        assert windows_named(result) == []

    def test_a_state_that_fitted_can_be_replaced_too(self, agent: Any) -> None:
        result = agent.predict_long(ENGLISH, ONE, on_predict_start=REPLACE["a new list"])
        assert result["usage"]["windows"] == 3
        assert windows_named(result) == []

    @pytest.mark.parametrize("state", [DOCUMENT, ENGLISH, {"body": DOCUMENT}], ids=["long", "short", "object"])
    def test_answered_by_a_hook_no_window_is_counted_or_named(self, state: Any, agent: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        result = agent.predict_long(state, QUESTIONS, hooks=diary)
        assert result == {**supplied(), "usage": {**supplied()["usage"], "windows": 0}}
        assert diary.events == ["on_predict_start", "on_predict_end"]

    def test_answered_by_a_hook_window_by_window(self, agent: Any) -> None:
        result = agent.predict_long(DOCUMENT, QUESTIONS, on_predict_start=lambda ctx: ctx.skip([supplied()] * len(ctx.states)))
        assert result["usage"]["windows"] == 0
        assert windows_named(result) == []

    def test_a_state_that_fits_is_one_plain_call_with_the_callers_state(self, agent: Any) -> None:
        state = {"body": ENGLISH}
        diary = Diary()
        result = agent.predict_long(state, QUESTIONS, hooks=diary)
        plain = agent.system_one(state, QUESTIONS)
        assert result == {**plain, "usage": {**plain["usage"], "windows": 1}}
        assert diary.the("on_predict_start").fields["states"] == [state]

    def test_the_end_hook_sees_the_usage_of_all_windows(self, agent: Any) -> None:
        diary = Diary()
        result = agent.predict_long(DOCUMENT, QUESTIONS, hooks=diary)
        end = diary.the("on_predict_end").fields
        assert end["usage"] == {"input_tokens": result["usage"]["input_tokens"], "output_tokens": 0}
        assert len(end["results"]) == result["usage"]["windows"]

    def test_a_veto(self, agent: Any) -> None:
        def veto(ctx: PredictContext) -> None:
            raise PermissionError("no")

        diary = Diary(on_predict_start=veto)
        with pytest.raises(PermissionError, match="no"):
            agent.predict_long(DOCUMENT, QUESTIONS, hooks=diary)
        assert diary.events == ["on_predict_start", "on_error", "on_predict_end"]

    def test_hooks_raise_and_timeout_of_the_call(self, agent: Any) -> None:
        def broken(ctx: PredictContext) -> None:
            raise KeyError("broken")

        with pytest.warns(RuntimeWarning, match="KeyError"):
            result = agent.predict_long(DOCUMENT, ONE, on_predict_start=broken, hooks_raise=False)
        assert result["usage"]["windows"] > 1
        with pytest.raises(ValueError, match="hooks_timeout"):
            agent.predict_long(DOCUMENT, ONE, hooks_timeout=-1)
