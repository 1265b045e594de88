"""What answers predict_batch and predict_long, in this process or in an actor of a cluster: the same answers, the same errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laya
from tests.conformance.support import DOCUMENT, ENGLISH, MIXED, ONE, QUESTIONS, REFUND, TEAM, all_at_once, assert_close, leaves
from tests.patience import LONG

_GOLDENS = Path(__file__).parents[1] / "goldens" / "cases.jsonl"
_CASES: list[dict[str, Any]] = [json.loads(line) for line in _GOLDENS.read_text(encoding="utf-8").splitlines()]
ANSWERED = [case for case in _CASES if "error" not in case]
REFUSED = [case for case in _CASES if "error" in case]


def by_state(cases: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The cases of each state: their ids are a letter and number for the state, then one for the questions."""
    found: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        found.setdefault(case["id"].partition("q")[0], []).append(case)
    return found


class TestGoldens:
    @pytest.mark.parametrize("cases", by_state(ANSWERED).values(), ids=by_state(ANSWERED).keys())
    def test_answers(self, cases: list[dict[str, Any]], answering: Any) -> None:
        for case in cases:
            (result,) = answering.predict_batch([case["state"]], case["questions"], **(case.get("overrides") or {}))
            # As JSON, because that is how the file holds keys that are no strings.
            assert_close(json.loads(json.dumps(result, allow_nan=False)), case["result"])

    @pytest.mark.parametrize("case", REFUSED, ids=[case["id"] for case in REFUSED])
    def test_errors(self, case: dict[str, Any], answering: Any) -> None:
        with pytest.raises(ValueError, match="'q'") as caught:
            answering.predict_batch([case["state"]], case["questions"])
        assert type(caught.value).__name__ == case["error"]


LANES = [f"Overseas account transfer desk number {index:03}" for index in range(200)]


def lane(count: int) -> dict[str, Any]:
    return {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": LANES[:count]}}


# Calls that fail, and what they are given.
WRONG: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "no state": ("predict_batch", ["fine", None], QUESTIONS, {}),
    "a part that JSON cannot hold": ("predict_batch", ["fine", {"n": [1, float("nan")]}], QUESTIONS, {}),
    "bytes": ("predict_batch", [b"text"], QUESTIONS, {}),
    "half a character": ("predict_batch", ["\ud83d"], QUESTIONS, {}),
    "one text for a list": ("predict_batch", "one text", QUESTIONS, {}),
    "one object for a list": ("predict_batch", {"body": "x"}, QUESTIONS, {}),
    "a type that is none": ("predict_batch", ["x"], {"ok": {"type": "Noul", "instructions": "Happy?"}}, {}),
    "a question that is no dict": ("predict_batch", ["x"], {"ok": "happy?"}, {}),
    "questions that are no dict": ("predict_batch", ["x"], ["happy?"], {}),
    "a null level": ("predict_batch", ["x"], {"ok": {"type": "score", "instructions": "x", "criteria": ["low", None]}}, {}),
    "a bad question for no states": ("predict_batch", [], {"ok": {"type": "score", "instructions": "x"}}, {}),
    "more markers than tokens": ("predict_batch", ["x"], lane(200), {"max_len": 64, "head_max_len": 64}),
    "max_len": ("predict_batch", ["x"], QUESTIONS, {"max_len": 0}),
    "max_len past the encoder": ("predict_batch", ["x"], QUESTIONS, {"max_len": 2049}),
    "head_max_len": ("predict_batch", ["x"], QUESTIONS, {"head_max_len": "96"}),
    "batch_size": ("predict_batch", ["x"], QUESTIONS, {"batch_size": 0}),
    "no long state": ("predict_long", None, QUESTIONS, {}),
    "a bad question of a long state": ("predict_long", DOCUMENT, {"ok": {"type": "score", "instructions": "x"}}, {}),
    "stride": ("predict_long", DOCUMENT, QUESTIONS, {"window": 64, "stride": 65}),
    "stride past the default window": ("predict_long", DOCUMENT, QUESTIONS, {"stride": 10_000}),
    "window": ("predict_long", DOCUMENT, QUESTIONS, {"window": 0}),
    "aggregate": ("predict_long", DOCUMENT, QUESTIONS, {"aggregate": "mean"}),
    "no room for the state": ("predict_long", DOCUMENT, lane(61), {}),
}


