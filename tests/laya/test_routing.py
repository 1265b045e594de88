"""Which checkpoint a request goes to: the precedence, the decision, and the table of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laya import RouteDecision, Router
from laya.names import CheckpointSource
from laya.routing import RoutingTable, Wishes
from tests.conformance.support import PRECEDENCE

GERMAN = "ich habe die rechnung doppelt bezahlt und will das geld wieder haben"
ENGLISH = "What was the total on the invoice that you sent me?"
SERVICE = dict.fromkeys(("urgency", "needs_human", "churn_risk", "category", "action"))


def decide(state: Any = "", questions: Any = None, table: RoutingTable | None = None, **wishes: Any) -> RouteDecision:
    return (table or RoutingTable()).decide(state, questions, Wishes(**wishes))[0]


class TestPrecedence:
    """model > task > workflow > lang > lang_guess of the call > lang_guess of the Router > detection > default."""

    @pytest.mark.parametrize("first", range(len(PRECEDENCE)), ids=[name for name, _, _ in PRECEDENCE])
    def test_the_first_wish_there_is_decides(self, first: int) -> None:
        left = PRECEDENCE[first:]
        names = {name for name, _, _ in left}
        wishes: dict[str, Any] = {}
        for _, wish, _ in left:
            wishes.update(wish)
        table = RoutingTable(
            models={"one": "/a", "two": "/b", "three": "/c"},
            default="three",
            auto_task_detection=True,
            lang_guess="en" if "router's lang_guess" in names else None,
        )
        questions = SERVICE if "workflow" in names else {"other": None}
        state = GERMAN if "detection" in names else "12345"
        assert decide(state, questions, table, **wishes).model == left[0][2]

    def test_workflows_count_only_where_they_are_asked_for(self) -> None:
        assert decide(ENGLISH, SERVICE).model == "english"
        assert decide(ENGLISH, SERVICE, RoutingTable(auto_task_detection=True)).model == "typed-decisions"

    @pytest.mark.parametrize("silent", ["", "  ", "C", "POSIX", "und", "zxx", "mul", None])
    def test_a_code_that_says_nothing_falls_through(self, silent: str | None) -> None:
        table = RoutingTable(lang_guess="de")
        assert decide(ENGLISH, None, table, lang=silent, lang_guess=silent).model == "multilingual"
        assert decide(ENGLISH, None, RoutingTable(lang_guess=silent), lang=silent).model == "english"

    @pytest.mark.parametrize(
        ("lang", "model"), [("en_US.UTF-8", "english"), ("eng", "english"), ("de", "multilingual"), ("pt-BR", "multilingual")]
    )
    def test_lang_comes_before_what_the_text_says(self, lang: str, model: str) -> None:
        assert decide(GERMAN, lang=lang).model == model
        assert decide(ENGLISH, lang=lang).model == model

    def test_a_guess_may_be_a_function_of_the_state(self) -> None:
        seen: list[Any] = []

        def guess(state: Any) -> str | None:
            seen.append(state)
            return state.get("lang") if isinstance(state, dict) else None

        assert decide({"lang": "de", "body": ENGLISH}, lang_guess=guess).model == "multilingual"
        assert decide({"lang": "en", "body": GERMAN}, None, RoutingTable(lang_guess=guess)).model == "english"
        assert decide(GERMAN, lang_guess=guess).model == "multilingual"
        assert seen == [{"lang": "de", "body": ENGLISH}, {"lang": "en", "body": GERMAN}, GERMAN]


class TestDetection:
    @pytest.mark.parametrize("default", ["english", "multilingual"])
    @pytest.mark.parametrize("state", ["", "   ", "40817 22", "😀👍🏽", "\u200b\u200d\ufeff", "١٢٣", {}, [], {"n": 7, "ok": True}])
    def test_without_letters_the_default_counts(self, state: Any, default: str) -> None:
        found = Router(default=default).route(state)
        assert found.model == default
        assert found["detection"]["script"] == "unknown"

    @pytest.mark.parametrize(
        ("state", "model"),
        [
            (GERMAN, "multilingual"),
            ("la factura de marzo tiene un error y quiero mi dinero hoy", "multilingual"),
            ("please turn off the lamp in the den", "english"),
            ({"site": "shop.example.com", "mail": "jo@mail.example.com"}, "english"),
            (ENGLISH, "english"),
        ],
    )
    def test_languages_that_were_taken_for_each_other(self, state: Any, model: str) -> None:
        assert Router(default="english").route(state).model == model

    @pytest.mark.parametrize("text", ["Где моя посылка?", "我的包裹在哪里", "أين الطرد الخاص بي", "hello привет мир"])
    @pytest.mark.parametrize("default", ["english", "mini"])
    def test_a_majority_of_other_letters_goes_to_the_multilingual_one(self, text: str, default: str) -> None:
        assert Router(default=default).route(text).model == "multilingual"

    def test_a_language_that_cannot_be_told_goes_to_the_default(self) -> None:
        for default in ("english", "multilingual", "mini"):
            found = Router(default=default).route("xq zzt brk")
            assert found["detection"]["language_undecided"] is True
            assert found.model == default


class TestWorkflows:
    WORKFLOWS: dict[str, set[str]] = {  # noqa: RUF012 read only
        "agent_trace_observability": {"action", "needs_review", "outcome", "risk", "urgency"},
        "customer_service": {"action", "category", "churn_risk", "needs_human", "urgency"},
        "invoice_processing": {"discrepancy_severity", "disposition", "duplicate", "matches_order", "urgency"},
        "security_incidents": {"credential_compromise", "disposition", "severity", "true_positive", "urgency"},
    }

    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_an_exact_set_of_ids_in_any_order(self, name: str) -> None:
        ids = self.WORKFLOWS[name]
        table = RoutingTable(auto_task_detection=True)
        for questions in (dict.fromkeys(sorted(ids)), dict.fromkeys(sorted(ids, reverse=True))):
            found = decide(GERMAN, questions, table)
            assert (found.model, found["workflow"]) == ("typed-decisions", name)
            assert name in found.reason

    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_one_id_more_or_fewer_is_none(self, name: str) -> None:
        ids = sorted(self.WORKFLOWS[name])
        table = RoutingTable(auto_task_detection=True)
        for near in (ids[1:], [*ids, "extra"], [*ids[1:], ids[0].upper()]):
            found = decide(ENGLISH, dict.fromkeys(near), table)
            assert (found.model, found["workflow"]) == ("english", None)


class TestDecision:
    def test_is_a_dict_with_two_attributes(self) -> None:
        found = decide(ENGLISH)
        assert isinstance(found, dict)
        assert list(found) == ["model", "repo", "reason", "detection", "workflow"]
        assert (found.model, found.reason) == (found["model"], found["reason"])
        assert found["detection"]["language"] == "en"
        assert "en" in found.reason

    def test_detection_is_told_only_where_it_was_needed(self) -> None:
        assert decide(ENGLISH, model="mini")["detection"] is None
        assert decide(ENGLISH, lang="en")["detection"] is None

    @pytest.mark.parametrize(
        ("model", "repo", "standalone"),
        [
            ("english", "convaiinnovations/laya", "convaiinnovations/laya"),
            ("multilingual", "convaiinnovations/laya/multilingual", "convaiinnovations/laya-multilingual"),
            ("typed-decisions", "convaiinnovations/laya/typed-decisions", "convaiinnovations/laya-typed-decisions"),
        ],
    )
    def test_repo_is_where_it_comes_from(self, model: str, repo: str, standalone: str) -> None:
        assert decide(model=model)["repo"] == repo
        assert decide(table=RoutingTable(standalone_repos=True), model=model)["repo"] == standalone


class TestNames:
    @pytest.mark.parametrize(
        ("alias", "name"),
        [
            *[(alias, "english") for alias in ("en", "laya", "default", "english")],
            *[(alias, "multilingual") for alias in ("multi", "ml", "laya-multilingual", "multilingual")],
            *[(alias, "typed-decisions") for alias in ("typed", "typed_decisions", "laya-typed-decisions", "decisions", "typed-decisions")],
            ("mini", "mini"),
        ],
    )
    def test_aliases(self, alias: str, name: str) -> None:
        assert decide(model=alias).model == name
        assert decide(task=alias).model == name
        assert RoutingTable(default=alias).default == name

    @pytest.mark.parametrize("wish", ["model", "task"])
    @pytest.mark.parametrize("unknown", ["nonesuch", "", "English "])
    def test_an_unknown_one_is_refused_with_those_that_are_known(self, wish: str, unknown: str) -> None:
        with pytest.raises(ValueError, match="multilingual") as caught:
            RoutingTable().decide("", None, Wishes(**{wish: unknown}))
        assert repr(unknown) in str(caught.value)

    @pytest.mark.parametrize("unknown", [["english"], {"model": "english"}, 7])
    def test_what_is_no_name_at_all(self, unknown: Any) -> None:
        with pytest.raises(ValueError, match="unknown checkpoint"):
            decide(model=unknown)

    def test_an_unknown_default_is_refused_at_once(self) -> None:
        with pytest.raises(ValueError, match="nonesuch"):
            Router(default="nonesuch")


class TestModels:
    def test_a_built_in_name_is_pointed_elsewhere_also_by_its_alias(self) -> None:
        table = RoutingTable(models={"en": "/my/folder"})
        assert decide(table=table, model="english")["repo"] == "/my/folder"
        assert "en" not in table.sources

    def test_a_new_name_is_registered(self) -> None:
        table = RoutingTable(models={"mine": "someone/theirs"}, default="mine")
        assert decide("12345", table=table).model == "mine"

    SOURCES: tuple[tuple[Any, CheckpointSource], ...] = (
        ("/a/folder", CheckpointSource("/a/folder")),
        (Path("/a/folder"), CheckpointSource("/a/folder")),
        ("owner/name", CheckpointSource("owner/name")),
        (("owner/name", "part"), CheckpointSource("owner/name", "part")),
        (CheckpointSource("owner/name", "part", "v1"), CheckpointSource("owner/name", "part", "v1")),
        ("mini", CheckpointSource("mini", bundled=True)),
        ("multi", CheckpointSource("convaiinnovations/laya", "multilingual")),
    )

    @pytest.mark.parametrize(("source", "kept"), SOURCES)
    def test_sources(self, source: Any, kept: CheckpointSource) -> None:
        assert RoutingTable(models={"mine": source}).sources["mine"] == kept

    @pytest.mark.parametrize("source", [None, 7, ["a", "b"], ("a", "b", "c"), {"location": "a"}])
    def test_what_is_no_source(self, source: Any) -> None:
        with pytest.raises(TypeError, match="source"):
            RoutingTable(models={"mine": source})

    @pytest.mark.parametrize("name", ["", "  ", None, 7])
    def test_what_is_no_name(self, name: Any) -> None:
        with pytest.raises(ValueError, match="name"):
            RoutingTable(models={name: "/a"})

    def test_one_router_does_not_change_another(self) -> None:
        RoutingTable(models={"english": "/elsewhere"})
        assert decide(model="english")["repo"] == "convaiinnovations/laya"


class TestRouteFiresOnRoute:
    def test_with_the_fields_of_the_specification(self, make_hook: Any) -> None:
        hook = make_hook()
        router = Router(hooks=hook)
        questions = {"q": {"type": "noul", "instructions": "x"}}
        found = router.route(GERMAN, questions)
        assert hook.events == ["on_route"]
        ctx = hook.seen[0][1]
        assert (ctx.states, ctx.questions, ctx.router) == ([GERMAN], questions, router)
        assert ctx.decision == found
        assert [ctx.results, ctx.agent, ctx.usage, ctx.elapsed_ms, ctx.error] == [None] * 5

    def test_installed_then_per_call(self) -> None:
        order: list[str] = []

        def noting(name: str) -> Any:
            return type("Note", (), {"on_route": lambda self, ctx: order.append(name)})()

        Router(hooks=noting("installed")).route(ENGLISH, hooks=[noting("per call")])
        assert order == ["installed", "per call"]

    REWRITES: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012 read only
        "in place": lambda ctx: ctx.decision.update(model="multilingual", reason="the tenant asked"),
        "a new one": lambda ctx: setattr(ctx, "decision", {**ctx.decision, "model": "multilingual", "reason": "the tenant asked"}),
    }

    @pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES.keys())
    def test_a_hook_may_rewrite_the_decision(self, rewrite: Any, make_hook: Any) -> None:
        found = Router(hooks=make_hook(on_route=rewrite)).route(ENGLISH)
        assert isinstance(found, RouteDecision)
        assert (found.model, found.reason) == ("multilingual", "the tenant asked")

    def test_it_may_veto(self, make_hook: Any) -> None:
        def veto(ctx: Any) -> None:
            raise PermissionError("no")

        hook = make_hook(on_route=veto)
        with pytest.raises(PermissionError, match="no"):
            Router(hooks=hook).route(ENGLISH)
        with pytest.warns(RuntimeWarning, match="PermissionError"):
            assert Router(hooks=hook).route(ENGLISH, hooks_raise=False).model == "english"

    def test_routing_loads_nothing(self) -> None:
        router = Router()
        router.route(GERMAN)
        assert router.loaded == []
