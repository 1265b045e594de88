"""PredictContext: its fields, its identity, skip(), and its way into another process."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import time
from typing import Any

import pytest

from laya.hooks import PredictContext, aggregate_usage


def context(n: int = 2) -> PredictContext:
    return PredictContext(states=[f"s{index}" for index in range(n)], questions={"q": {"type": "noul", "instructions": "x"}})


class TestFields:
    def test_names_order_and_defaults_are_those_of_the_reference(self) -> None:
        fields = [field.name for field in dataclasses.fields(PredictContext)]
        assert fields == [
            *["states", "questions", "run_id", "results", "decision", "model", "agent", "router", "max_len", "head_max_len"],
            *["usage", "started_at", "elapsed_ms", "error"],
            *["lang", "request_ids"],  # two extra ones, last
        ]
        assert list(inspect.signature(PredictContext).parameters) == fields

    def test_what_a_fresh_one_holds(self) -> None:
        before = time.perf_counter()
        ctx = context()
        assert before <= ctx.started_at <= time.perf_counter()
        assert re.fullmatch("[0-9a-f]{32}", ctx.run_id)
        rest = {key: value for key, value in vars(ctx).items() if key not in {"states", "questions", "run_id", "started_at"}}
        assert set(rest.values()) == {None}

    def test_each_has_a_run_id_of_its_own(self) -> None:
        assert len({context().run_id for _ in range(50)}) == 50

    def test_fields_can_be_rewritten(self) -> None:
        ctx = context()
        ctx.states, ctx.questions, ctx.results, ctx.decision = ["x"], {}, [{}], {"model": "english"}
        assert (ctx.states, ctx.questions, ctx.results, ctx.decision) == (["x"], {}, [{}], {"model": "english"})


def test_two_are_never_equal_and_each_can_be_hashed() -> None:
    ctx = context()
    twin = dataclasses.replace(ctx)
    assert vars(twin) == vars(ctx)
    assert ctx != twin
    assert ctx == ctx
    assert len({ctx, twin}) == 2


class TestSkip:
    @pytest.mark.parametrize(("states", "results"), [(3, 3), (3, 1), (1, 1), (0, 0), (0, 1)])
    def test_one_result_a_state_or_one_for_the_call(self, states: int, results: int) -> None:
        ctx = context(states)
        given: list[dict[str, Any]] = [{"answers": {}} for _ in range(results)]
        ctx.skip(given)
        assert ctx.results == given

    @pytest.mark.parametrize(("states", "results"), [(3, 2), (3, 4), (3, 0), (1, 0), (1, 2), (0, 2)])
    def test_any_other_number_is_refused(self, states: int, results: int) -> None:
        ctx = context(states)
        with pytest.raises(ValueError, match=str(states)):
            ctx.skip([{"answers": {}}] * results)
        assert ctx.results is None

    def test_the_list_given_is_not_kept(self) -> None:
        ctx = context(1)
        given: list[dict[str, Any]] = [{"answers": {}}]
        ctx.skip(given)
        given.clear()
        assert ctx.results == [{"answers": {}}]

    def test_any_iterable_will_do(self) -> None:
        ctx = context(2)
        results: tuple[dict[str, Any], ...] = ({"answers": {}}, {"answers": {"a": 1}})
        ctx.skip(results)
        assert ctx.results == list(results)

    @pytest.mark.parametrize("wrong", [None, 7])
    def test_what_is_no_sequence_at_all_is_refused_with_the_mend(self, wrong: Any) -> None:
        ctx = PredictContext(states=["a"], questions={})
        with pytest.raises(TypeError, match=r"write ctx\.skip\(\[result\]\)"):
            ctx.skip(wrong)


class TestPickling:
    def test_everything_travels_but_agent_and_router(self) -> None:
        ctx = context()
        ctx.results, ctx.decision, ctx.model = [{"answers": {}}], {"model": "english"}, "english"
        ctx.max_len, ctx.head_max_len, ctx.usage, ctx.elapsed_ms = 128, 64, {"input_tokens": 1, "output_tokens": 0}, 1.5
        ctx.request_ids = ["a", "b"]
        ctx.agent, ctx.router = object(), (lambda: None)  # the second could not be pickled at all
        there: PredictContext = pickle.loads(pickle.dumps(ctx))
        assert (there.agent, there.router) == (None, None)
        kept = {key: value for key, value in vars(ctx).items() if key not in {"agent", "router", "started_at"}}
        assert {key: vars(there)[key] for key in kept} == kept
        assert (ctx.agent, ctx.router) != (None, None)

    def test_an_error_keeps_its_class_and_arguments(self) -> None:
        ctx = context()
        ctx.error = KeyError("a", 1)
        there: PredictContext = pickle.loads(pickle.dumps(ctx))
        assert type(there.error) is KeyError
        assert there.error.args == ("a", 1)

    def test_the_time_spent_travels_not_the_clocks_reading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ctx = context()
        clock = [ctx.started_at + 2.0]
        monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
        data = pickle.dumps(ctx)
        clock[0] = 7.0  # a process that has just started
        there: PredictContext = pickle.loads(data)
        assert there.started_at == pytest.approx(5.0)


class TestAggregateUsage:
    def test_sums_over_the_results(self) -> None:
        results: list[dict[str, Any]] = [
            {"usage": {"input_tokens": 3, "output_tokens": 0, "state_tokens": 9}},
            {"usage": {"input_tokens": 4, "output_tokens": 2, "truncated": True}},
        ]
        assert aggregate_usage(results) == {"input_tokens": 7, "output_tokens": 2}

    @pytest.mark.parametrize("bare", [{}, {"usage": None}, {"usage": {}}, {"usage": {"windows": 3}}])
    def test_a_result_without_counts_is_zero(self, bare: dict[str, Any]) -> None:
        assert aggregate_usage([bare, {"usage": {"input_tokens": 4}}]) == {"input_tokens": 4, "output_tokens": 0}

    def test_of_nothing(self) -> None:
        assert aggregate_usage([]) == {"input_tokens": 0, "output_tokens": 0}
