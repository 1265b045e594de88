"""Which checkpoint a Router chooses, and what on_route sees and may change of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from laya import RouteDecision
from laya.hooks import PredictContext, add_default_hook
from tests.cases import case
from tests.conformance.support import ENGLISH, GERMAN, ONE, PRECEDENCE, QUESTIONS, URGENCY, Act, Diary, failing, hook_on

Make = Callable[..., Any]

SERVICE: dict[str, Any] = dict.fromkeys(("urgency", "needs_human", "churn_risk", "category", "action"), URGENCY)


class TestPrecedence:
    """model > task > workflow > lang > lang_guess of the call > lang_guess of the Router > detection > default."""

    @pytest.mark.parametrize("first", range(len(PRECEDENCE)), ids=[name for name, _, _ in PRECEDENCE])
    def test_the_first_wish_there_is_decides(self, first: int, make_warm_router: Make) -> None:
        left = PRECEDENCE[first:]
        names = {name for name, _, _ in left}
        wishes = {key: wish for _, part, _ in left for key, wish in part.items()}
        router = make_warm_router(default="three", auto_task_detection=True, lang_guess="en" if "router's lang_guess" in names else None)
        questions = SERVICE if "workflow" in names else QUESTIONS
        state = GERMAN if "detection" in names else "12345"
        decision = router.route(state, questions, **wishes)
        assert isinstance(decision, RouteDecision)
        assert (decision.model, decision["model"]) == (left[0][2], left[0][2])
        assert decision.reason

    def test_workflows_count_only_where_they_are_asked_for(self, router: Any) -> None:
        decision = router.route(ENGLISH, SERVICE)
        assert (decision.model, decision["workflow"]) == ("english", "customer_service")

    @pytest.mark.parametrize("silent", ["", "C", "POSIX", "und", "zxx", "mul", None])
    def test_a_code_that_says_nothing_falls_through(self, silent: str | None, router: Any) -> None:
        assert router.route(ENGLISH, lang=silent, lang_guess="de").model == "multilingual"
        assert router.route(GERMAN, lang=silent, lang_guess=silent).model == "multilingual"

    def test_a_guess_may_be_a_function_of_the_state(self, make_warm_router: Make) -> None:
        router = make_warm_router(lang_guess=lambda state: "de" if "Rechnung" in state else None)
        assert router.route("Rechnung 12").model == "multilingual"
        assert router.route("12").model == "english"
        assert router.route("12", lang_guess=lambda state: "fr").model == "multilingual"


class TestNames:
    @pytest.mark.parametrize(
        ("alias", "name"),
        [
            *[(alias, "english") for alias in ("en", "laya", "default", "english")],
            *[(alias, "multilingual") for alias in ("multi", "ml", "laya-multilingual")],
            *[(alias, "typed-decisions") for alias in ("typed", "typed_decisions", "laya-typed-decisions", "decisions")],
        ],
    )
    def test_aliases(self, alias: str, name: str, router: Any) -> None:
        assert router.route("12", model=alias).model == name
        assert router.route("12", task=alias).model == name

    def test_an_alias_as_default(self, make_warm_router: Make) -> None:
        assert make_warm_router(default="multi").route("12").model == "multilingual"

    @pytest.mark.parametrize("wish", ["model", "task"])
    def test_unknown_ones_are_refused_with_those_that_are_known(self, wish: str, router: Any) -> None:
        for call in (router.route, router.predict):
            with pytest.raises(ValueError, match=r"nonesuch.*english, .*multilingual"):
                call(ENGLISH, ONE, **{wish: "nonesuch"})

    def test_an_unknown_default_is_refused_at_once(self, make_warm_router: Make) -> None:
        with pytest.raises(ValueError, match="nonesuch"):
            make_warm_router(default="nonesuch")


class TestDecision:
    def test_tells_what_was_found(self, router: Any, folder: Any) -> None:
        decision = router.route(GERMAN, ONE)
        assert {name: decision[name] for name in ("model", "repo", "workflow")} == {
            "model": "multilingual",
            "repo": str(folder),
            "workflow": None,
        }
        assert {name: decision["detection"][name] for name in ("script", "language", "is_english", "language_undecided")} == {
            "script": "latin",
            "language": "de",
            "is_english": False,
            "language_undecided": False,
        }

    def test_is_the_routing_of_the_result(self, router: Any) -> None:
        for state in (ENGLISH, GERMAN, "12"):
            assert router.predict(state, ONE)["routing"] == router.route(state, ONE)

    def test_loads_nothing(self, make_router: Make) -> None:
        router = make_router()
        for state in (ENGLISH, GERMAN):
            router.route(state)
        assert router.loaded == []


def send_to(model: str) -> Act:
    """Changes the decision in place."""

    def rewrite(ctx: PredictContext) -> None:
        assert ctx.decision is not None
        ctx.decision.update(model=model, reason="the tenant asked")

    return rewrite


REWRITES: dict[str, Act] = {
    "in place": send_to("multi"),
    "a new one": lambda ctx: setattr(ctx, "decision", {"model": "multilingual", "reason": "the tenant asked"}),
}


class TestOnRoute:
    def test_route_fires_it_alone_with_its_fields(self, router: Any) -> None:
        diary = Diary()
        decision = router.route(GERMAN, ONE, hooks=diary)
        assert diary.events == ["on_route"]
        note = diary.the("on_route")
        assert note.populated == {"run_id", "started_at", "states", "questions", "decision", "router"}
        assert (note.fields["states"], note.fields["questions"]) == ([GERMAN], ONE)
        assert note.ctx.router is router
        assert note.fields["decision"] == decision

    def test_without_questions(self, router: Any) -> None:
        diary = Diary()
        router.route(GERMAN, hooks=diary)
        assert diary.the("on_route").fields["questions"] == {}

    def test_defaults_then_installed_then_per_call(self, make_warm_router: Make) -> None:
        order: list[str] = []

        def noting(name: str) -> Any:
            return hook_on("on_route", lambda ctx: order.append(name))

        router = make_warm_router(hooks=noting("installed"))
        add_default_hook(noting("default"))
        router.route(ENGLISH, hooks=[noting("call")])
        router.predict(ENGLISH, ONE, hooks=[noting("call")])
        assert order == ["default", "installed", "call"] * 2

    @pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES.keys())
    def test_may_rewrite_the_decision(self, rewrite: Act, router: Any) -> None:
        diary = Diary()
        decision = router.route(ENGLISH, hooks=hook_on("on_route", rewrite))
        assert isinstance(decision, RouteDecision)
        assert (decision.model, decision.reason) == ("multilingual", "the tenant asked")
        result = router.predict(ENGLISH, ONE, hooks=[hook_on("on_route", rewrite), diary])
        assert (result["routing"]["model"], result["routing"]["reason"]) == ("multilingual", "the tenant asked")
        assert diary.the("on_predict_start").ctx.model == "multilingual"

    def test_a_decision_for_what_is_unknown_is_refused(self, router: Any) -> None:
        with pytest.raises(ValueError, match="nonesuch"):
            router.predict(ENGLISH, ONE, hooks=hook_on("on_route", send_to("nonesuch")))

    def test_may_veto(self, router: Any) -> None:
        error = PermissionError("not from here")
        diary = Diary(on_route=failing(error))
        for call in (router.route, router.predict):
            with pytest.raises(PermissionError) as caught:
                call(ENGLISH, ONE, hooks=diary)
            assert caught.value is error
        assert diary.events == ["on_route", "on_route"]

    @pytest.mark.parametrize(
        ("instance", "call", "raises"), [(True, None, True), (True, False, False), (False, None, False), (False, True, True)]
    )
    def test_hooks_raise_of_the_call_comes_before_that_of_the_instance(
        self, instance: bool, call: bool | None, raises: bool, make_warm_router: Make
    ) -> None:
        router = make_warm_router(hooks_raise=instance)
        broken = hook_on("on_route", failing(LookupError("broken hook")))
        if raises:
            with pytest.raises(LookupError):
                router.route(ENGLISH, hooks=broken, hooks_raise=call)
        else:
            with pytest.warns(RuntimeWarning, match="on_route.*LookupError"):
                decision = router.route(ENGLISH, hooks=broken, hooks_raise=call)
            assert decision.model == "english"


CASE_07 = case("UC-07")
CASE_09 = case("UC-09")


@pytest.mark.parametrize("default", [arguments["default"] for arguments in CASE_07["router_each"]])
def test_uc_07_a_state_without_letters_goes_to_the_default(default: str, make_warm_router: Make) -> None:
    router = make_warm_router(default=default)
    for state in [*CASE_07["states_each"], "--- 12:45 ---", "٣٫١٤ €", [{"n": 1}, 2.5, None], {"body": ""}, [""], "​"]:
        decision = router.route(state)
        assert (decision.model, decision["detection"]["script"]) == (default, "unknown"), state


@pytest.mark.parametrize(
    ("state", "model"),
    [
        *[pytest.param(*pair, id=str(pair[0])[:30]) for pair in CASE_09["pairs"]],
        ("wo ist mein paket geblieben ich warte seit zwei wochen", "multilingual"),
        ("no puedo entrar en mi cuenta desde ayer por la noche", "multilingual"),
        ("the gift for the man in the hall was late, please mail him", "english"),
        ({"from": "ana@example.com", "to": "help@shop.example.com", "text": "please send the bill again"}, "english"),
    ],
)
def test_uc_09_languages_that_were_taken_for_each_other(state: Any, model: str, make_warm_router: Make) -> None:
    assert make_warm_router(**CASE_09["router"]).route(state).model == model
