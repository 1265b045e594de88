"""States of any length: read window by window, by one agent or, slice by slice, by several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laya.answers import Result
from laya.confidence import ConfidenceGate, MinConfidence
from laya.hooks.call import Results, run_call
from laya.hooks.context import PredictContext
from laya.hooks.protocol import PredictHooks
from laya.hooks.registry import HookRegistry
from laya.options import Lang, Passes
from laya.parts import Budgets
from laya.questions import parse_questions
from laya.rows import EncodedState, RowBuilder
from laya.scanning import Scan, SharedScan
from laya.states import serialize
from laya.tokenizer import Tokenizer
from laya.windows import check_aggregate, merge, split, window_size, window_stride


class LongStateCalls(HookRegistry):
    """The calls of an agent that read a state of any length."""

    _tokenizer: Tokenizer
    _budgets: Budgets
    _rows: RowBuilder

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
        *,
        min_confidence: MinConfidence = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
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
            lang: As in `predict_batch`.
            hooks: As in `predict_batch`, also for the other hook arguments.
            on_predict_start: Start callables for this call.
            on_predict_end: End callables for this call.
            hooks_raise: Overrides the agent's policy.
            hooks_timeout: Overrides the agent's timeout.
            min_confidence: As in `predict_batch`. It marks the result that is returned, not those of the windows, which hooks see.
            max_len: As in `predict_batch`.
            head_max_len: As in `predict_batch`.

        Returns:
            A result whose ``usage["windows"]`` counts the windows that were scored and whose answers name the deciding
            ``window``; see `laya.windows.merge`.

        Raises:
            TypeError: As in `predict_batch`.
            ValueError: As in `predict_batch`; the questions leave no room, or the stride is wider than the window.
        """
        gate = ConfidenceGate(min_confidence)
        passes = Passes(batch_size)
        check_aggregate(aggregate)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        scan = self._scan(state, questions, window, stride, self._budgets.override(max_len, head_max_len))
        states = [state] if scan is None else [part.text for part in scan.windows]
        scored = 0
        intact = False

        def body(ctx: PredictContext) -> Results:
            nonlocal scored, intact
            scored = len(ctx.states)
            intact = scan is not None and ctx.states == states
            return self._answer(ctx, passes, scan.encoded if scan is not None and intact else None)

        ctx = self._context(list(states), questions, max_len, head_max_len, lang)
        results = run_call(ctx, call_hooks, body, complete=ConfidenceGate().complete)
        return gate.apply(merge(results, scored, scan.windows if scan is not None and intact else None))

    def cut_long(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        window: int | None = None,
        stride: int | None = None,
        *,
        max_len: int | None = None,
        head_max_len: int | None = None,
        least: int = 2,
    ) -> SharedScan | None:
        """The windows of a long state, to be scored by `score_windows` of several agents and merged by a `laya.windows.WindowMerger`.

        Args:
            state: As in `predict_long`, also for the other arguments.
            questions: Question id to question.
            window: Tokens of a window.
            stride: Tokens from one window's start to the next.
            max_len: Longest sequence, in tokens.
            head_max_len: Tokens for instructions and options.
            least: Fewer windows are not worth it.

        Returns:
            None where there are fewer windows, or where hooks want to see all of them in one call: `predict_long` answers then.

        Raises:
            TypeError: As in `predict_long`.
            ValueError: As in `predict_long`.
        """
        if self._call_hooks().hooks:
            return None
        scan = self._scan(state, questions, window, stride, self._budgets.override(max_len, head_max_len))
        return None if scan is None or len(scan.windows) < least else scan.shared()

    def score_windows(
        self,
        windows: Sequence[np.ndarray],
        questions: Mapping[Any, Any],
        batch_size: int | None = None,
        *,
        max_len: int | None = None,
        head_max_len: int | None = None,
        lang: str | None = None,
    ) -> Results:
        """Answers questions about windows of a long state, from their tokens. No hooks fire.

        Args:
            windows: Token ids of each, from `SharedScan.slices`.
            questions: Question id to question.
            batch_size: As in `predict_long`, also for the other arguments.
            max_len: Longest sequence, in tokens.
            head_max_len: Tokens for instructions and options.
            lang: Language code of the state.

        Returns:
            One result a window, in order.
        """
        ctx = self._context([""] * len(windows), questions, max_len, head_max_len, lang)
        return self._answer(ctx, Passes(batch_size), [EncodedState(ids.tolist(), keep_end=False) for ids in windows])

    def _scan(self, state: Any, questions: Any, window: int | None, stride: int | None, budgets: Budgets) -> Scan | None:
        """The windows of a long state, or None where it fits at once."""
        text = serialize(state)
        ids, spans = self._tokenizer.encode_with_spans(text)
        heads = self._rows.heads(parse_questions(questions), budgets.max_len, budgets.head_max_len)
        room = min((head.room(budgets.max_len) for head in heads), default=budgets.max_len)
        size = window_size(window, room, budgets.max_len, budgets.head_max_len)
        step = window_stride(stride, size)
        if not heads or len(spans) <= (room if window is None else size):
            return None
        windows = split(self._tokenizer.plain(text), spans, size, step)
        return Scan(ids, windows)

    @abstractmethod
    def _context(self, states: list[Any], questions: Any, max_len: int | None, head_max_len: int | None, lang: Lang) -> PredictContext:
        """The context of a call."""

    @abstractmethod
    def _answer(self, ctx: PredictContext, passes: Passes, encoded: Sequence[EncodedState] | None = None) -> Results:
        """Answers a context."""
