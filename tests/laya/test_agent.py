"""Agents: one call, many states, budgets, batches, threads, and hooks round all of it."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import laya
from laya.hooks import PredictContext

Q = dict[str, Any]

TEAM: Q = {
    "type": "choice",
    "instructions": "Which desk should take this message?",
    "criteria": {"billing": "money, invoices, refunds", "technical": "faults and outages", "other": "anything else"},
}
URGENCY: Q = {"type": "score", "instructions": "How pressing is it?", "criteria": ["can wait", "this week", "right now"]}
REFUND: Q = {
    "type": "noul",
    "instructions": "Does the writer want money back?",
    "criteria": {"true": "asks for money back", "false": "does not ask for money back"},
}
QUESTIONS: Q = {"team": TEAM, "urgency": URGENCY, "refund": REFUND}
PARCEL = "The courier left my parcel at the wrong house and I would like my money back."
MIXED: list[Any] = [
    PARCEL,
    "",
    "invoice " * 300,
    {"subject": "late", "n": 12},
    [{"role": "user", "content": "where is it"}, {"role": "agent", "content": "on its way"}],
    "退款什么时候到账",
    "short",
]


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a result with its path."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{path}/{key}")
    else:
        yield path, value


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-3) -> None:
    mine, theirs = dict(numbers(found)), dict(numbers(wanted))
    assert mine.keys() == theirs.keys()
    for path, value in theirs.items():
        if isinstance(value, float):
            assert mine[path] == pytest.approx(value, abs=tolerance), path
        else:
            assert mine[path] == value, path


class TestEmptyInputs:
    def test_no_states(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        assert tiny.predict_batch([], QUESTIONS, hooks=hook) == []
        assert hook.events == ["on_predict_start", "on_predict_end"]
        assert hook.seen[1][1].usage == {"input_tokens": 0, "output_tokens": 0}

    def test_no_questions(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        results = tiny.predict_batch(MIXED, {}, hooks=hook)
        assert len(results) == len(MIXED)
        for result in results:
            assert result["answers"] == {}
            assert result["model"] == "laya-rl-agent"
            assert result["usage"] == {
                "input_tokens": 0,
                "output_tokens": 0,
                "state_tokens": 0,
                "state_tokens_dropped": 0,
                "truncated": False,
                "truncated_questions": [],
            }
        assert hook.events == ["on_predict_start", "on_predict_end"]

    @pytest.mark.parametrize(
        ("states", "questions"),
        [
            pytest.param([], {"never": {"type": "noul", "instructions": "asked by nobody else"}}, id="no states"),
            pytest.param(["some text"], {}, id="no questions"),
        ],
    )
    def test_nothing_is_tokenized(self, states: list[Any], questions: Q, tiny: laya.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        texts: list[str] = []
        encode = tiny._tokenizer.encode

        def noting(given: list[str]) -> list[list[int]]:
            texts.extend(given)
            return encode(given)

        monkeypatch.setattr(tiny._tokenizer, "encode", noting)
        tiny.predict_batch(states, questions)
        assert texts == []

    def test_a_bad_question_is_refused_all_the_same(self, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="question 'q'"):
            tiny.predict_batch([], {"q": {"type": "score", "instructions": "x"}})


class TestStates:
    def test_empty_and_blank_ones_among_others(self, tiny: laya.Agent) -> None:
        """An empty text last in the list was the worst case."""
        states = ["", "   ", {}, [], "x", PARCEL, ""]
        results = tiny.predict_batch(states, QUESTIONS)
        assert len(results) == 7
        for result in results:
            for answer in result["answers"].values():
                shares = list(answer["probabilities"].values()) if "probabilities" in answer else [answer["noul"], 1 - answer["noul"]]
                assert all(math.isfinite(share) for share in shares)
                assert sum(shares) == pytest.approx(1, abs=1e-3)
        for state, result in zip(states, results, strict=True):
            assert_close(result, tiny.system_one(state, QUESTIONS))

    @pytest.mark.parametrize(
        "bad",
        [
            None,
            ("a",),
            b"a",
            {"when": datetime.date(2026, 1, 5)},
            {"n": float("nan")},
            {"n": np.int64(7)},
            [decimal.Decimal("12.5")],
            "\ud83d",
        ],
        ids=repr,
    )
    def test_what_is_no_state_names_its_index(self, bad: Any, tiny: laya.Agent) -> None:
        with pytest.raises((TypeError, ValueError), match=r"states\[2\]"):
            tiny.predict_batch(["fine", {}, bad, "fine"], QUESTIONS)

    def test_none_is_a_type_error(self, tiny: laya.Agent) -> None:
        with pytest.raises(TypeError, match=r"states\[1\].*None"):
            tiny.predict_batch(["ok", None], QUESTIONS)
        with pytest.raises(TypeError, match="None"):
            tiny.system_one(None, QUESTIONS)

    @pytest.mark.parametrize("states", ["one text", {"body": "x"}])
    def test_one_state_in_place_of_a_list_is_told_apart(self, states: Any, tiny: laya.Agent) -> None:
        with pytest.raises(TypeError, match="system_one"):
            tiny.predict_batch(states, QUESTIONS)

    def test_any_iterable_of_states(self, tiny: laya.Agent) -> None:
        states: Any = (state for state in ("a", "b"))
        assert len(tiny.predict_batch(states, QUESTIONS)) == 2

    def test_of_a_long_text_the_start_counts_and_of_a_conversation_the_end(self, tiny: laya.Agent) -> None:
        text = "invoice late " * 200
        cut, same = tiny.predict_batch([text + "server", text + "payment"], QUESTIONS)
        assert cut == same
        assert cut["usage"]["truncated"] is True
        older, newer = ([{"content": text}, {"content": last}] for last in ("server", "payment"))
        first, second = tiny.predict_batch([older, newer], QUESTIONS)
        assert first["answers"] != second["answers"]

    def test_the_callers_objects_are_left_alone(self, tiny: laya.Agent) -> None:
        states, questions = json.loads(json.dumps([MIXED, QUESTIONS]))
        tiny.predict_batch(states, questions)
        assert [states, questions] == json.loads(json.dumps([MIXED, QUESTIONS]))


class TestQuestions:
    def test_one_option_alone_and_beside_others(self, tiny: laya.Agent) -> None:
        """An enum of one value builds exactly that."""
        noted = {"type": "choice", "instructions": "Record that the note was read.", "criteria": {"read": "the note was read"}}
        state = "Parcel record closed by the depot before anyone rang back."
        for questions in ({"noted": noted}, {"noted": noted, "team": TEAM}, {"team": TEAM, "noted": noted}):
            answers = tiny.system_one(state, questions)["answers"]
            found = answers["noted"]
            assert (found["choice"], found["probabilities"]) == ("read", {"read": 1.0})
            assert (found["confidence"], found["answer_confidence"]) == (1.0, 1.0)
            if "team" in answers:
                assert_close(answers["team"], tiny.system_one(state, {"team": TEAM})["answers"]["team"])

    def test_questions_do_not_depend_on_their_neighbours(self, tiny: laya.Agent) -> None:
        together = tiny.system_one(PARCEL, QUESTIONS)["answers"]
        assert list(together) == list(QUESTIONS)
        for qid, question in QUESTIONS.items():
            assert_close(together[qid], tiny.system_one(PARCEL, {qid: question})["answers"][qid])

    def test_a_turned_option_order_answers_in_the_callers_order(self, tiny: laya.Agent) -> None:
        turned = tiny.system_one(PARCEL, {"team": {**TEAM, "option_order": [2, 0, 1]}})["answers"]["team"]
        assert list(turned["probabilities"]) == ["billing", "technical", "other"]
        shown = {label: TEAM["criteria"][label] for label in ("other", "billing", "technical")}
        same = tiny.system_one(PARCEL, {"team": {**TEAM, "criteria": shown}})["answers"]["team"]
        assert_close(turned["probabilities"], {label: same["probabilities"][label] for label in turned["probabilities"]})

    def test_a_bad_question_stops_the_call_before_any_forward_pass(self, tiny: laya.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.nn.Module.__call__", lambda *args, **options: pytest.fail("the model ran"))
        with pytest.raises(ValueError, match="question 'urgency'"):
            tiny.predict_batch(MIXED, {**QUESTIONS, "urgency": {"type": "score", "instructions": "x"}})

    def test_int_ids(self, tiny: laya.Agent) -> None:
        assert list(tiny.system_one("x", {7: REFUND, "7": REFUND})["answers"]) == [7, "7"]


LANES = [f"Overseas account transfer desk number {index:02}" for index in range(1, 21)]


def lane(labels: list[str]) -> Q:
    return {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": labels}}


class TestOptionsThatCollapse:
    """Once the option budget is spent, similar labels are cut to the same few tokens."""

    def test_usage_says_so(self, tiny: laya.Agent) -> None:
        options = tiny.system_one(PARCEL, lane(LANES), head_max_len=64)["usage"]["options"]
        assert list(options) == ["lane"]
        assert list(options["lane"]) == ["total", "distinct", "tokens_per_option"]
        # (64 - 16) // 20 is 2, and 4 with the marker is the least: three tokens of text, the same for all.
        assert options["lane"] == {"total": 20, "distinct": 1, "tokens_per_option": 4}

    def test_only_where_it_happened(self, tiny: laya.Agent) -> None:
        usage = tiny.system_one(PARCEL, {**QUESTIONS, **lane(LANES)}, head_max_len=64)["usage"]
        assert list(usage["options"]) == ["lane"]
        assert "options" not in tiny.system_one(PARCEL, QUESTIONS)["usage"]

    def test_more_markers_than_tokens(self, tiny: laya.Agent) -> None:
        labels = [f"Overseas account transfer desk number {index:03}" for index in range(200)]
        with pytest.raises(ValueError, match=r"'lane'.*max_len=64.*head_max_len=64"):
            tiny.system_one(PARCEL, lane(labels), head_max_len=64, max_len=64)


class TestUsage:
    def test_counts(self, tiny: laya.Agent) -> None:
        empty, usage = (tiny.system_one(state, QUESTIONS)["usage"] for state in ("", "late late late"))
        assert usage == {
            "input_tokens": empty["input_tokens"] + 3 * 3,
            "output_tokens": 0,
            "state_tokens": 3,
            "state_tokens_dropped": 0,
            "truncated": False,
            "truncated_questions": [],
        }

    def test_truncation_is_told_by_question_and_the_worst_is_counted(self, tiny: laya.Agent) -> None:
        short, long = {"type": "noul", "instructions": "x"}, {"type": "choice", "instructions": "x", "criteria": LANES}
        rooms = {
            qid: 256 - tiny.system_one("", {qid: question})["usage"]["input_tokens"] for qid, question in (("short", short), ("long", long))
        }
        assert rooms["long"] < rooms["short"]
        tokens = rooms["short"]
        usage = tiny.system_one("late " * tokens, {"short": short, "long": long})["usage"]
        assert usage["truncated_questions"] == ["long"]
        assert usage["truncated"] is True
        assert usage["state_tokens"] == tokens
        assert usage["state_tokens_dropped"] == tokens - rooms["long"]
        assert usage["input_tokens"] == 2 * 256

    def test_of_a_batch_it_is_each_states_own_and_the_context_has_the_sum(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        results = tiny.predict_batch(["late", "late late"], QUESTIONS, hooks=hook)
        assert [result["usage"]["state_tokens"] for result in results] == [1, 2]
        total = sum(result["usage"]["input_tokens"] for result in results)
        assert hook.seen[1][1].usage == {"input_tokens": total, "output_tokens": 0}


class TestBudgets:
    def test_of_the_call_replace_those_of_the_checkpoint(self, tiny: laya.Agent) -> None:
        state = "late " * 400
        whole = tiny.system_one(state, QUESTIONS, max_len=1024)["usage"]
        assert (whole["state_tokens_dropped"], whole["truncated"]) == (0, False)
        assert tiny.system_one(state, {"refund": REFUND}, max_len=100)["usage"]["input_tokens"] == 100
        narrow = tiny.system_one("", {"team": {**TEAM, "instructions": "late " * 200}}, head_max_len=60)["usage"]["input_tokens"]
        wide = tiny.system_one("", {"team": {**TEAM, "instructions": "late " * 200}}, head_max_len=120)["usage"]["input_tokens"]
        assert (narrow, wide) == (60 + 4, 120 + 4)  # [CLS] and three [SEP] stand outside the head's budget

    def test_they_last_for_one_call(self, tiny: laya.Agent) -> None:
        before = tiny.system_one("late " * 300, QUESTIONS)
        tiny.system_one("late " * 300, QUESTIONS, max_len=128, head_max_len=64)
        assert tiny.system_one("late " * 300, QUESTIONS) == before
        assert (tiny.max_len, tiny.head_max_len) == (256, 96)

    def test_a_start_hook_may_set_them(self, tiny: laya.Agent) -> None:
        def narrow(ctx: PredictContext) -> None:
            assert (ctx.max_len, ctx.head_max_len) == (None, None)
            ctx.max_len, ctx.head_max_len = 128, 64

        state = "late " * 300
        assert tiny.system_one(state, QUESTIONS, on_predict_start=narrow) == tiny.system_one(state, QUESTIONS, max_len=128, head_max_len=64)

    def test_those_of_the_call_are_on_the_context(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        tiny.predict_batch(["x"], QUESTIONS, hooks=hook, max_len=128, head_max_len=64)
        assert [(ctx.max_len, ctx.head_max_len) for _, ctx in hook.seen] == [(128, 64)] * 2

    @pytest.mark.parametrize("name", ["max_len", "head_max_len"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "128", True, False])
    def test_refused(self, name: str, value: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match=name):
            tiny.system_one("x", QUESTIONS, **{name: value})
        with pytest.raises(ValueError, match=name):
            tiny.predict_batch(["x"], QUESTIONS, **{name: value})

    def test_more_than_the_encoder_can_read(self, tiny: laya.Agent) -> None:
        assert tiny.system_one("x", QUESTIONS, max_len=2048)["answers"]
        with pytest.raises(ValueError, match=r"max_len=2049.*2048"):
            tiny.system_one("x", QUESTIONS, max_len=2049)


class TestBatches:
    @pytest.mark.parametrize("sort_by_length", [False, True])
    @pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 100])
    def test_neither_size_nor_order_changes_an_answer(self, batch_size: int | None, sort_by_length: bool, tiny: laya.Agent) -> None:
        results = tiny.predict_batch(MIXED, QUESTIONS, batch_size=batch_size, sort_by_length=sort_by_length)
        assert len(results) == len(MIXED)
        for state, result in zip(MIXED, results, strict=True):
            assert_close(result, tiny.system_one(state, QUESTIONS))

    @pytest.mark.parametrize("length", [127, 128, 129, 160, 255, 256, 257, 288, 510, 512])
    def test_lengths_at_which_padded_rows_went_wrong(self, length: int, tiny: laya.Agent) -> None:
        """Scores changed with the neighbours, and rows padded to some lengths became NaN."""
        states = ["short note", "late " * length, ""]
        alone = [tiny.system_one(state, QUESTIONS, max_len=1024) for state in states]
        assert [result["usage"]["state_tokens"] for result in alone][1:] == [length, 0]
        for batch_size in (1, 2, 3):
            for sort_by_length in (False, True):
                found = tiny.predict_batch(states, QUESTIONS, batch_size=batch_size, sort_by_length=sort_by_length, max_len=1024)
                for result, wanted in zip(found, alone, strict=True):
                    assert all(math.isfinite(value) for _, value in numbers(result["answers"]) if isinstance(value, float))
                    assert_close(result, wanted, tolerance=2e-3)

    @pytest.mark.parametrize("batch_size", [0, -1, 1.5, "8", True])
    def test_a_batch_size_is_a_positive_number(self, batch_size: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="batch_size"):
            tiny.predict_batch(["x"], QUESTIONS, batch_size=batch_size)

    def test_a_token_budget_narrower_than_any_row(self, quiet_folder: Path) -> None:
        narrow, wide = (laya.load(str(quiet_folder), device="cpu", token_budget=budget) for budget in (1, 100_000))
        for found, wanted in zip(*(agent.predict_batch(MIXED, QUESTIONS) for agent in (narrow, wide)), strict=True):
            assert_close(found, wanted)


DEFAULT_PRECISION = {"precision": "float32", "precision_reason": "the default on this device"}


class TestCalls:
    def test_predict_is_system_one(self, tiny: laya.Agent, make_hook: Any) -> None:
        hook = make_hook()
        assert tiny.predict(PARCEL, QUESTIONS, hook, max_len=128) == tiny.system_one(PARCEL, QUESTIONS, max_len=128)
        assert hook.events == ["on_predict_start", "on_predict_end"]

    def test_load_is_agent(self, quiet_folder: Path) -> None:
        assert type(laya.load(str(quiet_folder), "cpu")) is laya.Agent

    def test_the_bundled_checkpoint_tells_messages_apart(self, mini: laya.Agent) -> None:
        wants, does_not = mini.predict_batch([PARCEL, "Thank you, the parcel came on time and all is well."], {"refund": REFUND})
        assert wants["answers"]["refund"]["noul"] > 0.5 > does_not["answers"]["refund"]["noul"]

    def test_results_are_plain_json(self, tiny: laya.Agent) -> None:
        results = tiny.predict_batch(MIXED, QUESTIONS)
        assert json.loads(json.dumps(results, allow_nan=False)) == results

    def test_describe(self, tiny: laya.Agent, tiny_folder: Path) -> None:
        assert tiny.describe() == {"model_id": str(tiny_folder), "engine": "torch", "device": "cpu", **DEFAULT_PRECISION}

    def test_fast_computes_in_the_checkpoints_amp_dtype(self, quiet_folder: Path) -> None:
        exact, fast = (laya.load(str(quiet_folder), device="cpu", fast=fast) for fast in (False, True))
        assert (exact.describe()["precision"], fast.describe()["precision"]) == ("float32", "bfloat16")
        for found, wanted in zip(fast.predict_batch(MIXED, QUESTIONS), exact.predict_batch(MIXED, QUESTIONS), strict=True):
            assert found["usage"] == wanted["usage"]
            assert found["answers"]["refund"]["noul"] == pytest.approx(wanted["answers"]["refund"]["noul"], abs=0.05)

    def test_equal_states_are_computed_once_and_their_results_are_apart(self, quiet_folder: Path) -> None:
        agent = laya.load(str(quiet_folder), device="cpu")
        turns: list[Any] = [{"role": "user", "content": PARCEL}]
        states = [PARCEL, turns, PARCEL, json.dumps(turns), turns, PARCEL]
        found = agent.predict_batch(states, {"refund": REFUND}, lang=[None, None, "de", None, None, None])
        assert agent.stats().rows <= 3
        alone = [agent.system_one(state, {"refund": REFUND}) for state in states]
        assert [result["usage"] for result in found] == [result["usage"] for result in alone]
        for result, wanted in zip(found, alone, strict=True):
            assert result["answers"]["refund"]["noul"] == pytest.approx(wanted["answers"]["refund"]["noul"], abs=2e-4)
        found[0]["answers"]["refund"]["noul"] = 7.0
        assert found[2]["answers"]["refund"]["noul"] != 7.0
        assert len({id(result["usage"]) for result in found}) == len(states)

    def test_a_call_leaves_torch_as_it_was(self, tiny: laya.Agent) -> None:
        import torch

        before = (torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
        tiny.system_one(PARCEL, QUESTIONS)
        assert (torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()) == before


class TestHooks:
    def test_once_a_call_with_every_state_and_the_fields_of_an_agent(self, tiny: laya.Agent, make_hook: Any) -> None:
        seen: list[dict[str, Any]] = []
        hook = make_hook(on_predict_start=lambda ctx: seen.append(dict(vars(ctx))))
        results = tiny.predict_batch(["a", "b"], QUESTIONS, hooks=hook)
        assert hook.events == ["on_predict_start", "on_predict_end"]
        start, end = seen[0], hook.seen[1][1]
        assert (start["states"], start["questions"], start["model"], start["agent"]) == (["a", "b"], QUESTIONS, tiny.model_id, tiny)
        unset = ("results", "decision", "router", "max_len", "head_max_len", "usage", "elapsed_ms", "error", "request_ids")
        assert [start[name] for name in unset] == [None] * len(unset)
        assert end is hook.seen[0][1]
        assert end.results == results
        assert end.elapsed_ms > 0

    def test_states_and_questions_rewritten_at_the_start_are_what_is_scored(self, tiny: laya.Agent) -> None:
        def rewrite(ctx: PredictContext) -> None:
            ctx.states[0] = "rewritten"
            ctx.questions = {"refund": REFUND}

        states = ["secret", "other"]
        results = tiny.predict_batch(states, QUESTIONS, on_predict_start=rewrite)
        assert results == tiny.predict_batch(["rewritten", "other"], {"refund": REFUND})
        assert states == ["secret", "other"]

    def test_results_rewritten_at_the_end_are_what_is_returned(self, tiny: laya.Agent) -> None:
        def rewrite(ctx: PredictContext) -> None:
            assert ctx.results is not None
            ctx.results[0]["audit"] = ctx.run_id

        result = tiny.system_one(PARCEL, QUESTIONS, on_predict_end=rewrite)
        assert len(result["audit"]) == 32

    def test_skip_answers_without_the_model(self, tiny: laya.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.nn.Module.__call__", lambda *args, **options: pytest.fail("the model ran"))
        given = {"model": "a cache", "answers": {}, "usage": {"input_tokens": 5, "output_tokens": 0}}
        ends: list[PredictContext] = []
        result = tiny.system_one(PARCEL, QUESTIONS, on_predict_start=lambda ctx: ctx.skip([given]), on_predict_end=ends.append)
        assert result == given
        assert ends[0].usage == {"input_tokens": 5, "output_tokens": 0}

    def test_the_cache_of_the_reference(self, tiny: laya.Agent) -> None:
        cache: dict[str, Any] = {}
        hits: list[int] = []

        def key(ctx: PredictContext, index: int) -> str:
            return json.dumps([ctx.states[index], ctx.questions, ctx.model, ctx.max_len, ctx.head_max_len], default=str)

        def read(ctx: PredictContext) -> None:
            found: list[Any] = [cache.get(key(ctx, index)) for index in range(len(ctx.states))]
            if all(hit is not None for hit in found):
                hits.append(len(found))
                ctx.skip(found)

        def write(ctx: PredictContext) -> None:
            for index, result in enumerate(ctx.results or []):
                cache[key(ctx, index)] = result

        def ask(states: list[Any], **options: Any) -> Any:
            return tiny.predict_batch(states, QUESTIONS, on_predict_start=read, on_predict_end=write, **options)

        first = ask(["a", "b"])
        assert hits == []
        assert ask(["b", "a"]) == [first[1], first[0]]
        assert hits == [2]
        ask(["a"], max_len=128)
        assert hits == [2]

    @pytest.mark.parametrize("hooks_raise", [True, False])
    def test_telemetry_that_fails_while_it_reports_an_error(self, hooks_raise: bool, tiny: laya.Agent, make_hook: Any) -> None:
        """Once, its failure replaced the real error, and end hooks were left out."""

        def fail(error: type[Exception]) -> Callable[[PredictContext], None]:
            def act(ctx: PredictContext) -> None:
                raise error("telemetry is down")

            return act

        hook = make_hook(on_error=fail(RuntimeError), on_predict_end=fail(KeyError))

        def call() -> None:
            with pytest.raises(TypeError, match=r"states\[1\].*None") as caught:
                tiny.predict_batch(["ok", None], {"refund": REFUND}, hooks=hook, hooks_raise=hooks_raise)
            assert hook.seen[-1][1].error is caught.value

        if hooks_raise:
            call()
        else:
            with pytest.warns(RuntimeWarning) as warned:
                call()
            assert len(warned) == 2
        assert hook.events == ["on_predict_start", "on_error", "on_predict_end"]
        ctx = hook.seen[-1][1]
        assert (ctx.results, ctx.usage) == (None, None)
        assert ctx.elapsed_ms is not None


class TestThreads:
    def test_one_agent_in_many_threads(self, tiny: laya.Agent) -> None:
        """Options cut by budget beside a long state; each result equals its serial one."""
        told = (
            "a long description of desk {} that goes on and on so that it passes the per option cut and must be truncated every single time"
        )
        questions = {
            "lane": {"type": "choice", "instructions": "Which desk?", "criteria": {f"a{index}": told.format(index) for index in range(10)}}
        }
        states = [PARCEL, "the parcel was late again " * 100]
        serial = [tiny.system_one(state, questions) for state in states]
        barrier = threading.Barrier(8)

        def work(thread: int) -> list[tuple[int, Any]]:
            barrier.wait(30)
            return [(turn % 2, tiny.system_one(states[turn % 2], questions)) for turn in range(thread, thread + 6)]

        with ThreadPoolExecutor(8) as threads:
            for found in threads.map(work, range(8)):
                for index, result in found:
                    assert_close(result, serial[index])

    def test_hooks_of_one_call_see_that_call_alone(self, tiny: laya.Agent) -> None:
        def ask(index: int) -> bool:
            seen: list[PredictContext] = []
            result = tiny.system_one(f"state {index}", QUESTIONS, on_predict_start=seen.append, on_predict_end=seen.append)
            return seen[0] is seen[1] and seen[0].states == [f"state {index}"] and seen[0].results == [result]

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(ask, range(24)))


def test_the_error_of_a_broken_checkpoint_survives_pickling(tmp_path: Path) -> None:
    with pytest.raises(laya.CheckpointError) as caught:
        laya.load(str(tmp_path), device="cpu")
    there = pickle.loads(pickle.dumps(caught.value))
    assert (type(there), there.args) == (laya.CheckpointError, caught.value.args)


class TestWhichEndIsKept:
    """Of a state that is too long: the newest turns of a conversation, the start of anything else."""

    LONG: ClassVar[dict[str, Any]] = {"first": "refund please", "rest": "which late the payment " * 200, "last": "server quote"}
    ASKED: ClassVar[dict[str, Any]] = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}

    def test_a_dict_is_read_from_its_start_as_its_text_is(self, tiny: laya.Agent) -> None:
        found = tiny.system_one(self.LONG, self.ASKED)
        assert found["usage"]["truncated"]
        assert found == tiny.system_one(json.dumps(self.LONG), self.ASKED)

    def test_a_list_is_read_to_its_end(self, tiny: laya.Agent) -> None:
        turns = [{"content": text} for text in self.LONG.values()]
        kept = tiny.system_one(turns, self.ASKED)["answers"]
        assert kept != tiny.system_one(json.dumps(turns), self.ASKED)["answers"]
        assert kept == tiny.system_one([{"content": "another beginning"}, *turns[1:]], self.ASKED)["answers"]
