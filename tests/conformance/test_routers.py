"""Calls that are routed first: their payloads, the routing of what a hook answers, and batches of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import laya
from laya.hooks import PredictContext, add_default_hook
from tests.conformance.support import (
    DOCUMENT,
    ENGLISH,
    GERMAN,
    ONE,
    QUESTIONS,
    Diary,
    all_at_once,
    assert_close,
    failing,
    hook_on,
    supplied,
)
from tests.patience import LONG

Make = Callable[..., Any]

URGENT: dict[str, Any] = {"urgency": QUESTIONS["urgency"]}
BAD: dict[str, Any] = {"q": {"type": "bool", "instructions": "x"}}

ROUTE = {"run_id", "started_at", "states", "questions", "decision", "router"}
START = ROUTE | {"model", "agent"}


class TestPayloads:
    """Which fields hold something, event by event. Those of on_load and on_evict stand with the life cycle."""

    def test_of_a_call_that_is_answered(self, router: Any) -> None:
        diary = Diary()
        router.predict(ENGLISH, QUESTIONS, hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            ("on_route", ROUTE),
            ("on_predict_start", START),
            ("on_predict_end", START | {"results", "usage", "elapsed_ms"}),
        ]

    def test_of_a_call_that_fails(self, router: Any) -> None:
        diary = Diary()
        with pytest.raises(ValueError, match="question 'q'"):
            router.predict(ENGLISH, BAD, hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            ("on_route", ROUTE),
            ("on_predict_start", START),
            ("on_error", START | {"error"}),
            ("on_predict_end", START | {"error", "elapsed_ms"}),
        ]

    def test_of_a_call_that_a_hook_answers(self, router: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        router.predict(ENGLISH, ONE, hooks=diary)
        assert diary.the("on_predict_end").populated == START | {"results", "usage", "elapsed_ms"}

    def test_of_budgets(self, router: Any) -> None:
        diary = Diary()
        router.predict(ENGLISH, ONE, hooks=diary, max_len=128, head_max_len=64)
        assert [note.populated for note in diary.notes[:2]] == [ROUTE | {"max_len", "head_max_len"}, START | {"max_len", "head_max_len"}]

    def test_of_each_request_of_a_batch(self, router: Any) -> None:
        diary = Diary()
        router.predict_batch([ask("one"), ask("two")], hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            *[("on_route", ROUTE)] * 2,
            *[("on_predict_start", START)] * 2,
            *[("on_predict_end", START | {"results", "usage", "elapsed_ms"})] * 2,
        ]

    def test_of_a_long_state(self, router: Any) -> None:
        diary = Diary()
        router.predict_long(DOCUMENT, ONE, model="english", hooks=diary)
        assert [(note.event, note.populated) for note in diary.notes] == [
            ("on_route", ROUTE),
            ("on_predict_start", START),
            ("on_predict_end", START | {"results", "usage", "elapsed_ms"}),
        ]

    def test_the_router_itself_the_resolved_name_and_the_agent(self, router: Any) -> None:
        diary = Diary()
        router.predict(ENGLISH, ONE, model="multi", hooks=diary)
        assert all(note.ctx.router is router for note in diary.notes)
        for note in diary.notes[1:]:
            assert (note.fields["model"], note.fields["decision"]["model"]) == ("multilingual", "multilingual")
            assert note.fields["agent"] is router.load("multilingual")

    def test_one_context_for_the_whole_call_also_on_route(self, router: Any) -> None:
        diary = Diary()
        router.predict(ENGLISH, ONE, hooks=diary)
        assert diary.events == ["on_route", "on_predict_start", "on_predict_end"]
        assert len({note.ctx for note in diary.notes}) == 1

    def test_a_router_that_was_made_with_hooks_is_the_one_in_their_contexts(self, make_warm_router: Make) -> None:
        diary = Diary()
        router = make_warm_router(hooks=diary)
        router.predict(ENGLISH, ONE)
        assert all(note.ctx.router is router for note in diary.notes)


class TestPredict:
    @pytest.mark.parametrize(("state", "model"), [(ENGLISH, "english"), (GERMAN, "multilingual"), ("12345", "english")])
    def test_is_the_agents_answer_with_the_routing(self, state: str, model: str, router: Any, reference: laya.Agent) -> None:
        result = router.predict(state, QUESTIONS)
        assert list(result) == ["model", "answers", "usage", "routing"]
        assert_close({key: result[key] for key in ("model", "answers", "usage")}, reference.system_one(state, QUESTIONS))
        assert result["routing"]["model"] == model
        assert type(result["routing"]) is dict
        json.dumps(result, allow_nan=False)

    @pytest.mark.parametrize("questions", [None, "refund", [], [QUESTIONS["refund"]]], ids=["none", "text", "empty list", "list"])
    def test_questions_that_are_no_dict(self, questions: Any, router: Any) -> None:
        with pytest.raises(TypeError, match="questions"):
            router.predict(ENGLISH, questions)

    @pytest.mark.parametrize(
        ("state", "questions", "error"), [(None, ONE, TypeError), ({"n": float("nan")}, ONE, ValueError), (ENGLISH, BAD, ValueError)]
    )
    def test_fails_as_the_agent_does(self, state: Any, questions: Any, error: type[Exception], router: Any, reference: laya.Agent) -> None:
        with pytest.raises(error):
            reference.system_one(state, questions)
        diary = Diary()
        with pytest.raises(error) as caught:
            router.predict(state, questions, hooks=diary)
        assert diary.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]
        assert diary.the("on_predict_end").fields["error"] is caught.value

    def test_no_questions(self, router: Any) -> None:
        result = router.predict(ENGLISH, {})
        assert (result["answers"], result["usage"]["input_tokens"]) == ({}, 0)

    def test_budgets_of_the_call(self, router: Any) -> None:
        assert router.predict("late " * 300, ONE, max_len=100)["usage"]["input_tokens"] == 100
        with pytest.raises(ValueError, match="max_len"):
            router.predict(ENGLISH, ONE, max_len=0)

    def test_from_many_threads(self, router: Any) -> None:
        states = [ENGLISH, GERMAN, "12345", "late " * 300]
        wanted = [router.predict(state, QUESTIONS) for state in states]
        outcomes = all_at_once([partial(router.predict, state, QUESTIONS) for state in states * 3])
        for outcome, result in zip(outcomes, wanted * 3, strict=True):
            assert_close(outcome.result(LONG), result)


class TestSkip:
    """A result that a hook supplies gets the routing, unless it has one."""

    def test_routing_is_added(self, router: Any) -> None:
        diary = Diary(on_predict_start=lambda ctx: ctx.skip([supplied()]))
        result = router.predict(GERMAN, ONE, hooks=diary)
        assert result == {**supplied(), "routing": router.route(GERMAN, ONE)}
        assert diary.the("on_predict_end").fields["results"] == [result]

    def test_routing_that_is_there_stays(self, router: Any) -> None:
        given = {**supplied(), "routing": {"model": "mine"}}
        assert router.predict(ENGLISH, ONE, on_predict_start=lambda ctx: ctx.skip([given])) == given

    def test_of_one_request_of_a_batch(self, router: Any) -> None:
        def cache(ctx: PredictContext) -> None:
            if ctx.states == ["known"]:
                ctx.skip([supplied()])

        results = router.predict_batch([ask("one"), ask("known"), ask("three")], on_predict_start=cache)
        assert results[1] == {**supplied(), "routing": results[0]["routing"]}
        assert results[0]["model"] == results[2]["model"] == "laya-rl-agent"

    def test_of_a_long_state(self, router: Any) -> None:
        result = router.predict_long(DOCUMENT, ONE, model="english", on_predict_start=lambda ctx: ctx.skip([supplied()]))
        assert result["answers"] == supplied()["answers"]
        assert result["usage"] == {**supplied()["usage"], "windows": 0}
        assert result["routing"]["model"] == "english"


class TestPredictLong:
    def test_is_the_agents_with_the_routing(self, router: Any, reference: laya.Agent) -> None:
        result = router.predict_long(DOCUMENT, QUESTIONS, model="english", window=100, stride=50)
        assert_close({key: result[key] for key in ("model", "answers", "usage")}, reference.predict_long(DOCUMENT, QUESTIONS, 100, 50))
        assert result["routing"]["model"] == "english"
        assert result["usage"]["windows"] > 1

    def test_hooks_see_the_whole_state(self, router: Any) -> None:
        diary = Diary()
        router.predict_long(DOCUMENT, ONE, model="english", hooks=diary)
        assert [note.fields["states"] for note in diary.notes] == [[DOCUMENT]] * 3

    def test_its_arguments_are_checked(self, router: Any) -> None:
        diary = Diary()
        with pytest.raises(ValueError, match="stride"):
            router.predict_long(DOCUMENT, ONE, model="english", window=64, stride=65, hooks=diary)
        assert diary.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]


def ask(state: Any, questions: Any = ONE, model: str | None = "english", **more: Any) -> dict[str, Any]:
    return {"state": state, "questions": questions, "model": model, **more}


class TestPredictBatch:
    def test_each_result_is_that_of_its_own_predict_in_input_order(self, router: Any) -> None:
        requests = [
            ask(GERMAN, model=None),
            ask("late", URGENT, model=None),
            ask(GERMAN, {**ONE, **URGENT}, model="multilingual"),
            ask({"body": ENGLISH}, model=None),
            ask("late " * 300, max_len=100),
            ask(ENGLISH, model=None, lang="de"),
            ask("12345", model=None, lang_guess="de"),
            ask(ENGLISH, model=None, task="multi"),
            ask("late " * 300, head_max_len=40),
            ask("", {}),
        ]
        results = router.predict_batch(requests)
        models = [result["routing"]["model"] for result in results]
        assert models == ["multilingual", "english"] * 2 + ["english"] + ["multilingual"] * 3 + ["english"] * 2
        for request, result in zip(requests, results, strict=True):
            assert_close(result, router.predict(**request))

    def test_nothing(self, router: Any) -> None:
        diary = Diary()
        assert router.predict_batch([], hooks=diary) == []
        assert diary.events == []

    def test_a_context_of_its_own_for_each_request_with_its_one_state(self, router: Any) -> None:
        diary, installed = Diary(), Diary()
        router.add_hook(installed)
        router.predict_batch([ask("one"), ask("two", model="multilingual"), ask("three")], hooks=diary)
        assert installed.events == diary.events
        for event in ("on_route", "on_predict_start", "on_predict_end"):
            assert sorted(note.fields["states"] for note in diary.of(event)) == [["one"], ["three"], ["two"]]
        assert len({note.ctx for note in diary.notes}) == len({note.fields["run_id"] for note in diary.notes}) == 3

    def test_a_run_id_of_the_request(self, router: Any) -> None:
        diary = Diary()
        router.predict_batch([ask("one", run_id="row-1"), ask("two")], hooks=diary)
        run_ids = [note.fields["run_id"] for note in diary.of("on_predict_start")]
        assert run_ids[0] == "row-1"
        assert len(run_ids[1]) == 32

    def test_routes_first_then_group_by_group_starts_and_ends_in_reverse(self, router: Any) -> None:
        diary = Diary()
        requests = [ask("1"), ask("2", model="multilingual"), ask("3"), ask("4", model="multilingual"), ask("5")]
        router.predict_batch(requests, hooks=diary)
        assert [(note.event, note.fields["states"][0]) for note in diary.notes] == [
            *[("on_route", name) for name in "12345"],
            *[("on_predict_start", name) for name in "135"],
            *[("on_predict_end", name) for name in "531"],
            *[("on_predict_start", name) for name in "24"],
            *[("on_predict_end", name) for name in "42"],
        ]

    def test_defaults_fire_once_a_request(self, router: Any) -> None:
        diary = Diary()
        add_default_hook(diary)
        router.predict_batch([ask("1"), ask("2"), ask("3")])
        assert diary.events == ["on_route"] * 3 + ["on_predict_start"] * 3 + ["on_predict_end"] * 3
        assert all(note.ctx.router is router for note in diary.notes)

    @pytest.mark.parametrize(
        ("request_", "error", "told"),
        [
            pytest.param("text", TypeError, "str", id="a text"),
            pytest.param(None, TypeError, "NoneType", id="none"),
            pytest.param({"questions": ONE}, ValueError, "state", id="no state"),
            pytest.param({"state": "x"}, ValueError, "questions", id="no questions"),
            pytest.param(ask("x", modle="a"), ValueError, "modle", id="an unknown key"),
        ],
    )
    def test_what_is_no_request_is_named_by_its_index(self, request_: Any, error: type[Exception], told: str, router: Any) -> None:
        with pytest.raises(error, match=rf"requests\[1\].*{told}"):
            router.predict_batch([ask("fine"), request_])


def veto(ctx: PredictContext) -> None:
    if ctx.states == ["veto"]:
        raise PermissionError("not this one")


class TestFailuresInABatch:
    def test_each_started_request_of_the_group_is_told_and_ended(self, router: Any) -> None:
        diary = Diary()
        with pytest.raises(ValueError, match="question 'q'") as caught:
            router.predict_batch([ask("1"), ask("bad", BAD), ask("3")], hooks=diary)
        assert [(note.event, note.fields["states"][0]) for note in diary.notes if note.event != "on_route"] == [
            *[("on_predict_start", name) for name in ("1", "bad", "3")],
            *[(event, name) for name in ("3", "bad", "1") for event in ("on_error", "on_predict_end")],
        ]
        assert {note.ctx.error for note in diary.notes} == {caught.value}

    def test_a_veto_fails_those_that_started_before_it(self, router: Any) -> None:
        diary = Diary(on_predict_start=veto)
        with pytest.raises(PermissionError):
            router.predict_batch([ask("1"), ask("veto"), ask("3")], hooks=diary)
        assert [(note.event, note.fields["states"][0]) for note in diary.notes if note.event != "on_route"] == [
            *[("on_predict_start", name) for name in ("1", "veto")],
            *[(event, name) for name in ("veto", "1") for event in ("on_error", "on_predict_end")],
        ]

    def test_the_groups_before_it_have_ended(self, router: Any) -> None:
        diary = Diary()
        with pytest.raises(ValueError, match="question 'q'"):
            router.predict_batch([ask("1"), ask("bad", BAD, model="multilingual"), ask("3")], hooks=diary)
        ends = {note.fields["states"][0]: note.fields["error"] for note in diary.of("on_predict_end")}
        assert {state: type(error) for state, error in ends.items()} == {"1": type(None), "3": type(None), "bad": ValueError}

    def test_return_exceptions_puts_each_in_its_place(self, router: Any) -> None:
        results = router.predict_batch(
            [
                ask("fine"),
                ask("bad", BAD),
                ask("veto"),
                ask(None),
                ask("x", model="nonesuch"),
                {"state": "x"},
                ask("x", max_len=0),
                "no request",
                ask("also fine", model="multilingual"),
            ],
            on_predict_start=veto,
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [
            *[dict, ValueError, PermissionError, TypeError, ValueError, ValueError, ValueError, TypeError, dict]
        ]
        for index, told in {1: "question 'q'", 4: "nonesuch", 5: r"requests[5]", 6: "max_len", 7: "requests[7]"}.items():
            assert told in str(results[index])
        assert results[0]["answers"] == router.predict("fine", ONE, model="english")["answers"]

    def test_a_neighbour_that_fails_changes_no_hook_of_the_others(self, router: Any) -> None:
        diary = Diary(on_predict_start=veto)
        router.predict_batch([ask("1"), ask("veto"), ask("3")], hooks=diary, return_exceptions=True)
        assert [(note.event, note.fields["states"][0]) for note in diary.notes if note.event != "on_route"] == [
            *[("on_predict_start", "1"), ("on_predict_start", "veto"), ("on_predict_start", "3")],
            *[("on_predict_end", "3"), ("on_error", "veto"), ("on_predict_end", "veto"), ("on_predict_end", "1")],
        ]
        assert {note.fields["states"][0]: note.ctx.error is None for note in diary.notes} == {"1": True, "veto": False, "3": True}

    def test_an_end_hook_that_fails_on_success(self, router: Any) -> None:
        def end(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                raise KeyError("end")

        with pytest.raises(KeyError, match="end"):
            router.predict_batch([ask("1"), ask("2")], on_predict_end=end)
        results = router.predict_batch([ask("1"), ask("2")], on_predict_end=end, return_exceptions=True)
        assert [type(result) for result in results] == [dict, KeyError]

    def test_a_route_hook_that_vetoes_one(self, router: Any) -> None:
        results = router.predict_batch([ask("1"), ask("veto")], hooks=hook_on("on_route", veto), return_exceptions=True)
        assert [type(result) for result in results] == [dict, PermissionError]

    def test_hooks_that_fail_while_they_report_hide_nothing(self, router: Any) -> None:
        diary = Diary(on_error=failing(RuntimeError("telemetry is down")), on_predict_end=failing(KeyError("still down")))
        with pytest.raises(TypeError, match="None"):
            router.predict_batch([ask("1"), ask(None)], hooks=diary)
        assert [diary.events.count(event) for event in ("on_error", "on_predict_end")] == [2, 2]


@pytest.fixture
def passes(router: Any, folder: Any) -> Iterator[Diary]:
    """What an agent of this process, attached as ``mine``, is asked by the Router."""
    diary = Diary()
    router.attach("mine", laya.Agent(str(folder), device="cpu", hooks=diary))
    yield diary
    router.unload("mine")


class TestSharedPasses:
    def test_like_requests_share_one(self, router: Any, passes: Diary) -> None:
        both, turned = {**ONE, **URGENT}, {**URGENT, **ONE}
        diary = Diary()
        requests = [
            ask("1", both, "mine"),
            ask("2", turned, "mine"),
            ask("3", both, "mine"),
            ask("4", both, "mine", max_len=128),
            ask("5", both, "mine", head_max_len=64),
            ask("6", turned, "mine"),
        ]
        results = router.predict_batch(requests, hooks=diary)
        # Different groups are asked for at the same time, so that they meet in the engine.
        shared = sorted(passes.of("on_predict_start"), key=lambda note: note.fields["states"])
        assert [note.fields["states"] for note in shared] == [["1", "3"], ["2", "6"], ["4"], ["5"]]
        assert [(note.fields["max_len"], note.fields["head_max_len"]) for note in shared] == [
            *[(None, None), (None, None), (128, None), (None, 64)]
        ]
        assert [list(result["answers"]) for result in results] == [list(request["questions"]) for request in requests]
        run_ids = {note.fields["states"][0]: note.fields["run_id"] for note in diary.of("on_predict_start")}
        assert [note.fields["request_ids"] for note in shared] == [[run_ids[state] for state in note.fields["states"]] for note in shared]

    def test_requests_are_grouped_by_what_the_hooks_left(self, router: Any, passes: Diary) -> None:
        def rewrite(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                ctx.states, ctx.questions = ["rewritten"], dict(ONE)

        requests = [ask("1", ONE, "mine"), ask("2", URGENT, "mine"), ask("3", URGENT, "mine")]
        results = router.predict_batch(requests, on_predict_start=rewrite)
        assert sorted(note.fields["states"] for note in passes.of("on_predict_start")) == [["1", "rewritten"], ["3"]]
        assert [list(result["answers"]) for result in results] == [["refund"], ["refund"], ["urgency"]]

    def test_a_request_that_a_hook_answers_is_in_none(self, router: Any, passes: Diary) -> None:
        def cache(ctx: PredictContext) -> None:
            if ctx.states == ["2"]:
                ctx.skip([supplied()])

        router.predict_batch([ask(state, ONE, "mine") for state in "123"], on_predict_start=cache)
        assert [note.fields["states"] for note in passes.of("on_predict_start")] == [["1", "3"]]

    def test_a_call_whose_every_request_is_answered_asks_nothing(self, router: Any, passes: Diary) -> None:
        router.predict_batch([ask(state, ONE, "mine") for state in "123"], on_predict_start=lambda ctx: ctx.skip([supplied()]))
        assert passes.events == []

    def test_hooks_of_the_agent_see_the_pass_and_not_the_router(self, router: Any, passes: Diary) -> None:
        diary = Diary()
        router.predict(ENGLISH, ONE, model="mine", hooks=diary)
        (start, end) = passes.notes
        assert (start.event, end.event) == ("on_predict_start", "on_predict_end")
        assert start.ctx.router is None
        assert start.fields["request_ids"] == [diary.the("on_predict_start").fields["run_id"]]
        assert start.fields["run_id"] not in start.fields["request_ids"]

    def test_a_hook_of_the_agent_may_veto(self, router: Any, passes: Diary) -> None:
        del passes
        diary = Diary()
        with (
            router.load("mine").hooks_installed(hook_on("on_predict_start", failing(PermissionError("no")))),
            pytest.raises(PermissionError),
        ):
            router.predict(ENGLISH, ONE, model="mine", hooks=diary)
        assert diary.events == ["on_route", "on_predict_start", "on_error", "on_predict_end"]
