"""What every agent does, once: encode, score, decode, inside the call lifecycle. Agents only add an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from laya.answers import MODEL_NAME, Result, decode_answer
from laya.calibration import Temperatures
from laya.engine.base import Engine
from laya.hooks.call import Results, results_of, run_call, served_requests
from laya.hooks.context import PredictContext
from laya.hooks.protocol import PredictHook
from laya.hooks.registry import HookRegistry
from laya.questions import Question, parse_questions
from laya.sequences import Head, TokenSequence, build_heads, build_sequence
from laya.states import serialize
from laya.tokenizer import Tokenizer
from laya.windows import Window, merge, split, window_size, window_stride

PredictHooks = PredictHook | Sequence[PredictHook] | None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Token budgets of a checkpoint.

    Attributes:
        max_len: Longest sequence.
        head_max_len: Kept for instructions, options and markers.
        positions: Longest sequence that the encoder can read at all.
    """

    max_len: int
    head_max_len: int
    positions: int

    def override(self, max_len: int | None, head_max_len: int | None) -> Budgets:
        """These budgets with those of one call in their place.

        Raises:
            ValueError: A budget is not a positive int, or longer than the encoder can read.
        """
        for name, value in (("max_len", max_len), ("head_max_len", head_max_len)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a positive number of tokens, not {value!r}")
        if max_len is not None and max_len > self.positions:
            raise ValueError(f"max_len={max_len} is more than this checkpoint's encoder can read ({self.positions} tokens)")
        return Budgets(max_len or self.max_len, head_max_len or self.head_max_len, self.positions)


@dataclass(frozen=True, slots=True)
class _EncodedState:
    ids: Sequence[int]
    keep_end: bool


@dataclass(frozen=True, slots=True)
class _Passes:
    """How a call's rows are cut into forward passes."""

    max_rows: int | None = None
    sort: bool = True

    def __post_init__(self) -> None:
        if self.max_rows is not None and (type(self.max_rows) is not int or self.max_rows < 1):
            raise ValueError(f"batch_size must be a positive number of rows, not {self.max_rows!r}")


class AgentRuntime(HookRegistry):
    """One checkpoint on one engine, with the calls that every agent offers.

    Args:
        model_id: What the agent calls itself in contexts.
        tokenizer: The checkpoint's tokenizer.
        engine: Where its network runs.
        temperatures: Its calibration.
        budgets: Its token budgets.
        hooks: See `laya.hooks.HookRegistry`, also for the other hook arguments.
        on_predict_start: Start callables.
        on_predict_end: End callables.
        hooks_raise: Whether a hook's exception fails the call.
        hooks_concurrent: Whether hooks of concurrent calls may overlap.
        hooks_timeout: Seconds a hook may take, or None.
    """

    def __init__(
        self,
        model_id: str,
        tokenizer: Tokenizer,
        engine: Engine,
        temperatures: Temperatures,
        budgets: Budgets,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
    ) -> None:
        super().__init__(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout)
        self.model_id = model_id
        self._tokenizer = tokenizer
        self._engine = engine
        self._temperatures = temperatures
        self._budgets = budgets
        # The same questions come with call after call; what they alone decide is tokenized once.
        self._heads = lru_cache(maxsize=256)(self._build_heads)

    @property
    def max_len(self) -> int:
        """Longest sequence in tokens, where a call does not say otherwise."""
        return self._budgets.max_len

    @property
    def head_max_len(self) -> int:
        """Tokens kept for instructions and options, where a call does not say otherwise."""
        return self._budgets.head_max_len

    def describe(self) -> dict[str, str]:
        """The agent's checkpoint, device and precision."""
        return {"model_id": self.model_id, **self._engine.describe()}

    def close(self) -> None:
        """Frees the device's memory; the agent cannot be used afterwards."""
        self._engine.close()

    def predict_batch(
        self,
        states: Sequence[Any],
        questions: Mapping[Any, Any],
        batch_size: int | None = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        sort_by_length: bool = False,
    ) -> Results:
        """Answers the same questions about every state.

        Args:
            states: Each a str, dict or list (a conversation, oldest first).
            questions: Question id to question; see `laya.questions.parse_questions`.
            batch_size: Rows of one forward pass, a row being one question about one state. None packs rows of like length
                up to the engine's token budget, which is faster.
            hooks: Hook objects for this call.
            on_predict_start: Start callables for this call.
            on_predict_end: End callables for this call.
            hooks_raise: Overrides the agent's policy for this call.
            hooks_timeout: Overrides the agent's timeout for this call, in seconds.
            max_len: Longest sequence of this call, in tokens.
            head_max_len: Tokens for instructions and options in this call.
            sort_by_length: With batch_size, whether rows of like length share a pass; without it they always do.

        Returns:
            One result a state, in order.

        Raises:
            TypeError: A state is None, or holds something that JSON cannot.
            ValueError: A question or a budget is wrong; the message names it and the mend.
        """
        if isinstance(states, str | dict):
            raise TypeError(f"predict_batch takes a list of states, not one {type(states).__name__}: use system_one for a single state")
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        passes = _Passes(batch_size, sort=batch_size is None or sort_by_length)
        ctx = self._context(list(states), questions, max_len, head_max_len)
        return run_call(ctx, call_hooks, lambda ctx: self._answer(ctx, passes))

    def system_one(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
    ) -> Result:
        """Answers questions about one state; arguments and errors as in `predict_batch`.

        Returns:
            ``{"model", "answers": {question id: answer}, "usage"}``.
        """
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        ctx = self._context([state], questions, max_len, head_max_len)
        run_call(ctx, call_hooks, lambda ctx: self._answer(ctx, _Passes()))
        return results_of(ctx)[0]

    predict = system_one

    def predict_long(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        window: int | None = None,
        stride: int | None = None,
        aggregate: str = "auto",
        batch_size: int | None = None,
        lang: str | None = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
    ) -> Result:
        """Answers questions about one state of any length, by windows that together read all of it.

        Hooks fire once, round the inference: ``ctx.states`` is the caller's state where it fits at once, else the texts of the windows.

        Args:
            state: As in `predict_batch`.
            questions: As in `predict_batch`.
            window: Tokens of a window; None takes what the questions leave room for. A window wider than that is cut to it.
            stride: Tokens from one window's start to the next; None is half the window.
            aggregate: Only "auto": a noul is decided by the window most in favour, other types by the most confident window.
            batch_size: As in `predict_batch`.
            lang: Language of the state. It changes nothing here; a Router routes by it.
            hooks: As in `predict_batch`, also for the other hook arguments.
            on_predict_start: Start callables for this call.
            on_predict_end: End callables for this call.
            hooks_raise: Overrides the agent's policy.
            hooks_timeout: Overrides the agent's timeout.

        Returns:
            A result whose ``usage["windows"]`` counts the windows that were scored and whose answers name the deciding
            ``window``; see `laya.windows.merge`.

        Raises:
            TypeError: As in `predict_batch`.
            ValueError: As in `predict_batch`; the questions leave no room, or the stride is wider than the window.
        """
        del lang
        if aggregate != "auto":
            raise ValueError(f'aggregate must be "auto", not {aggregate!r}')
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        passes = _Passes(batch_size)
        text = serialize(state)
        ids, spans = self._tokenizer.encode_with_spans(text)
        windows = self._windows(parse_questions(questions), self._tokenizer.plain(text), spans, window, stride)
        states = [state] if windows is None else [part.text for part in windows]
        scored = 0
        intact = False

        def body(ctx: PredictContext) -> Results:
            nonlocal scored, intact
            scored = len(ctx.states)
            intact = windows is not None and ctx.states == states
            if windows is None or not intact:
                return self._answer(ctx, passes)
            return self._answer(ctx, passes, [_EncodedState(ids[part.token_start : part.token_end], keep_end=False) for part in windows])

        results = run_call(self._context(list(states), questions, None, None), call_hooks, body)
        # A hook that changed questions or budgets may have left less room than the windows were cut for.
        whole = intact and not any((result.get("usage") or {}).get("truncated") for result in results)
        return merge(results, scored, windows if whole else None)

    def _windows(
        self, questions: tuple[Question, ...], text: str, spans: Sequence[tuple[int, int]], window: int | None, stride: int | None
    ) -> list[Window] | None:
        """The windows of a long state, or None where it fits at once."""
        heads = self._heads(questions, self.max_len, self.head_max_len)
        room = min((head.room(self.max_len) for head in heads), default=self.max_len)
        size = window_size(window, room, self.max_len, self.head_max_len)
        step = window_stride(stride, size)
        fits = len(spans) <= (room if window is None else size)
        return None if fits or not questions else split(text, spans, size, step)

    def _context(self, states: list[Any], questions: Any, max_len: int | None, head_max_len: int | None) -> PredictContext:
        return PredictContext(
            states=states,
            questions=questions,
            model=self.model_id,
            agent=self,
            max_len=max_len,
            head_max_len=head_max_len,
            request_ids=served_requests(),
        )

    def _answer(self, ctx: PredictContext, passes: _Passes, encoded: Sequence[_EncodedState] | None = None) -> Results:
        """Answers a context: tokens, one row for each state and question, logits, answers."""
        questions = parse_questions(ctx.questions)
        budgets = self._budgets.override(ctx.max_len, ctx.head_max_len)
        if not ctx.states:
            return []
        heads = self._heads(questions, budgets.max_len, budgets.head_max_len)
        if encoded is None:
            encoded = self._encode(ctx.states, tokenize=bool(questions))
        rows = [build_sequence(head, state.ids, state.keep_end, self._tokenizer, budgets.max_len) for state in encoded for head in heads]
        scores = iter(self._engine.score([row for row, _ in rows], passes.max_rows, passes.sort))
        results = []
        for index, state in enumerate(encoded):
            answers = {}
            for question in questions:
                score = next(scores)
                answers[question.qid] = decode_answer(question, score.logits, score.act_probability, self._temperatures.of(question))
            usage = _usage(heads, rows[index * len(heads) : (index + 1) * len(heads)], len(state.ids))
            results.append({"model": MODEL_NAME, "answers": answers, "usage": usage})
        return results

    def _encode(self, states: Sequence[Any], tokenize: bool) -> list[_EncodedState]:
        texts = [serialize(state, f"states[{index}]") for index, state in enumerate(states)]
        ids: Sequence[Sequence[int]] = self._tokenizer.encode(texts) if tokenize else [()] * len(texts)
        return [_EncodedState(part, isinstance(state, list)) for part, state in zip(ids, states, strict=True)]

    def _build_heads(self, questions: tuple[Question, ...], max_len: int, head_max_len: int) -> list[Head]:
        return build_heads(questions, self._tokenizer, max_len, head_max_len)


def _usage(heads: Sequence[Head], rows: Sequence[tuple[TokenSequence, int]], state_tokens: int) -> dict[str, Any]:
    """Token counts of one state over its rows."""
    cut = [head.question.qid for head, (_, dropped) in zip(heads, rows, strict=True) if dropped]
    usage: dict[str, Any] = {
        "input_tokens": sum(len(row.ids) for row, _ in rows),
        "output_tokens": 0,
        "state_tokens": state_tokens,
        "state_tokens_dropped": max((dropped for _, dropped in rows), default=0),
        "truncated": bool(cut),
        "truncated_questions": cut,
    }
    alike = {
        head.question.qid: {"total": head.question.n, "distinct": head.distinct, "tokens_per_option": head.tokens_per_option}
        for head in heads
        if head.distinct < head.question.n
    }
    return {**usage, "options": alike} if alike else usage
