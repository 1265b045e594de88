"""Temperatures by language: how a language reaches them through every call, and calibration files given to an agent."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laya
from laya import Temperatures

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which desk?", "criteria": ["billing", "technical", "other"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "this week", "now"]},
    "refund": {"type": "noul", "instructions": "Does the writer want money back?"},
}
ENGLISH = "What was the total on the invoice that you sent me?"
GERMAN = "ich habe die rechnung doppelt bezahlt und will das geld wieder haben"
UNTOLD = "12345 67"  # no letters: detection finds no language
LONG = " ".join(f"invoice {index} which late the payment" for index in range(120))
BY_LANG: dict[str, Any] = {
    "de": {"temperature": [1.0, None, 2.0], "temperature_by_options": {"choice:3-5": 4.0}},
    "fr": {"temperature": [0.6, 3.0, 0.7]},
}
SERVED = {
    "de": ((1.0, 1.1, 2.0), {"choice:3-5": 4.0}),
    "fr": ((0.6, 3.0, 0.7), {"choice:3-5": 0.6}),
    None: ((1.2, 1.1, 0.9), {"choice:3-5": 1.5}),
}
"""What a language is answered with, written as general temperatures."""


@pytest.fixture(scope="module")
def folder(quiet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoint with temperatures for German and French."""
    found = tmp_path_factory.mktemp("checkpoints") / "languages"
    shutil.copytree(quiet_folder, found)
    path = found / "rl_agent_config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), "lang_temperatures": BY_LANG}
    path.write_text(json.dumps(config), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def agent(folder: Path) -> laya.Agent:
    return laya.load(str(folder), device="cpu")


@pytest.fixture(scope="module")
def as_of(quiet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | None], laya.Agent]:
    """Makes agents without languages, whose general temperatures are those of one language."""

    def make(lang: str | None) -> laya.Agent:
        path = tmp_path_factory.mktemp("calibrations") / "calibration.json"
        Temperatures(*SERVED[lang]).save(path)
        return laya.load(str(quiet_folder), device="cpu", calibration=path)

    return make


@pytest.fixture
def router(agent: laya.Agent) -> laya.Router:
    found = laya.Router(device="cpu")
    for name in ("english", "multilingual", "typed-decisions", "mine"):
        found.attach(name, agent)
    return found


def confidences(result: Any) -> dict[str, float]:
    return {qid: answer["answer_confidence"] for qid, answer in result["answers"].items()}