class TestErrors:
    @pytest.mark.parametrize(("method", "states", "questions", "options"), WRONG.values(), ids=WRONG.keys())
    def test_have_the_same_class_and_message(
        self, method: str, states: Any, questions: Any, options: dict[str, Any], answering: Any, reference: laya.Agent
    ) -> None:
        with pytest.raises((TypeError, ValueError)) as wanted:
            getattr(reference, method)(states, questions, **options)
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(answering, method)(states, questions, **options)
        assert (type(caught.value), str(caught.value)) == (type(wanted.value), str(wanted.value))

    def test_leave_the_next_call_alone(self, answering: Any) -> None:
        before = answering.predict_batch([ENGLISH], QUESTIONS)
        with pytest.raises(TypeError):
            answering.predict_batch([None], QUESTIONS)
        assert answering.predict_batch([ENGLISH], QUESTIONS) == before


class TestEmptyInputs:
    def test_no_states(self, answering: Any) -> None:
        assert answering.predict_batch([], QUESTIONS) == []
        assert answering.predict_batch([], {}) == []

    def test_no_questions(self, answering: Any, reference: laya.Agent) -> None:
        results = answering.predict_batch(MIXED, {})
        assert results == reference.predict_batch(MIXED, {})
        assert [(result["answers"], result["usage"]["input_tokens"]) for result in results] == [({}, 0)] * len(MIXED)

    @pytest.mark.parametrize("state", ["", "   ", {}, []], ids=repr)
    def test_empty_states(self, state: Any, answering: Any, reference: laya.Agent) -> None:
        assert_close(answering.predict_batch([state], QUESTIONS)[0], reference.system_one(state, QUESTIONS))
        assert_close(answering.predict_long(state, QUESTIONS), reference.predict_long(state, QUESTIONS))


class TestQuestions:
    def test_one_option_alone_and_beside_others(self, answering: Any) -> None:
        noted = {"type": "choice", "instructions": "Record that the note was read.", "criteria": {"read": "the note was read"}}
        alone = answering.predict_batch([ENGLISH], {"team": TEAM})[0]["answers"]["team"]
        for questions in ({"noted": noted}, {"noted": noted, "team": TEAM}, {"team": TEAM, "noted": noted}):
            answers = answering.predict_batch([ENGLISH], questions)[0]["answers"]
            found = answers["noted"]
            assert (found["choice"], found["probabilities"]) == ("read", {"read": 1.0})
            assert (found["confidence"], found["answer_confidence"]) == (1.0, 1.0)
            assert_close(answers.get("team", alone), alone)

    def test_one_level(self, answering: Any) -> None:
        questions = {"seen": {"type": "score", "instructions": "Seen?", "criteria": ["seen"]}}
        found = answering.predict_batch([ENGLISH], questions)[0]["answers"]["seen"]
        assert (found["score"], found["probabilities"], found["answer_confidence"]) == (0.0, {"0": 1.0}, 1.0)

    @pytest.mark.parametrize("count", [2, 3, 20, 50])
    def test_any_number_of_options(self, count: int, answering: Any, reference: laya.Agent) -> None:
        assert_close(answering.predict_batch([ENGLISH], lane(count))[0], reference.predict_batch([ENGLISH], lane(count))[0])

    def test_labels_and_ids_keep_their_types(self, answering: Any) -> None:
        questions = {7: {"type": "choice", "instructions": "x", "criteria": [1, 2.5, False, "1"]}, "7": REFUND}
        answers = answering.predict_batch([ENGLISH], questions)[0]["answers"]
        assert list(answers) == [7, "7"]
        assert [(label, type(label)) for label in answers[7]["probabilities"]] == [(1, int), (2.5, float), (False, bool), ("1", str)]


class TestBudgets:
    @pytest.mark.parametrize(
        "budgets", [{"max_len": 100}, {"head_max_len": 40}, {"max_len": 512}, {"max_len": 128, "head_max_len": 64}], ids=str
    )
    def test_of_a_call(self, budgets: dict[str, Any], answering: Any, reference: laya.Agent) -> None:
        results = answering.predict_batch(MIXED, QUESTIONS, **budgets)
        for result, wanted in zip(results, reference.predict_batch(MIXED, QUESTIONS, **budgets), strict=True):
            assert_close(result, wanted)

    def test_last_for_one_call(self, answering: Any) -> None:
        before = answering.predict_batch(["late " * 300], QUESTIONS)
        answering.predict_batch(["late " * 300], QUESTIONS, max_len=128, head_max_len=64)
        assert answering.predict_batch(["late " * 300], QUESTIONS) == before

    def test_options_that_collapse_are_told(self, answering: Any) -> None:
        usage = answering.predict_batch([ENGLISH], lane(20), head_max_len=64)[0]["usage"]
        assert usage["options"] == {"lane": {"total": 20, "distinct": 1, "tokens_per_option": 4}}


