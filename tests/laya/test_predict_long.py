"""predict_long: what hooks see and change, what the answer may claim, and that no part of a document goes unread."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import laya
from laya.answers import decode_answer
from laya.calibration import Temperatures
from laya.checkpoint import build_model, open_checkpoint
from laya.engine.torch_engine import TorchEngine
from laya.hooks import PredictContext
from laya.names import CheckpointSource
from laya.questions import parse_questions
from laya.sequences import build_heads, build_sequence
from laya.tokenizer import Tokenizer

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which desk?", "criteria": ["billing", "technical", "other"]},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "this week", "now"]},
    "refund": {"type": "noul", "instructions": "Does the writer want money back?"},
}
DOCUMENT = " ".join(f"{word} {index} which late the payment" for index, word in enumerate(["refund", "invoice", "server", "quote"] * 30))
# Words of two and three tokens: windows start inside words, where the text alone would be read as other tokens.
CUT_INSIDE_WORDS = " ".join(["came"] * 60 + ["cane"] * 60)
SUPPLIED = {"model": "a cache", "answers": {"refund": {"type": "noul", "noul": 0.25}}, "usage": {"input_tokens": 3, "output_tokens": 0}}
SHORT = "where is my invoice"
REFUND: dict[str, Any] = {"refund": {"type": "noul", "instructions": "Does the writer want money back?"}}


class Scan:
    """One predict_long with a start action, and what its hooks saw."""

    def __init__(self, agent: laya.Agent, state: Any, act: Callable[[PredictContext], Any] = lambda ctx: None, **options: Any) -> None:
        self.starts: list[list[Any]] = []
        self.ends: list[PredictContext] = []

        def start(ctx: PredictContext) -> None:
            self.starts.append(list(ctx.states))
            act(ctx)

        questions = options.pop("questions", QUESTIONS)
        self.result = agent.predict_long(state, questions, on_predict_start=start, on_predict_end=self.ends.append, **options)

    @property
    def texts(self) -> list[Any]:
        """What ctx.states held when the start hook was called."""
        return self.starts[0]

    @property
    def named(self) -> list[str]:
        """The questions whose answer names a window."""
        return [qid for qid, answer in self.result["answers"].items() if "window" in answer]


def skip(ctx: PredictContext) -> None:
    ctx.skip([SUPPLIED])


class TestTheScanIsLeftAsItWasBuilt:
    def test_hooks_fire_once_with_the_texts_of_the_windows_in_order(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT)
        assert (len(scan.starts), len(scan.ends)) == (1, 1)
        assert len(scan.texts) > 2
        assert all(isinstance(text, str) for text in scan.texts)
        places = [DOCUMENT.index(text) for text in scan.texts]
        assert places[0] == 0
        assert places == sorted(places)
        assert DOCUMENT.endswith(scan.texts[-1])

    def test_usage_counts_them_and_every_answer_names_its_own(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT)
        assert scan.result["usage"]["windows"] == len(scan.texts)
        assert scan.named == list(QUESTIONS)
        for answer in scan.result["answers"].values():
            assert list(answer["window"]) == ["index", "token_start", "token_end", "count"]
            assert answer["window"]["count"] == len(scan.texts)

    @pytest.mark.parametrize("document", [DOCUMENT, CUT_INSIDE_WORDS], ids=["between words", "inside words"])
    def test_the_span_is_what_the_model_read(self, document: str, tiny: laya.Agent, tiny_folder: Any) -> None:
        """Scores every window again from its tokens, with the parts alone, and chooses by the rules of the specification."""
        checkpoint = open_checkpoint(CheckpointSource(str(tiny_folder)))
        tokenizer = Tokenizer(checkpoint.tokenizer_folder)
        engine = TorchEngine(build_model(checkpoint), tokenizer.pad_id, torch.device("cpu"))
        with pytest.warns(RuntimeWarning):
            temperatures = Temperatures.from_config(checkpoint.config, "config")
        scan = Scan(tiny, document)
        ids, spans = tokenizer.encode_with_spans(document)
        # max(64, 256 - 96 - 8) tokens a window, and half of that from one to the next.
        starts = list(range(0, len(ids) - 152 + 76, 76))
        windows = [(start, min(start + 152, len(ids))) for start in starts]
        assert scan.result["usage"]["windows"] == len(windows)
        assert scan.result["usage"]["state_tokens"] == sum(end - start for start, end in windows)
        for question, head in zip(parse_questions(QUESTIONS), build_heads(parse_questions(QUESTIONS), tokenizer, 256, 96), strict=True):
            rows = [build_sequence(head, ids[start:end], False, tokenizer, 256)[0] for start, end in windows]
            answers = [
                decode_answer(question, score.logits, score.act_probability, temperatures.of(question)) for score in engine.score(rows)
            ]
            key = "noul" if question.type == "noul" else "answer_confidence"
            best = max(range(len(answers)), key=lambda index: answers[index][key])
            found = dict(scan.result["answers"][question.qid])
            window = found.pop("window")
            assert window == {"index": best, "token_start": windows[best][0], "token_end": windows[best][1], "count": len(windows)}
            assert found[key] == pytest.approx(answers[best][key], abs=2e-4)
            assert found["action"]["act_probability"] == pytest.approx(answers[best]["action"]["act_probability"], abs=2e-4)
            # The text that the hooks saw is the text of exactly those tokens.
            text = scan.texts[best]
            begin, finish = (spans[window["token_start"]][0], spans[window["token_end"] - 1][1])
            assert text.strip() == document[begin:finish]

    def test_usage_sums_the_windows(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT, window=100, stride=100)
        tokens = tiny.system_one(DOCUMENT, QUESTIONS)["usage"]["state_tokens"]
        usage = scan.result["usage"]
        assert usage["windows"] == -(-tokens // 100)
        assert usage["state_tokens"] == tokens
        head_tokens = tiny.system_one("", QUESTIONS)["usage"]["input_tokens"]
        assert usage["input_tokens"] == usage["windows"] * head_tokens + len(QUESTIONS) * tokens
        assert (usage["state_tokens_dropped"], usage["truncated"], usage["truncated_questions"]) == (0, False, [])
        assert scan.ends[0].usage == {"input_tokens": usage["input_tokens"], "output_tokens": 0}

    def test_a_hook_that_only_looks_changes_nothing(self, tiny: laya.Agent) -> None:
        assert Scan(tiny, DOCUMENT).result == tiny.predict_long(DOCUMENT, QUESTIONS)

    @pytest.mark.parametrize("batch_size", [1, 4, None])
    def test_batch_size_changes_no_answer(self, batch_size: int | None, tiny: laya.Agent) -> None:
        found, wanted = (tiny.predict_long(DOCUMENT, QUESTIONS, batch_size=size)["answers"] for size in (batch_size, None))
        for qid, answer in wanted.items():
            assert found[qid]["window"] == answer["window"]
            assert found[qid]["answer_confidence"] == pytest.approx(answer["answer_confidence"], abs=1e-3)

    def test_a_state_that_is_no_text_is_scanned_as_its_json(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, {"body": DOCUMENT, "n": 7})
        assert scan.texts[0].startswith('{"body": "refund 0 which')
        assert scan.texts[-1].endswith('"n": 7}')


REPLACEMENTS: dict[str, Callable[[PredictContext], Any]] = {
    "a new list": lambda ctx: setattr(ctx, "states", ["one", "two", "three"]),
    "one text in place": lambda ctx: ctx.states.__setitem__(0, "another text"),
    "one more": lambda ctx: ctx.states.append("one more"),
    "one fewer": lambda ctx: ctx.states.pop(),
    "turned round": lambda ctx: ctx.states.reverse(),
    "one alone": lambda ctx: setattr(ctx, "states", ["alone"]),
    "redacted": lambda ctx: setattr(ctx, "states", [re.sub(r"\d", "#", text) for text in ctx.states]),
}


class TestTheScanIsReplaced:
    @pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=REPLACEMENTS.keys())
    def test_usage_counts_what_was_scored_and_no_answer_names_a_window(
        self, replace: Callable[[PredictContext], Any], tiny: laya.Agent
    ) -> None:
        scan = Scan(tiny, DOCUMENT, replace)
        assert scan.result["usage"]["windows"] == len(scan.ends[0].states)
        assert scan.named == []

    def test_the_texts_left_are_what_is_scored(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT, REPLACEMENTS["one alone"])
        assert scan.result["answers"] == tiny.system_one("alone", QUESTIONS)["answers"]

    def test_a_state_that_fitted_can_be_replaced_too(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, SHORT, REPLACEMENTS["a new list"])
        assert scan.result["usage"]["windows"] == 3
        assert scan.named == []


class TestAHookAnswers:
    @pytest.mark.parametrize("state", [DOCUMENT, SHORT], ids=["long", "short"])
    def test_no_window_was_read_and_none_is_named(self, state: str, tiny: laya.Agent) -> None:
        scan = Scan(tiny, state, skip)
        assert scan.result["answers"] == SUPPLIED["answers"]
        assert scan.result["model"] == "a cache"
        assert scan.result["usage"] == {"input_tokens": 3, "output_tokens": 0, "windows": 0}
        assert len(scan.ends) == 1

    def test_the_hooks_own_result_is_left_alone(self, tiny: laya.Agent) -> None:
        Scan(tiny, DOCUMENT, skip)
        assert "windows" not in SUPPLIED["usage"]

    def test_one_result_a_window(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT, lambda ctx: ctx.skip([SUPPLIED] * len(ctx.states)))
        assert scan.result["usage"]["windows"] == 0
        assert scan.named == []


class TestAStateThatFits:
    def test_it_is_one_plain_call(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, SHORT)
        plain = tiny.system_one(SHORT, QUESTIONS)
        assert scan.result == {**plain, "usage": {**plain["usage"], "windows": 1}}
        assert scan.texts == [SHORT]

    @pytest.mark.parametrize("state", [{"body": SHORT}, [{"role": "user", "content": SHORT}], ""])
    def test_the_hook_gets_the_callers_own_state(self, state: Any, tiny: laya.Agent) -> None:
        scan = Scan(tiny, state)
        assert scan.texts == [state]
        assert scan.result["answers"] == tiny.system_one(state, QUESTIONS)["answers"]

    def test_up_to_the_room_that_the_questions_leave(self, tiny: laya.Agent) -> None:
        # "late" is one token; the default window is narrower than the room, and does not decide.
        heads = tiny.system_one("", {"refund": QUESTIONS["refund"]})["usage"]["input_tokens"]
        for tokens, windows in ((256 - heads, 1), (256 - heads + 1, 2)):
            state = "late " * tokens
            result = tiny.predict_long(state, {"refund": QUESTIONS["refund"]})
            assert result["usage"]["windows"] == windows

    @pytest.mark.parametrize(("tokens", "windows"), [(60, 1), (61, 2)])
    def test_up_to_the_window_asked_for(self, tokens: int, windows: int, tiny: laya.Agent) -> None:
        assert tiny.predict_long("late " * tokens, QUESTIONS, window=60)["usage"]["windows"] == windows

    def test_no_questions(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, DOCUMENT, questions={})
        assert scan.result["answers"] == {}
        assert scan.result["usage"]["input_tokens"] == 0
        assert (len(scan.starts), len(scan.ends)) == (1, 1)


def markers_seen(texts: list[Any]) -> set[str]:
    return {marker for text in texts for marker in re.findall(r"S\d\d", text)}


MARKERS = [f"S{index:02}" for index in range(1, 41)]
NUMBERED = "".join(
    f"{marker} the van came late and the box was wet and torn on one side and nobody rang the bell before leaving it. "
    for marker in MARKERS
)


def lanes(n: int) -> dict[str, Any]:
    return {"lane": {"type": "choice", "instructions": "Which desk?", "criteria": [f"desk for claim {index}" for index in range(n)]}}


class TestNothingGoesUnread:
    """With many options the room is narrow; still each sentence marker stands whole in some window."""

    def test_default_windows(self, tiny: laya.Agent) -> None:
        scan = Scan(tiny, NUMBERED, skip, questions=lanes(50))
        assert markers_seen(scan.texts) == set(MARKERS)

    def test_default_windows_read_by_the_model(self, mini: laya.Agent) -> None:
        scan = Scan(mini, NUMBERED, questions=lanes(60))
        assert markers_seen(scan.texts) == set(MARKERS)
        assert scan.result["usage"]["windows"] == len(scan.texts) > 1
        assert not scan.result["usage"]["truncated"]

    def test_a_window_wider_than_the_room(self, tiny: laya.Agent) -> None:
        with pytest.warns(RuntimeWarning, match="window=1000000"):
            scan = Scan(tiny, NUMBERED, skip, questions=lanes(50), window=10**6)
        assert markers_seen(scan.texts) == set(MARKERS)

    @pytest.mark.parametrize("options", [{"stride": 10**4}, {"window": 64, "stride": 65}])
    def test_a_stride_wider_than_the_window(self, options: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="stride"):
            tiny.predict_long(NUMBERED, lanes(3), **options)

    def test_a_stride_wider_than_what_a_wide_window_was_capped_to(self, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="stride"), pytest.warns(RuntimeWarning):
            tiny.predict_long(NUMBERED, lanes(50), window=10**6, stride=200)

    def test_options_that_fill_the_sequence(self, tiny: laya.Agent, mini: laya.Agent) -> None:
        for agent in (tiny, mini):
            with pytest.raises(ValueError, match="lane"):
                agent.predict_long(NUMBERED, lanes(400), on_predict_start=skip)

    def test_options_that_leave_no_room_behind_the_last_marker(self, tiny: laya.Agent) -> None:
        # 61 options of 4 tokens, 8 of the instructions, 3 special ones: 255 of 256 before the last separator.
        with pytest.raises(ValueError, match="max_len=256"):
            tiny.predict_long(NUMBERED, lanes(61))

    @pytest.mark.parametrize("window", [4, 7, 64])
    def test_the_stride_asked_for_is_kept(self, window: int, tiny: laya.Agent) -> None:
        words = ["which", "late"] * 40  # one token each
        for stride in (1, window // 2, window):
            scan = Scan(tiny, " ".join(words), skip, window=window, stride=stride)
            starts = [index * stride for index in range(-(-(80 - window) // stride) + 1)]
            assert [text.split() for text in scan.texts] == [words[start : start + window] for start in starts]


class TestArguments:
    @pytest.mark.parametrize("aggregate", ["max", "mean", "", None])
    def test_only_one_way_to_aggregate(self, aggregate: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="aggregate"):
            tiny.predict_long(SHORT, QUESTIONS, aggregate=aggregate)

    def test_lang_is_taken_and_changes_nothing(self, tiny: laya.Agent) -> None:
        assert tiny.predict_long(SHORT, QUESTIONS, lang="de") == tiny.predict_long(SHORT, QUESTIONS)

    @pytest.mark.parametrize("state", [None, ("a",), b"bytes"])
    def test_what_is_no_state(self, state: Any, tiny: laya.Agent) -> None:
        with pytest.raises(TypeError, match="state"):
            tiny.predict_long(state, QUESTIONS)

    @pytest.mark.parametrize("batch_size", [0, "8", True])
    def test_batch_size_is_checked_as_in_predict_batch(self, batch_size: Any, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="batch_size"):
            tiny.predict_long(DOCUMENT, QUESTIONS, batch_size=batch_size)

    def test_a_bad_question_is_named(self, tiny: laya.Agent) -> None:
        with pytest.raises(ValueError, match="question 'bad'"):
            tiny.predict_long(DOCUMENT, {"bad": {"type": "score", "instructions": "x"}})

    def test_a_veto_fails_the_call_and_ends_it(self, tiny: laya.Agent, make_hook: Any) -> None:
        def veto(ctx: PredictContext) -> None:
            raise PermissionError("not this document")

        hook = make_hook(on_predict_start=veto)
        with pytest.raises(PermissionError, match="not this document"):
            tiny.predict_long(DOCUMENT, QUESTIONS, hooks=hook)
        assert hook.events == ["on_predict_start", "on_error", "on_predict_end"]


class TestWhatHooksLeaveOfTheResults:
    """An answer names a window only if it is certain which one it came from."""

    @pytest.fixture
    def document(self) -> str:
        return "which late payment " * 300

    def test_an_answer_that_was_cached_whole_loses_its_window(self, document: str, tiny: laya.Agent) -> None:
        read = tiny.predict_long(document, REFUND)
        assert "window" in read["answers"]["refund"]
        for state in (document, "short"):
            cached = tiny.predict_long(state, REFUND, on_predict_start=lambda ctx: ctx.skip([read]))
            assert cached["usage"]["windows"] == 0
            assert "window" not in cached["answers"]["refund"]
        assert "window" in read["answers"]["refund"]  # the cache's own copy is as it was

    @pytest.mark.parametrize("change", [lambda results: results.append(results[0]), lambda results: results.pop(0)], ids=["more", "fewer"])
    def test_results_added_or_dropped_name_no_window(self, change: Any, document: str, tiny: laya.Agent) -> None:
        found = tiny.predict_long(document, REFUND, on_predict_end=lambda ctx: change(ctx.results))
        assert "window" not in found["answers"]["refund"]

    @pytest.mark.parametrize("supplied", [{}, {"answers": {}}, {"answers": {"refund": {"type": "noul"}}}])
    def test_results_without_answers_are_no_crash(self, supplied: Any, document: str, tiny: laya.Agent) -> None:
        found = tiny.predict_long(document, REFUND, on_predict_start=lambda ctx: ctx.skip([supplied] * len(ctx.states)))
        assert found["answers"] == supplied.get("answers", {})
        assert found["usage"]["windows"] == 0