class TestAgent:
    @pytest.mark.parametrize(
        ("code", "lang"),
        [
            *[(code, "de") for code in ("de", "DE", "de-AT", "de_AT.UTF-8", " de ")],
            *[("fr", "fr"), ("fr-CA", "fr")],
            *[(code, None) for code in (None, "", "C", "und", "es", "english")],
        ],
    )
    def test_a_language_is_answered_with_its_own(self, code: str | None, lang: str | None, agent: laya.Agent, as_of: Any) -> None:
        wanted = as_of(lang).system_one(GERMAN, QUESTIONS)
        assert agent.system_one(GERMAN, QUESTIONS, lang=code) == wanted
        assert agent.predict(GERMAN, QUESTIONS, lang=code) == wanted
        assert agent.predict_batch([GERMAN], QUESTIONS, lang=code) == [wanted]
        assert agent.predict_long(LONG, QUESTIONS, lang=code) == as_of(lang).predict_long(LONG, QUESTIONS)

    def test_they_differ(self, agent: laya.Agent) -> None:
        found = [confidences(agent.predict(GERMAN, QUESTIONS, lang=lang)) for lang in ("de", "fr", None)]
        for qid in ("team", "refund"):
            assert len({each[qid] for each in found}) == 3
        # German has no temperature of its own for a score.
        assert found[0]["urgency"] == found[2]["urgency"] != found[1]["urgency"]

    def test_the_place_of_lang_in_predict_long_is_what_it_was(self, agent: laya.Agent) -> None:
        assert agent.predict_long(LONG, QUESTIONS, None, None, "auto", None, "de") == agent.predict_long(LONG, QUESTIONS, lang="de")

    @pytest.mark.parametrize("lang", [7, b"de", [7], True])
    def test_what_is_no_code_is_refused_before_any_hook(self, lang: Any, agent: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        for call in (
            lambda: agent.predict(GERMAN, QUESTIONS, lang=lang, hooks=hook),
            lambda: agent.predict_batch([GERMAN], QUESTIONS, lang=lang, hooks=hook),
            lambda: agent.predict_long(GERMAN, QUESTIONS, lang=lang, hooks=hook),
        ):
            with pytest.raises(TypeError, match="lang"):
                call()
        assert hook.events == []

    def test_without_temperatures_of_languages_lang_changes_nothing(self, tiny: laya.Agent) -> None:
        for call in (tiny.predict, tiny.predict_long):
            assert call(LONG, QUESTIONS, lang="de") == call(LONG, QUESTIONS)


class TestGivenToTheAgent:
    def test_lang_temperatures_replace_those_of_their_languages(self, folder: Path, agent: laya.Agent, as_of: Any) -> None:
        given = laya.load(str(folder), device="cpu", lang_temperatures={"fr-FR": BY_LANG["de"], "nl": BY_LANG["fr"]})
        assert given.predict(ENGLISH, QUESTIONS, lang="fr") == as_of("de").predict(ENGLISH, QUESTIONS)
        assert given.predict(ENGLISH, QUESTIONS, lang="nl") == as_of("fr").predict(ENGLISH, QUESTIONS)
        for lang in ("de", None):
            assert given.predict(ENGLISH, QUESTIONS, lang=lang) == agent.predict(ENGLISH, QUESTIONS, lang=lang)

    def test_a_calibration_file_replaces_all(self, tiny_folder: Path, tmp_path: Path) -> None:
        """Also the checkpoint's own are not read, so nothing is told of those that are out of range."""
        path = tmp_path / "calibration.json"
        Temperatures((2.0, 2.0, 2.0)).save(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            given = laya.Agent(str(tiny_folder), "cpu", calibration=str(path))
        for question, old, new in (("team", 1.5, 2.0), ("urgency", 0.8, 2.0), ("refund", 5.0, 2.0)):
            asked = {question: QUESTIONS[question]}
            records = given.calibration_records([ENGLISH], asked, [{question: {"team": "other", "urgency": 0, "refund": True}[question]}])
            shares = [laya.answers.probabilities(records[0].logits, temperature) for temperature in (old, new)]
            assert max(shares[0]) != pytest.approx(max(shares[1]), abs=1e-3)
            assert given.predict(ENGLISH, asked)["answers"][question]["answer_confidence"] == pytest.approx(max(shares[1]), abs=1e-4)

    def test_both(self, folder: Path, as_of: Any, tmp_path: Path) -> None:
        path = tmp_path / "calibration.json"
        Temperatures(*SERVED["fr"]).save(path)
        given = laya.load(str(folder), device="cpu", calibration=path, lang_temperatures={"nl": BY_LANG["fr"]})
        for lang in (None, "de", "nl"):
            assert given.predict(ENGLISH, QUESTIONS, lang=lang) == as_of("fr").predict(ENGLISH, QUESTIONS)

    @pytest.mark.parametrize("languages", [{"de": 1.0}, {"de": {"temperature": [1.0]}}, {"": {}}, [("de", {})]])
    def test_what_is_wrong_is_refused(self, languages: Any, folder: Path) -> None:
        with pytest.raises(ValueError, match="lang_temperatures"):
            laya.load(str(folder), device="cpu", lang_temperatures=languages)

    def test_a_file_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(laya.CheckpointError, match="nowhere"):
            laya.load(str(folder), device="cpu", calibration="nowhere.json")


class TestRouter:
    SAID: tuple[Any, ...] = (
        pytest.param(GERMAN, {"lang": "de"}, "de", id="lang"),
        pytest.param(GERMAN, {"lang": "fr-CA"}, "fr", id="lang against the text"),
        pytest.param(GERMAN, {"lang": "fr", "model": "mine"}, "fr", id="lang beside a model"),
        pytest.param(GERMAN, {"lang": "fr", "task": "typed"}, "fr", id="lang beside a task"),
        pytest.param(GERMAN, {"lang": "es"}, None, id="a language without temperatures"),
        pytest.param(GERMAN, {"lang_guess": "fr"}, "fr", id="lang_guess"),
        pytest.param(GERMAN, {"lang_guess": lambda state: "fr"}, "fr", id="a lang_guess that is called"),
        pytest.param(GERMAN, {"lang_guess": "fr", "model": "mine"}, "fr", id="lang_guess beside a model"),
        pytest.param(GERMAN, {"lang": "und", "lang_guess": "fr"}, "fr", id="a silent lang before a lang_guess"),
        pytest.param(GERMAN, {}, "de", id="detection"),
        pytest.param(GERMAN, {"lang": "C", "lang_guess": lambda state: None}, "de", id="silent ones before detection"),
        pytest.param(GERMAN, {"model": "mine"}, None, id="no detection beside a model"),
        pytest.param(UNTOLD, {}, None, id="a detection that finds none"),
    )

    @pytest.mark.parametrize(("state", "wishes", "lang"), SAID)
    def test_the_agent_is_told_what_was_said_else_what_was_found(
        self, state: str, wishes: Any, lang: str | None, router: laya.Router, agent: laya.Agent
    ) -> None:
        wanted = agent.predict(state, QUESTIONS, lang=lang)["answers"]
        assert router.predict(state, QUESTIONS, **wishes)["answers"] == wanted
        assert router.predict_batch([{"state": state, "questions": QUESTIONS, **wishes}])[0]["answers"] == wanted
        assert router.predict_long(state, QUESTIONS, **wishes)["answers"] == wanted

    def test_languages_differ(self, router: laya.Router, agent: laya.Agent) -> None:
        german, french = (router.predict(UNTOLD, QUESTIONS, lang=lang)["answers"] for lang in ("de", "fr"))
        assert german != french
        assert german == agent.predict(UNTOLD, QUESTIONS, lang="de")["answers"]

    def test_windows_of_a_long_state(self, router: laya.Router, agent: laya.Agent) -> None:
        found = router.predict_long(LONG, QUESTIONS, lang="fr", model="mine")
        assert found["usage"]["windows"] > 1
        assert (
            found["answers"] == agent.predict_long(LONG, QUESTIONS, lang="fr")["answers"] != agent.predict_long(LONG, QUESTIONS)["answers"]
        )

    @pytest.mark.parametrize("guess", ["fr", lambda state: "fr"], ids=["a code", "a function"])
    def test_the_guess_of_the_router(self, guess: Any, agent: laya.Agent) -> None:
        router = laya.Router(device="cpu", lang_guess=guess)
        for name in ("english", "multilingual"):
            router.attach(name, agent)
        assert router.predict(GERMAN, QUESTIONS)["answers"] == agent.predict(GERMAN, QUESTIONS, lang="fr")["answers"]
        assert router.predict(GERMAN, QUESTIONS, lang="de")["answers"] == agent.predict(GERMAN, QUESTIONS, lang="de")["answers"]

    def test_a_batch_of_many_languages_is_answered_as_each_alone(self, router: laya.Router) -> None:
        wishes: list[dict[str, Any]] = [{"lang": lang, "model": "mine"} for lang in ("de", "fr", None, "es", "de-AT", "und", "FR")]
        requests = [{"state": GERMAN, "questions": QUESTIONS, **each} for each in wishes]
        requests += [{"state": state, "questions": QUESTIONS} for state in (GERMAN, ENGLISH, UNTOLD)]
        for request, found in zip(requests, router.predict_batch(requests), strict=True):
            alone = router.predict(**request)
            assert found["routing"] == alone["routing"]
            assert confidences(found) == pytest.approx(confidences(alone), abs=2e-4)

    def test_requests_of_different_languages_share_a_pass(self, router: laya.Router, agent: laya.Agent, make_hook: Any) -> None:
        passes = make_hook()
        langs = ("de", "fr", "de-AT", None, "und", "fr_FR.UTF-8")
        with agent.hooks_installed(passes):
            found = router.predict_batch([{"state": GERMAN, "questions": QUESTIONS, "model": "mine", "lang": lang} for lang in langs])
        assert [len(ctx.states) for ctx in passes.contexts("on_predict_start")] == [6]
        wanted = agent.predict_batch([GERMAN] * 6, QUESTIONS, lang=("de", "fr", "de", None, None, "fr"))
        assert [result["answers"] for result in found] == [result["answers"] for result in wanted]
        assert wanted[0]["answers"] != wanted[1]["answers"] != wanted[3]["answers"]

    def test_a_guess_is_not_made_where_it_decides_nothing(self, router: laya.Router) -> None:
        asked: list[Any] = []
        router.predict(GERMAN, QUESTIONS, model="mine", lang_guess=asked.append)
        assert asked == []

    def test_a_list_of_languages_has_one_for_each_state(self, agent: laya.Agent) -> None:
        with pytest.raises(ValueError, match="lang holds 1 codes for 2 states"):
            agent.predict_batch([GERMAN, ENGLISH], QUESTIONS, lang=["de"])

    def test_the_decision_has_its_five_keys(self, router: laya.Router) -> None:
        every: list[dict[str, Any]] = [{}, {"lang": "de"}, {"model": "mine", "lang": "de"}]
        for wishes in every:
            decision = router.route(GERMAN, **wishes)
            assert list(decision) == ["model", "repo", "reason", "detection", "workflow"]
            assert (decision["detection"] is None) == bool(wishes)
