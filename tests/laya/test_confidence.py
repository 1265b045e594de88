"""The confidence gate: what it takes, which answers it marks, and that it marks the results of every call once."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laya
from laya.confidence import ConfidenceGate
from laya.hooks import PredictContext

MARKS = ("abstention", "abstention_threshold", "low_confidence")
PARCEL = "The courier left my parcel at the wrong house and I would like my money back."
QUESTIONS: dict[str, Any] = {
    "team": {
        "type": "choice",
        "instructions": "Which desk should take this message?",
        "criteria": {"billing": "money, invoices, refunds", "technical": "faults and outages", "other": "anything else"},
    },
    "urgency": {"type": "score", "instructions": "How pressing is it?", "criteria": ["can wait", "this week", "right now"]},
    "refund": {
        "type": "noul",
        "instructions": "Does the writer want money back?",
        "criteria": {"true": "asks for money back", "false": "does not ask for money back"},
    },
}
UNMARKED: dict[str, Any] = {qid: {} for qid in QUESTIONS}
LONG = " ".join(f"invoice {index} which late the payment" for index in range(120))
BAD: list[Any] = [True, "0.5", math.nan, math.inf, -0.01, 1.01, {}, {"choice:4": 0.5}, {"default": 2}]
MORE_BAD: list[Any] = [False, -math.inf, [0.5], 10**400, {"choice": 0.5}, {"bool:2": 0.5}, {3: 0.5}, {"default": True}, {"noul:2": None}]


def marks_of(result: Any) -> dict[str, dict[str, Any]]:
    return {qid: {key: answer[key] for key in MARKS if key in answer} for qid, answer in result["answers"].items()}


def bare(result: Any) -> dict[str, Any]:
    answers = {qid: {key: value for key, value in answer.items() if key not in MARKS} for qid, answer in result["answers"].items()}
    return {**result, "answers": answers}


def passed(threshold: float) -> dict[str, Any]:
    return {"abstention": "passed", "abstention_threshold": threshold}


def abstained(threshold: float) -> dict[str, Any]:
    return {"abstention": "abstained", "abstention_threshold": threshold, "low_confidence": True}


@pytest.fixture
def router(tiny: laya.Agent, quiet_folder: Path) -> laya.Router:
    found = laya.Router(models={"other": quiet_folder}, device="cpu")
    found.attach("tiny", tiny)
    return found


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Agent.system_one": lambda agent, router, options: agent.system_one(PARCEL, QUESTIONS, **options),
    "Agent.predict": lambda agent, router, options: agent.predict(PARCEL, QUESTIONS, **options),
    "Agent.predict_batch": lambda agent, router, options: agent.predict_batch([PARCEL], QUESTIONS, **options)[0],
    "Agent.predict_long": lambda agent, router, options: agent.predict_long(PARCEL, QUESTIONS, **options),
    "Agent.predict_long, windows": lambda agent, router, options: agent.predict_long(LONG, QUESTIONS, **options),
    "Router.predict": lambda agent, router, options: router.predict(PARCEL, QUESTIONS, model="tiny", **options),
    "Router.system_one": lambda agent, router, options: router.system_one(PARCEL, QUESTIONS, model="tiny", **options),
    "Router.predict_batch": lambda agent, router, options: router.predict_batch(
        [{"state": PARCEL, "questions": QUESTIONS, "model": "tiny"}], **options
    )[0],
    "Router.predict_long": lambda agent, router, options: router.predict_long(PARCEL, QUESTIONS, model="tiny", **options),
    "Router.predict_long, windows": lambda agent, router, options: router.predict_long(LONG, QUESTIONS, model="tiny", **options),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@each_call
class TestEveryCall:
    @pytest.mark.parametrize("value", BAD, ids=repr)
    def test_a_wrong_value_is_refused_before_anything_runs(
        self, value: Any, call: Any, tiny: laya.Agent, router: laya.Router, make_hook: Any
    ) -> None:
        hook = make_hook()
        with pytest.raises(ValueError, match="min_confidence"):
            call(tiny, router, {"min_confidence": value, "hooks": hook})
        assert hook.events == []

    def test_at_zero_every_answer_passes(self, call: Any, tiny: laya.Agent, router: laya.Router) -> None:
        assert marks_of(call(tiny, router, {"min_confidence": 0.0})) == dict.fromkeys(QUESTIONS, passed(0.0))

    def test_a_map_gates_the_types_and_buckets_that_it_names(self, call: Any, tiny: laya.Agent, router: laya.Router) -> None:
        found = call(tiny, router, {"min_confidence": {"choice:3-5": 1.0}})
        assert marks_of(found) == {"team": abstained(1.0), "urgency": passed(0.0), "refund": passed(0.0)}

    def test_without_it_no_answer_is_marked(self, call: Any, tiny: laya.Agent, router: laya.Router) -> None:
        for options in ({}, {"min_confidence": None}):
            assert marks_of(call(tiny, router, options)) == UNMARKED

    def test_nothing_else_is_changed(self, call: Any, tiny: laya.Agent, router: laya.Router) -> None:
        assert bare(call(tiny, router, {"min_confidence": {"default": 0.4, "noul:2": 1}})) == call(tiny, router, {})


class TestThresholds:
    @pytest.mark.parametrize("value", MORE_BAD, ids=repr)
    def test_wrong_ones(self, value: Any) -> None:
        with pytest.raises(ValueError, match="min_confidence"):
            ConfidenceGate(value)

    def test_an_unknown_key_is_named_with_those_there_are(self) -> None:
        with pytest.raises(ValueError, match=r"'choice:4'.*default.*choice:3-5.*noul:2"):
            ConfidenceGate({"choice:4": 0.5})

    @pytest.mark.parametrize("value", [0, 1, 0.5, {"default": 0}, {"noul:2": 1}, {"choice:2": 0.1, "choice:11+": 0.9, "score:6-10": 0.5}])
    def test_right_ones(self, value: Any) -> None:
        ConfidenceGate(value)

    def test_an_answer_passes_at_its_own_confidence_and_not_above(self, tiny: laya.Agent) -> None:
        own = tiny.predict(PARCEL, QUESTIONS)["answers"]
        for qid, answer in own.items():
            confidence = answer["answer_confidence"]
            assert marks_of(tiny.predict(PARCEL, QUESTIONS, min_confidence=confidence))[qid] == passed(confidence)
            above = math.nextafter(confidence, 1)
            assert marks_of(tiny.predict(PARCEL, QUESTIONS, min_confidence=above))[qid] == abstained(above)

    def test_the_default_is_for_those_that_are_not_named(self, tiny: laya.Agent) -> None:
        found = tiny.predict(PARCEL, QUESTIONS, min_confidence={"default": 1.0, "score:3-5": 0.1, "choice:2": 0.0})
        assert marks_of(found) == {"team": abstained(1.0), "urgency": passed(0.1), "refund": abstained(1.0)}

    @pytest.mark.parametrize("kind", ["choice", "score"])
    def test_each_bucket_has_its_own(self, kind: str, tiny: laya.Agent) -> None:
        counts = {1: "2", 2: "2", 3: "3-5", 5: "3-5", 6: "6-10", 10: "6-10", 11: "11+"}
        asked = {f"of {n}": {"type": kind, "instructions": "x", "criteria": [f"l{index}" for index in range(n)]} for n in counts}
        gate = {f"{kind}:{bucket}": index / 100 for index, bucket in enumerate(("2", "3-5", "6-10", "11+"))}
        found = tiny.predict("late", asked, min_confidence=gate)["answers"]
        assert {qid: answer["abstention_threshold"] for qid, answer in found.items()} == {
            f"of {n}": gate[f"{kind}:{bucket}"] for n, bucket in counts.items()
        }

    def test_no_states_and_no_questions(self, tiny: laya.Agent) -> None:
        assert tiny.predict_batch([], QUESTIONS, min_confidence=0.5) == []
        assert tiny.predict(PARCEL, {}, min_confidence=0.5)["answers"] == {}

    def test_a_router_refuses_before_it_routes_or_loads(self, router: laya.Router, make_hook: Any) -> None:
        hook = make_hook()
        router.add_hook(hook)
        for call in (router.predict, router.predict_long):
            with pytest.raises(ValueError, match="min_confidence"):
                call(PARCEL, QUESTIONS, model="other", min_confidence=2)
        with pytest.raises(ValueError, match="min_confidence"):
            router.predict_batch([{"state": PARCEL, "questions": QUESTIONS, "model": "other"}], min_confidence=2, return_exceptions=True)
        assert (hook.events, router.loaded) == ([], ["tiny"])


class Cache:
    """A hook that keeps results as they are given out, and answers with them."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def on_predict_start(self, ctx: PredictContext) -> None:
        if self.kept:
            ctx.skip(self.kept)

    def on_predict_end(self, ctx: PredictContext) -> None:
        self.kept = self.kept or list(ctx.results or [])


