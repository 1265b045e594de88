"""What every agent does, once: encode, score, decode, inside the call lifecycle. Agents only add an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from laya.answers import MODEL_NAME, Result, decode_answer
from laya.confidence import ConfidenceGate, MinConfidence
from laya.engine.base import Engine, Observer
from laya.engine.stats import EngineStats
from laya.fitting import CalibrationRecord, right_slots
from laya.hooks.call import Results, results_of, run_call, served_requests
from laya.hooks.context import PredictContext
from laya.hooks.protocol import PredictHooks
from laya.long_states import LongStateCalls
from laya.options import Lang, Passes, checked_lang, langs_of
from laya.parts import AgentParts
from laya.questions import parse_questions
from laya.rows import EncodedState, RowBuilder, usage_of
from laya.states import as_batch


class AgentRuntime(LongStateCalls):
    """One checkpoint on one engine, with the calls that every agent offers.

    Args:
        model_id: What the agent calls itself in contexts.
        parts: The checkpoint's tokenizer, temperatures and budgets.
        engine: Where its network runs.
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
        parts: AgentParts,
        engine: Engine,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
    ) -> None:
        super().__init__(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_concurrent, hooks_timeout)
        self.model_id = model_id
        self._tokenizer = parts.tokenizer
        self._temperatures = parts.temperatures
        self._budgets = parts.budgets
        self._engine = engine
        self._rows = RowBuilder(parts.tokenizer)

    @property
    def max_len(self) -> int:
        """Longest sequence in tokens, where a call does not say otherwise."""
        return self._budgets.max_len

    @property
    def head_max_len(self) -> int:
        """Tokens kept for instructions and options, where a call does not say otherwise."""
        return self._budgets.head_max_len

    @property
    def size_bytes(self) -> int:
        """What the network's weights hold; 0 where that is not known."""
        return self._engine.size_bytes

    def describe(self) -> dict[str, str]:
        """The agent's checkpoint, device and precision."""
        return {"model_id": self.model_id, **self._engine.describe()}

    def stats(self) -> EngineStats:
        """What the agent's engine has done and what waits for it."""
        return self._engine.stats()

    def observe(self, callback: Observer | None) -> None:
        """Has a callback told of each forward pass, in the place of any earlier one; None for nobody. One that raises does no harm."""
        self._engine.observer = callback

    def warm_up(self) -> None:
        """Runs what a first call would otherwise pay for; on a GPU also a full pass, so that trouble with memory shows now."""
        self._engine.warm_up(self.max_len)

    def close(self) -> None:
        """Frees the device's memory; the agent cannot be used afterwards, and calls that wait for it fail."""
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
        *,
        min_confidence: MinConfidence = None,
        lang: Lang = None,
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
            min_confidence: The least ``answer_confidence`` that an answer needs to pass: a number, or one for each
                "<type>:<bucket>"; see `laya.confidence`. None leaves answers unmarked.
            lang: Language code of the states ("de", "de-AT"), or a list with one for each; a checkpoint may have temperatures of its own
                for a language.

        Returns:
            One result a state, in order.

        Raises:
            TypeError: A state is None, or holds something that JSON cannot.
            ValueError: A question, a budget or ``min_confidence`` is wrong; the message names it and the mend.
        """
        batch = as_batch(states)
        gate = ConfidenceGate(min_confidence)
        passes = Passes(batch_size, batch_size is None or sort_by_length)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        ctx = self._context(batch, questions, max_len, head_max_len, lang)
        return run_call(ctx, call_hooks, lambda ctx: self._answer(ctx, passes), complete=gate.complete)

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
        *,
        min_confidence: MinConfidence = None,
        lang: str | None = None,
    ) -> Result:
        """Answers questions about one state; arguments and errors as in `predict_batch`.

        Returns:
            ``{"model", "answers": {question id: answer}, "usage"}``.
        """
        gate = ConfidenceGate(min_confidence)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        ctx = self._context([state], questions, max_len, head_max_len, lang)
        run_call(ctx, call_hooks, lambda ctx: self._answer(ctx, Passes()), complete=gate.complete)
        return results_of(ctx)[0]

    predict = system_one

    def calibration_records(
        self,
        states: Sequence[Any],
        questions: Mapping[Any, Any],
        truths: Sequence[Mapping[Any, Any]],
        *,
        lang: Lang = None,
        batch_size: int | None = None,
    ) -> list[CalibrationRecord]:
        """Scores states whose right answers are known, for `laya.fit_temperatures`. No hooks fire.

        Args:
            states: As in `predict_batch`.
            questions: As in `predict_batch`.
            truths: For each state: question id to the right label (choice), level (score) or bool (noul). A question that is left out
                is not scored.
            lang: As in `predict_batch`.
            batch_size: As in `predict_batch`.

        Returns:
            One record for each right answer that was given, with the network's own logits.

        Raises:
            TypeError: As in `predict_batch`.
            ValueError: As in `predict_batch`; a right answer is none of its question's, or there is not one mapping a state.
        """
        passes = Passes(batch_size)
        batch = as_batch(states)
        langs = langs_of(checked_lang(lang), len(batch))
        asked = parse_questions(questions)
        slots = right_slots(asked, truths)
        if len(slots) != len(batch):
            raise ValueError(f"truths must hold one dict a state: there are {len(slots)} for {len(batch)} states")
        heads = self._rows.heads(asked, self.max_len, self.head_max_len)
        known = [
            (head, state, given[head.question.qid], code)
            for state, given, code in zip(self._rows.states(batch), slots, langs, strict=True)
            for head in heads
            if head.question.qid in given
        ]
        rows = [self._rows.row(head, state, self.max_len)[0] for head, state, _, _ in known]
        scores = self._engine.score(rows, passes.max_rows, passes.sort)
        return [
            CalibrationRecord(head.question.type, tuple(score.logits), slot, code)
            for (head, _, slot, code), score in zip(known, scores, strict=True)
        ]

    def _context(self, states: list[Any], questions: Any, max_len: int | None, head_max_len: int | None, lang: Lang) -> PredictContext:
        return PredictContext(
            states=states,
            questions=questions,
            model=self.model_id,
            agent=self,
            max_len=max_len,
            head_max_len=head_max_len,
            lang=checked_lang(lang),
            request_ids=served_requests(),
        )

    def _answer(self, ctx: PredictContext, passes: Passes, encoded: Sequence[EncodedState] | None = None) -> Results:
        """Answers a context: tokens, one row for each state and question, logits, answers."""
        questions = parse_questions(ctx.questions)
        budgets = self._budgets.override(ctx.max_len, ctx.head_max_len)
        if not ctx.states:
            return []
        langs = langs_of(checked_lang(ctx.lang), len(ctx.states))
        heads = self._rows.heads(questions, budgets.max_len, budgets.head_max_len)
        if encoded is None:
            encoded = self._rows.states(ctx.states, tokenize=bool(questions))
        # States that are equal are one object, and their rows are computed once.
        rows = {id(state): [self._rows.row(head, state, budgets.max_len) for head in heads] for state in encoded}
        found = iter(self._engine.score([row for of_state in rows.values() for row, _ in of_state], passes.max_rows, passes.sort))
        scores = {key: list(islice(found, len(heads))) for key in rows}
        temperatures = {lang: [self._temperatures.of(question, lang) for question in questions] for lang in set(langs)}
        results = []
        for state, lang in zip(encoded, langs, strict=True):
            answers = {}
            for question, temperature, score in zip(questions, temperatures[lang], scores[id(state)], strict=True):
                answers[question.qid] = decode_answer(question, score.logits, score.act_probability, temperature)
            usage = usage_of(heads, rows[id(state)], len(state.ids))
            results.append({"model": MODEL_NAME, "answers": answers, "usage": usage})
        return results
