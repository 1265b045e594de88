"""Inputs that hurt people, from public reports, and what is right for each: see tests/cases. Every test takes the whole kind.

Those of routing and of a Router's life cycle stand in tests/conformance, those of the command and of data sets in tests/pipelines.
"""

from __future__ import annotations

import datetime
import decimal
import math
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import laya
from laya.hooks import PredictContext
from tests.cases import case
from tests.conformance.support import assert_close, leaves

PARCEL = "The courier left my parcel at the wrong house and I would like my money back."


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Models so small gain nothing from threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shares(answer: Any) -> list[float]:
    """The probabilities of an answer's options."""
    return list(answer["probabilities"].values()) if "probabilities" in answer else [1 - answer["noul"], answer["noul"]]


class TestUC01OneOption:
    INPUT = case("UC-01")

    ONE: dict[str, dict[str, Any]] = {  # noqa: RUF012 read only
        "a described label": INPUT["questions"]["noted"],
        "a bare label": {**INPUT["questions"]["noted"], "criteria": ["read"]},
        "a turned order": {**INPUT["questions"]["noted"], "option_order": [0]},
        "a number": {**INPUT["questions"]["noted"], "criteria": [1]},
        "an empty label": {**INPUT["questions"]["noted"], "criteria": [""]},
    }

    @pytest.mark.parametrize("noted", ONE.values(), ids=ONE.keys())
    def test_uc_01_is_certain_and_changes_no_neighbour(self, noted: dict[str, Any], tiny: laya.Agent) -> None:
        (label,) = noted["criteria"]
        team = self.INPUT["questions"]["team"]
        alone = tiny.system_one(self.INPUT["state"], {"team": team})["answers"]["team"]
        for questions in ({"noted": noted}, {"noted": noted, "team": team}, {"team": team, "noted": noted}):
            answers = tiny.system_one(self.INPUT["state"], questions)["answers"]
            found = answers["noted"]
            assert (found["choice"], found["probabilities"]) == (label, {label: 1.0})
            assert (found["confidence"], found["answer_confidence"]) == (1.0, 1.0)
            assert_close(answers.get("team", alone), alone)

    def test_uc_01_of_a_score_too(self, tiny: laya.Agent) -> None:
        questions = {"seen": {"type": "score", "instructions": "Seen?", "criteria": ["seen"]}}
        found = tiny.system_one(self.INPUT["state"], questions)["answers"]["seen"]
        assert (found["score"], found["probabilities"], found["confidence"], found["answer_confidence"]) == (0.0, {"0": 1.0}, 1.0, 1.0)


BLANK: tuple[Any, ...] = ("", " \n ", [], {})


def noul(**parts: Any) -> dict[Any, Any]:
    """A question with some parts replaced."""
    return {"ok": {"type": "noul", "instructions": "Happy?", **parts}}


class TestUC03NearMisses:
    REPORTED = case("UC-03")["questions_each"]

    ALIKE: list[dict[Any, Any]] = [  # noqa: RUF012 read only
        *[noul(criteria=keyed) for keyed in ({"1": "x", "0": "y"}, {"true": "x", "maybe": "y"}, ["x", "y"])],
        *[noul(instructions=blank) for blank in BLANK],
        *[noul(labels=labels) for labels in ({"yes": "a", "no": "b"}, {"true": "a"}, {"true": "a", "false": "a"})],
        *[noul(type=kind, criteria=["a", "b"]) for kind in ("Choice", "SCORE", " choice", "enum", None)],
        *[noul(type="score", criteria=levels) for levels in ([], None, "low, high", [None])],
        *[noul(type="choice", criteria=labels) for labels in ({}, [], ["a", None], ["a", "a"], {None: "a"}, "a, b", None)],
        *[{qid: noul()["ok"]} for qid in ("", "\t", None)],
        {"ok": {"instructions": "Happy?"}},
        {"ok": {"type": "noul"}},
        {"ok": "Happy?"},
    ]

    @pytest.mark.parametrize("questions", [*REPORTED, *ALIKE], ids=str)
    def test_uc_03_are_refused_with_the_questions_name(self, questions: dict[Any, Any], tiny: laya.Agent) -> None:
        state = case("UC-03")["state"]
        (qid,) = questions
        good = {"fine": {"type": "noul", "instructions": "Happy?"}}
        for asked in (questions, {**good, **questions}):
            with pytest.raises(ValueError) as caught:
                tiny.system_one(state, asked)
            assert repr(qid) in str(caught.value)