class TestBatches:
    @pytest.mark.parametrize("sort_by_length", [False, True])
    @pytest.mark.parametrize("batch_size", [None, 1, 7])
    def test_results_in_input_order_each_the_one_of_its_state_alone(
        self, batch_size: int | None, sort_by_length: bool, answering: Any, reference: laya.Agent
    ) -> None:
        results = answering.predict_batch(MIXED, QUESTIONS, batch_size=batch_size, sort_by_length=sort_by_length)
        for state, result in zip(MIXED, results, strict=True):
            assert_close(result, reference.system_one(state, QUESTIONS))

    @pytest.mark.parametrize("length", [127, 128, 257, 510])
    def test_padding_changes_nothing(self, length: int, answering: Any) -> None:
        """Rows padded to some lengths became NaN, or depended on their neighbours."""
        states = ["short note", "late " * length, ""]
        alone = [answering.predict_batch([state], QUESTIONS, max_len=1024)[0] for state in states]
        for batch_size in (3, 9):
            for result, wanted in zip(answering.predict_batch(states, QUESTIONS, batch_size=batch_size, max_len=1024), alone, strict=True):
                assert all(math.isfinite(value) for _, value in leaves(result["answers"]) if isinstance(value, float))
                assert_close(result, wanted, tolerance=2e-3)

    def test_batch_size_comes_after_the_questions(self, answering: Any) -> None:
        assert answering.predict_batch(MIXED, ONE, 2) == answering.predict_batch(MIXED, ONE, batch_size=2)

    def test_any_iterable_of_states(self, answering: Any) -> None:
        assert len(answering.predict_batch((state for state in ("a", "b")), ONE)) == 2

    def test_results_are_plain_json(self, answering: Any) -> None:
        results = answering.predict_batch(MIXED, QUESTIONS)
        assert json.loads(json.dumps(results, allow_nan=False)) == results

    def test_the_callers_objects_are_left_alone(self, answering: Any) -> None:
        states, questions = json.loads(json.dumps([MIXED, QUESTIONS]))
        answering.predict_batch(states, questions)
        assert (states, questions) == (MIXED, QUESTIONS)

    def test_from_many_threads(self, answering: Any) -> None:
        """Options cut at their own budget beside a long state: on a shared tokenizer the one's limit cut the other's text."""
        wordy = {f"a{index}": f"desk {index} " + "which takes what the other desks would not have " * 8 for index in range(6)}
        questions = {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": wordy}}
        states = [ENGLISH, "the parcel was late again " * 300]
        serial = [answering.predict_batch([state], questions)[0] for state in states]

        def asking(thread: int) -> Callable[[], list[tuple[int, Any]]]:
            return lambda: [(turn % 2, answering.predict_batch([states[turn % 2]], questions)[0]) for turn in range(thread, thread + 5)]

        for outcome in all_at_once([asking(thread) for thread in range(8)]):
            for index, result in outcome.result(LONG):
                assert_close(result, serial[index])


class TestPredictLong:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"window": 100, "stride": 50},
            {"window": 64, "stride": 64},
            {"window": 64, "batch_size": 7},
            {"aggregate": "auto", "lang": "en"},
        ],
        ids=str,
    )
    def test_answers_usage_and_windows(self, options: dict[str, Any], answering: Any, reference: laya.Agent) -> None:
        found, wanted = (each.predict_long(DOCUMENT, QUESTIONS, **options) for each in (answering, reference))
        assert wanted["usage"]["windows"] > 1
        assert found["usage"] == wanted["usage"]
        for qid, answer in wanted["answers"].items():
            # Another engine may find another of two windows better that are equal to the last digits.
            assert found["answers"][qid]["answer_confidence"] == pytest.approx(answer["answer_confidence"], abs=1e-3)
            assert list(found["answers"][qid]) == list(answer)
            assert found["answers"][qid]["window"]["count"] == answer["window"]["count"]

    @pytest.mark.parametrize("state", [ENGLISH, {"body": ENGLISH}, [{"role": "user", "content": ENGLISH}]], ids=["text", "object", "chat"])
    def test_a_state_that_fits_is_one_plain_call(self, state: Any, answering: Any) -> None:
        (plain,) = answering.predict_batch([state], QUESTIONS)
        assert answering.predict_long(state, QUESTIONS) == {**plain, "usage": {**plain["usage"], "windows": 1}}

    def test_a_state_that_is_no_text_is_scanned_as_its_json(self, answering: Any) -> None:
        state = {"body": DOCUMENT, "n": 7}
        as_text = json.dumps(state)
        assert answering.predict_long(state, QUESTIONS) == answering.predict_long(as_text, QUESTIONS)

    def test_a_window_wider_than_the_room_is_cut_with_a_warning(self, answering: Any) -> None:
        with pytest.warns(RuntimeWarning, match="window=1000000"):
            result = answering.predict_long(DOCUMENT, QUESTIONS, window=1_000_000)
        assert result["usage"]["windows"] > 1
        assert result["usage"]["truncated"] is False