class TestCachedResults:
    @each_call
    def test_marks_are_those_of_the_call_whatever_the_cache_holds(self, call: Any, tiny: laya.Agent, router: laya.Router) -> None:
        cache = Cache()
        gated = call(tiny, router, {"min_confidence": 1.0, "hooks": cache})
        kept = copy.deepcopy(cache.kept)
        assert set(marks_of(gated)["team"]) == set(MARKS)
        assert marks_of(call(tiny, router, {"hooks": cache})) == UNMARKED
        assert marks_of(call(tiny, router, {"min_confidence": 0.0, "hooks": cache})) == dict.fromkeys(QUESTIONS, passed(0.0))
        assert marks_of(call(tiny, router, {"min_confidence": {"noul:2": 1.0}, "hooks": cache}))["refund"] == abstained(1.0)
        assert cache.kept == kept

    def test_what_needs_no_change_is_no_copy(self, tiny: laya.Agent) -> None:
        given = tiny.predict(PARCEL, QUESTIONS)
        assert tiny.predict(PARCEL, QUESTIONS, on_predict_start=lambda ctx: ctx.skip([given])) is given

    CONFIDENCES: tuple[Any, ...] = (None, True, False, math.nan, math.inf, "0.9", 1.5, -0.1, [0.9])

    @pytest.mark.parametrize("confidence", CONFIDENCES, ids=repr)
    @pytest.mark.parametrize("gate", [0.0, {"choice:2": 0.0}], ids=repr)
    def test_a_confidence_that_is_no_probability_abstains_even_at_zero(self, confidence: Any, gate: Any, tiny: laya.Agent) -> None:
        answer = {"type": "choice", "choice": "a", "probabilities": {"a": 0.9, "b": 0.1}, "answer_confidence": confidence}
        assert self.gated(tiny, answer, gate) == abstained(0.0)

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param({"type": "noul", "noul": 0.5}, id="no confidence"),
            pytest.param({}, id="nothing"),
            pytest.param({"answer_confidence": 1.0}, id="no type"),
            pytest.param({"type": "bool", "answer_confidence": 1.0}, id="an unknown type"),
            pytest.param({"type": ["choice"], "answer_confidence": 1.0}, id="a type that is no text"),
            pytest.param({"type": "choice", "answer_confidence": 1.0}, id="no probabilities"),
            pytest.param({"type": "score", "probabilities": 3, "answer_confidence": 1.0}, id="probabilities of no known shape"),
            pytest.param({"type": "score", "probabilities": {}, "answer_confidence": 1.0}, id="no options"),
        ],
    )
    def test_an_answer_of_no_known_shape_abstains(self, answer: Any, tiny: laya.Agent) -> None:
        assert self.gated(tiny, answer, 0.25) == abstained(0.25)
        assert self.gated(tiny, answer, {"default": 0.5, "choice:2": 0.0}) == abstained(0.5)

    @staticmethod
    def gated(agent: laya.Agent, answer: Any, gate: Any) -> Any:
        given = {"model": "a cache", "answers": {"q": answer}, "usage": {}}
        found = agent.predict(PARCEL, QUESTIONS, on_predict_start=lambda ctx: ctx.skip([given]), min_confidence=gate)
        return marks_of(found)["q"]

    @pytest.mark.parametrize("answers", [None, {}, {"q": None}, {"q": "billing"}, ["billing"]], ids=repr)
    def test_what_cannot_be_marked_is_left_as_it_is(self, answers: Any, tiny: laya.Agent) -> None:
        given = {"model": "a cache", "answers": answers}
        found = tiny.predict(PARCEL, QUESTIONS, on_predict_start=lambda ctx: ctx.skip([given]), min_confidence=0.5)
        assert found == given