class TestUC05OptionsThatCollapse:
    INPUT = case("UC-05")

    @staticmethod
    def lanes(count: int) -> dict[str, Any]:
        labels = [f"Overseas account transfer desk number {index:02}" for index in range(1, count + 1)]
        return {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": labels}}

    @pytest.mark.parametrize("name", ["tiny", "mini"])
    def test_uc_05_usage_says_which_and_how_many(self, name: str, request: pytest.FixtureRequest) -> None:
        agent = request.getfixturevalue(name)
        usage = agent.system_one(self.INPUT["state"], self.INPUT["questions"], head_max_len=64)["usage"]
        assert list(usage["options"]) == ["lane"]
        told = usage["options"]["lane"]
        assert told["total"] == 20
        assert told["distinct"] < 20
        assert type(told["tokens_per_option"]) is int
        assert told["tokens_per_option"] >= 1

    def test_uc_05_long_options_alike_in_their_first_words_collapse_at_their_own_cut(self, tiny: laya.Agent) -> None:
        """48 tokens of each option are read, whatever room there is."""
        labels = ["which late the payment " * 20 + end for end in ("one", "two")]
        questions = {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": [*labels, "other"]}}
        told = tiny.system_one(self.INPUT["state"], questions, max_len=512, head_max_len=400)["usage"]["options"]["lane"]
        assert (told["total"], told["distinct"]) == (3, 2)

    def test_uc_05_where_every_option_is_told_apart_nothing_is_said(self, tiny: laya.Agent) -> None:
        questions = case("UC-19")["questions"]
        assert "options" not in tiny.system_one(self.INPUT["state"], questions)["usage"]
        beside = tiny.system_one(self.INPUT["state"], {**questions, **self.INPUT["questions"]}, head_max_len=64)["usage"]
        assert list(beside["options"]) == ["lane"]

    def test_uc_05_more_markers_than_tokens_are_refused(self, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match=r"'lane'.*max_len=64"):
            tiny.system_one(self.INPUT["state"], self.lanes(200), head_max_len=64, max_len=64)
        with pytest.raises(ValueError, match="'lane'"):
            tiny.system_one(self.INPUT["state"], self.lanes(100))


class TestUC15TelemetryThatFails:
    INPUT = case("UC-15")

    CALLS: dict[str, Callable[..., Any]] = {  # noqa: RUF012 read only
        "predict_batch": lambda agent, given, **options: agent.predict_batch(given["states"], given["questions"], **options),
        "system_one": lambda agent, given, **options: agent.system_one(given["states"][1], given["questions"], **options),
    }

    @pytest.mark.parametrize("hooks_raise", INPUT["hooks_raise_each"])
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_uc_15_hides_no_error(self, call: Callable[..., Any], hooks_raise: bool, tiny: laya.Agent, make_hook: Any) -> None:
        def failing(error: type[Exception]) -> Callable[[PredictContext], None]:
            def act(ctx: PredictContext) -> None:
                raise error("telemetry is down")

            return act

        hook = make_hook(on_error=failing(RuntimeError), on_predict_end=failing(KeyError))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(TypeError, match="None") as caught:
                call(tiny, self.INPUT, hooks=hook, hooks_raise=hooks_raise)
        assert hook.events == ["on_predict_start", "on_error", "on_predict_end"]
        ctx = hook.seen[-1][1]
        assert (ctx.error, ctx.results) == (caught.value, None)
        assert [each.category for each in warned] == ([] if hooks_raise else [RuntimeWarning] * 2)


def work_at_once(agent: laya.Agent, calls: int) -> None:
    """UC-17: threads that ask about a short state with options cut at their own budget, and about a long one, by turns."""
    given = case("UC-17")
    states, questions = given["states"], given["questions"]
    serial = [agent.system_one(state, questions) for state in states]
    tokens = [result["usage"]["state_tokens"] for result in serial]
    assert tokens[1] >= 2000 > 48 > tokens[0]
    barrier = threading.Barrier(given["threads"], timeout=60)

    def work(thread: int) -> list[tuple[int, Any]]:
        barrier.wait()
        return [(turn % 2, agent.system_one(states[turn % 2], questions)) for turn in range(thread, thread + calls)]

    with ThreadPoolExecutor(given["threads"]) as threads:
        for found in threads.map(work, range(given["threads"])):
            for index, result in found:
                assert result["usage"]["state_tokens"] == tokens[index]
                assert_close(result, serial[index])


class TestUC17OneAgentInManyThreads:
    def test_uc_17_no_call_sees_anothers_truncation(self, tiny: laya.Agent) -> None:
        work_at_once(tiny, 25)

    @pytest.mark.slow
    def test_uc_17_in_all_the_calls_of_the_report(self, tiny: laya.Agent) -> None:
        work_at_once(tiny, case("UC-17")["calls_per_thread"])


class TestUC19EmptyTexts:
    INPUT = case("UC-19")
    STATES: list[Any] = INPUT["states"]

    ORDERS: dict[str, list[Any]] = {  # noqa: RUF012 read only
        "as reported": STATES,
        "turned round": STATES[::-1],
        "nothing else": ["", "", ""],
        "one": [""],
        "blank of other kinds": ["\n", "\t \r\n", "　", "​", [[]], [{}], {"body": ""}, [""], ""],
    }

    @pytest.mark.parametrize("name", ["tiny", "mini"])
    @pytest.mark.parametrize("states", ORDERS.values(), ids=ORDERS.keys())
    def test_uc_19_are_answered_like_any_other(self, states: list[Any], name: str, request: pytest.FixtureRequest) -> None:
        agent = request.getfixturevalue(name)
        results = agent.predict_batch(states, self.INPUT["questions"])
        for state, result in zip(states, results, strict=True):
            for answer in result["answers"].values():
                assert all(math.isfinite(share) for share in shares(answer))
                assert sum(shares(answer)) == pytest.approx(1, abs=1e-3)
            assert_close(result, agent.system_one(state, self.INPUT["questions"]))

    def test_uc_19_without_questions_or_states(self, tiny: laya.Agent) -> None:
        results = tiny.predict_batch(self.STATES, {})
        assert [(result["answers"], result["usage"]["input_tokens"], result["usage"]["output_tokens"]) for result in results] == [
            ({}, 0, 0)
        ] * 7
        assert tiny.predict_batch([], self.INPUT["questions"]) == []


@pytest.fixture(scope="module")
def pairing(quiet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> laya.Agent:
    """UC-21: an agent whose tokenizer is of the published kind, which merges bytes of a word pair by pair, however long the word."""
    folder = tmp_path_factory.mktemp("checkpoints") / "pairing"
    shutil.copytree(quiet_folder, folder, copy_function=shutil.copyfile)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    runs = [part * 8 for part in ("A", "-", "=", " ", "\n", "/9j4AAQ", "0123456789", "退款什么时候到账")]
    tokenizer.train_from_iterator(["the van is late and the writer wants the money back", *runs], trainer)
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    return laya.load(str(folder), device="cpu")


RUNS: dict[str, Any] = {
    **{f"reported {index}": state for index, state in enumerate(case("UC-21")["states_each"])},
    "digits": "0123456789" * 100_000,
    "one script without spaces": "退款什么时候到账" * 125_000,
    "spaces alone": " " * 1_000_000,
    "line feeds alone": "\n" * 1_000_000,
    "an attachment among turns": [{"role": "user", "content": "see file"}, {"role": "user", "content": "=" * 1_000_000}],
}


def timed(agent: laya.Agent, state: Any) -> tuple[float, Any]:
    """UC-21: seconds that a state takes, and its result."""
    begun = time.perf_counter()
    result = agent.system_one(state, case("UC-21")["questions"])
    return time.perf_counter() - begun, result


@pytest.fixture(scope="module")
def runs(pairing: laya.Agent) -> dict[str, tuple[float, Any]]:
    return {told: timed(pairing, state) for told, state in RUNS.items()}


class TestUC21TextsWithoutWordBreaks:
    BASELINE = case("UC-21")["baseline_state"]

    def test_uc_21_take_no_longer_than_prose_by_far(self, runs: dict[str, tuple[float, Any]], pairing: laya.Agent) -> None:
        limit = min(60.0, 20 * timed(pairing, self.BASELINE)[0])
        assert {told: seconds for told, (seconds, _) in runs.items() if seconds > limit} == {}

    def test_uc_21_nor_with_the_bundled_checkpoint(self, mini: laya.Agent) -> None:
        limit = min(60.0, 20 * timed(mini, self.BASELINE)[0])
        for state in case("UC-21")["states_each"]:
            assert timed(mini, state)[0] <= limit

    @pytest.mark.parametrize("told", RUNS)
    def test_uc_21_are_cut_and_said_to_be(self, told: str, runs: dict[str, tuple[float, Any]]) -> None:
        _, result = runs[told]
        assert result["usage"]["truncated"] is True
        assert result["usage"]["state_tokens_dropped"] > 0
        assert all(math.isfinite(share) for share in shares(result["answers"]["refund"]))


class TestUC23Padding:
    INPUT = case("UC-23")

    @pytest.mark.parametrize("length", INPUT["lengths"])
    def test_uc_23_no_answer_depends_on_the_neighbours_in_its_batch(self, length: int, tiny: laya.Agent) -> None:
        questions = self.INPUT["questions"]
        states = ["short note", "late " * length, ""]
        alone = [tiny.system_one(state, questions, max_len=1024) for state in states]
        assert alone[1]["usage"]["state_tokens"] == length
        for batch_size in self.INPUT["batch_size_each"]:
            for sort_by_length in self.INPUT["sort_by_length_each"]:
                found = tiny.predict_batch(states, questions, batch_size=batch_size, sort_by_length=sort_by_length, max_len=1024)
                for result, wanted in zip(found, alone, strict=True):
                    assert all(math.isfinite(value) for _, value in leaves(result["answers"]) if isinstance(value, float))
                    assert_close(result, wanted, tolerance=2e-3)

    @pytest.mark.parametrize("length", [128, 257])
    def test_uc_23_nor_with_the_bundled_checkpoint(self, length: int, mini: laya.Agent) -> None:
        """Its windows of attention are those of real use."""
        questions = {"team": self.INPUT["questions"]["team"]}
        states = ["short note", "late " * length, ""]
        alone = [mini.system_one(state, questions) for state in states]
        for result, wanted in zip(mini.predict_batch(states, questions, batch_size=3), alone, strict=True):
            assert all(math.isfinite(value) for _, value in leaves(result["answers"]) if isinstance(value, float))
            assert_close(result, wanted, tolerance=2e-3)


class TestUC25RowsOfDataFrames:
    """Refused, with the state's index and the part's name: no guess is made of what a foreign object should read as."""

    INPUT = case("UC-25")

    FOREIGN: dict[str, Any] = {  # noqa: RUF012 read only
        **{name: value for name, value in INPUT["states"][1].items() if name != "body"},
        "date": datetime.date(2026, 1, 5),
        "float32": np.float32(1.5),
        "array": np.array([1, 2]),
        "infinite": float("-inf"),
        "decimal nan": decimal.Decimal("nan"),
        "bytes": b"x",
        "set": {1},
        "tuple of one": (object(),),
    }

    def test_uc_25_as_reported(self, tiny: laya.Agent) -> None:
        with pytest.raises((TypeError, ValueError), match=r"states\[1\]"):
            tiny.predict_batch(self.INPUT["states"], self.INPUT["questions"])

    @pytest.mark.parametrize(("name", "value"), FOREIGN.items(), ids=FOREIGN.keys())
    def test_uc_25_each_is_named(self, name: str, value: Any, tiny: laya.Agent) -> None:
        for state in ({"body": "please refund", name: value}, {"row": {name: value}}, [{name: value}]):
            with pytest.raises((TypeError, ValueError)) as caught:
                tiny.predict_batch([PARCEL, state, PARCEL], self.INPUT["questions"])
            assert "states[1]" in str(caught.value)
            assert repr(name) in str(caught.value)

    def test_uc_25_the_other_requests_of_a_batch_are_answered(self, tiny: laya.Agent) -> None:
        router = laya.Router()
        router.attach("mine", tiny)
        good, bad = self.INPUT["states"]
        requests = [{"state": state, "questions": self.INPUT["questions"], "model": "mine"} for state in (good, bad, good)]
        results = router.predict_batch(requests, return_exceptions=True)
        assert isinstance(results[1], TypeError | ValueError)
        for result in (results[0], results[2]):
            assert_close(result["answers"], tiny.system_one(good, self.INPUT["questions"])["answers"])

    def test_uc_25_what_json_holds_reads_as_json(self, tiny: laya.Agent) -> None:
        plain = {"ticket_id": 7, "opened": "2026-01-05T10:00:00", "amount": 12.5, "ok": True, "note": None}
        text = '{"ticket_id": 7, "opened": "2026-01-05T10:00:00", "amount": 12.5, "ok": true, "note": null}'
        assert tiny.system_one(plain, self.INPUT["questions"]) == tiny.system_one(text, self.INPUT["questions"])


class TestUC27EveryPartOfADocumentIsRead:
    INPUT = case("UC-27")
    MARKERS = tuple(f"S{index:02}" for index in range(1, 41))

    @staticmethod
    def questions(options: int) -> dict[str, Any]:
        labels = [f"option number {index} here" for index in range(options)]
        return {"which": {"type": "choice", "instructions": "Which of these?", "criteria": labels}}

    def scan(self, agent: laya.Agent, options: int, **arguments: Any) -> tuple[list[str], Any]:
        texts: list[str] = []
        result = agent.predict_long(
            self.INPUT["state"], self.questions(options), on_predict_start=lambda ctx: texts.extend(ctx.states), **arguments
        )
        return texts, result

    def assert_all_read(self, texts: list[str], result: Any) -> None:
        assert [marker for marker in self.MARKERS if not any(marker in text for text in texts)] == []
        assert result["usage"]["windows"] == len(texts)
        assert (result["usage"]["truncated"], result["usage"]["state_tokens_dropped"]) == (False, 0)

    @pytest.mark.parametrize("options", [2, 30, INPUT["options"]])
    def test_uc_27_whatever_room_the_options_leave(self, options: int, mini: laya.Agent) -> None:
        self.assert_all_read(*self.scan(mini, options))

    def test_uc_27_a_window_wider_than_the_room_is_cut_and_said_so(self, mini: laya.Agent) -> None:
        with pytest.warns(RuntimeWarning, match="window=1000000"):
            found = self.scan(mini, self.INPUT["options"], window=10**6)
        self.assert_all_read(*found)

    @pytest.mark.parametrize("stride", [1.0, 0.9])
    def test_uc_27_windows_that_touch_or_overlap_a_little(self, stride: float, mini: laya.Agent) -> None:
        self.assert_all_read(*self.scan(mini, 2, window=80, stride=int(80 * stride)))

    @pytest.mark.parametrize("arguments", [{"stride": 10**4}, {"window": 64, "stride": 65}, {"stride": 0}, {"window": 0}], ids=str)
    def test_uc_27_a_stride_that_would_leave_tokens_out_is_refused(self, arguments: dict[str, int], mini: laya.Agent) -> None:
        with pytest.raises(ValueError, match=r"stride|window"):
            self.scan(mini, self.INPUT["options"], **arguments)

    @pytest.mark.parametrize("options", [126, 400])
    def test_uc_27_options_that_fill_the_sequence_are_refused(self, options: int, mini: laya.Agent) -> None:
        with pytest.raises(ValueError, match=r"room|max_len"):
            self.scan(mini, options)


class TestUC29MinConfidence:
    INPUT = case("UC-29")
    KEYS = ("abstention", "abstention_threshold", "low_confidence")

    def answers(self, agent: laya.Agent, min_confidence: Any) -> Any:
        (result,) = agent.predict_batch(self.INPUT["states"], self.INPUT["questions"], min_confidence=min_confidence)
        return result["answers"]

    BAD = (*INPUT["bad_each"], False, "choice", "", [0.5], -1, 2, float("-inf"), {"choice:3-5": True}, {"choice:3-5": "0.5"},
           {"choice:3-5": float("nan")}, {"choise": 0.5}, {"noul:3": 0.5}, {"": 0.5}, {None: 0.5}, {"default": None})  # fmt: skip

    @pytest.mark.parametrize("bad", BAD, ids=repr)
    def test_uc_29_what_is_no_threshold_is_refused(self, bad: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="min_confidence"):
            self.answers(tiny, bad)

    def test_uc_29_nothing_asked_nothing_said(self, tiny: laya.Agent) -> None:
        (plain,) = tiny.predict_batch(self.INPUT["states"], self.INPUT["questions"])
        for answers in (self.answers(tiny, None), plain["answers"]):
            assert [key for answer in answers.values() for key in self.KEYS if key in answer] == []

    def test_uc_29_at_zero_all_pass_and_say_so(self, tiny: laya.Agent) -> None:
        for answer in self.answers(tiny, 0.0).values():
            assert (answer["abstention"], answer["abstention_threshold"]) == ("passed", 0.0)
            assert "low_confidence" not in answer

    def test_uc_29_of_a_map_only_the_kind_that_it_names_is_gated(self, tiny: laya.Agent) -> None:
        answers = self.answers(tiny, {"choice:3-5": 1.0})
        assert (answers["team"]["abstention"], answers["team"]["low_confidence"]) == ("abstained", True)
        assert answers["team"]["abstention_threshold"] == 1.0
        for qid in ("urgency", "refund"):
            assert (answers[qid]["abstention"], answers[qid]["abstention_threshold"]) == ("passed", 0.0)
            assert "low_confidence" not in answers[qid]

    def test_uc_29_the_calibrated_confidence_decides(self, tiny: laya.Agent) -> None:
        plain = self.answers(tiny, None)
        limit = sorted(answer["answer_confidence"] for answer in plain.values())[1]
        for qid, answer in self.answers(tiny, limit).items():
            passed = plain[qid]["answer_confidence"] >= limit
            assert (answer["abstention"], answer.get("low_confidence", False)) == ("passed" if passed else "abstained", not passed)
            assert {key: value for key, value in answer.items() if key not in self.KEYS} == plain[qid]