class TestWhoSeesTheMarks:
    def test_the_end_hooks_of_the_call_do(self, tiny: laya.Agent, router: laya.Router) -> None:
        seen: list[Any] = []
        note = lambda ctx: seen.append([marks_of(result)["team"] for result in ctx.results])  # noqa: E731 one line is enough
        tiny.predict_batch([PARCEL, "late"], QUESTIONS, on_predict_end=note, min_confidence=1.0)
        router.predict(PARCEL, QUESTIONS, model="tiny", on_predict_end=note, min_confidence=1.0)
        router.predict_long(LONG, QUESTIONS, model="tiny", on_predict_end=note, min_confidence=1.0)
        assert seen == [[abstained(1.0)] * 2, [abstained(1.0)], [abstained(1.0)]]

    def test_under_a_router_its_agents_mark_nothing(self, router: laya.Router, tiny: laya.Agent, make_hook: Any) -> None:
        on_agent = make_hook()
        with tiny.hooks_installed(on_agent):
            router.predict(PARCEL, QUESTIONS, model="tiny", min_confidence=1.0)
            router.predict_batch([{"state": PARCEL, "questions": QUESTIONS, "model": "tiny"}], min_confidence=1.0)
            router.predict_long(LONG, QUESTIONS, model="tiny", min_confidence=1.0)
        results = [result for ctx in on_agent.contexts("on_predict_end") for result in ctx.results]
        assert len(results) > 3
        assert [marks_of(result) for result in results] == [UNMARKED] * len(results)

    def test_of_a_long_state_the_merged_answer_is_marked(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        merged = tiny.predict_long(LONG, QUESTIONS)["answers"]["team"]
        found = tiny.predict_long(LONG, QUESTIONS, hooks=hook, min_confidence=merged["answer_confidence"])
        windows = hook.contexts("on_predict_end")[0].results
        assert found["answers"]["team"] == {**merged, **passed(merged["answer_confidence"])}
        assert min(window["answers"]["team"]["answer_confidence"] for window in windows) < merged["answer_confidence"]
        assert [marks_of(window)["team"] for window in windows] == [{}] * len(windows)

    def test_marks_of_an_agents_own_cache_do_not_reach_a_call_without_a_gate(self, router: laya.Router, tiny: laya.Agent) -> None:
        cache = Cache()
        tiny.predict(PARCEL, QUESTIONS, hooks=cache, min_confidence=1.0)
        with tiny.hooks_installed(cache):
            assert marks_of(router.predict(PARCEL, QUESTIONS, model="tiny")) == UNMARKED

    def test_each_request_of_a_batch_is_marked_also_beside_one_that_fails(self, router: laya.Router) -> None:
        requests = [{"state": state, "questions": QUESTIONS, "model": "tiny"} for state in (PARCEL, None, "late")]
        first, failed, last = router.predict_batch(requests, min_confidence=1.0, return_exceptions=True)
        assert isinstance(failed, TypeError)
        assert marks_of(first)["team"] == marks_of(last)["team"] == abstained(1.0)


def test_the_place_of_min_confidence_among_a_batchs_arguments(router: laya.Router) -> None:
    assert list(inspect.signature(laya.Router.predict_batch).parameters)[1:] == [
        *["requests", "batch_size", "hooks_timeout", "min_confidence", "sort_by_length"],
        *["hooks", "on_predict_start", "on_predict_end", "hooks_raise", "return_exceptions"],
    ]
    (found,) = router.predict_batch(
        [{"state": PARCEL, "questions": QUESTIONS, "model": "tiny"}], 8, None, 1.0, True, None, None, None, True
    )
    assert marks_of(found)["team"] == abstained(1.0)
