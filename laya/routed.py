"""Calls that are routed first: the part of a Router that does not care where its agents live."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from laya.answers import Result
from laya.hooks.call import CallHooks, Results, results_of, run_calls, serving
from laya.hooks.context import PredictContext
from laya.hooks.registry import HookRegistry
from laya.questions import Question, parse_questions
from laya.routing import LangGuess, RouteDecision, RoutingTable, Wishes
from laya.runtime import PredictHooks
from laya.states import serialize

Request = Mapping[str, Any]
"""``{"state", "questions"}`` and optionally model, task, lang, lang_guess, max_len, head_max_len, run_id."""

_REQUEST_KEYS = frozenset({"state", "questions", "model", "task", "lang", "lang_guess", "max_len", "head_max_len", "run_id"})


class AgentLike(Protocol):
    """What a Router needs of an agent, here or in another process."""

    def predict_batch(self, states: Sequence[Any], questions: Mapping[Any, Any], **options: Any) -> Results:
        """Answers the same questions about every state."""

    def predict_long(self, state: Any, questions: Mapping[Any, Any], **options: Any) -> Result:
        """Answers questions about one state of any length."""


class RoutedCalls(HookRegistry):
    """Routes, groups and answers requests; where an agent comes from is `_agent`'s business."""

    table: RoutingTable

    @abstractmethod
    def _agent(self, name: str) -> AgentLike:
        """The agent of a checkpoint, loaded if it must be."""

    def route(
        self,
        state: Any,
        questions: Mapping[Any, Any] | None = None,
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: LangGuess = None,
        hooks: Any = None,
        hooks_raise: bool | None = None,
    ) -> RouteDecision:
        """Chooses the checkpoint for a state and fires on_route.

        Args:
            state: A str, dict or list.
            questions: The questions, whose ids can name a known workflow.
            model: Name of the checkpoint to use, whatever the text.
            task: The same, by what it is for.
            lang: Language code of the state; English goes to the English checkpoint, others to the multilingual one.
            lang_guess: A code, or a function from state to code, believed where ``lang`` says nothing.
            hooks: Hook objects for this call.
            hooks_raise: Overrides the Router's policy for this call.

        Raises:
            ValueError: ``model`` or ``task`` names an unknown checkpoint.
        """
        request = {"state": state, "questions": questions or {}, "model": model, "task": task, "lang": lang, "lang_guess": lang_guess}
        ctx = self._route(request, self._call_hooks(hooks, None, None, hooks_raise))
        return RouteDecision(ctx.decision or {})

    def predict(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: LangGuess = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
    ) -> Result:
        """Routes one state and answers questions about it; see `route` and `laya.Agent.predict_batch` for the arguments.

        Returns:
            ``{"model", "answers", "usage", "routing"}``.
        """
        request = {
            "state": state,
            "questions": questions,
            "model": model,
            "task": task,
            "lang": lang,
            "lang_guess": lang_guess,
            "max_len": max_len,
            "head_max_len": head_max_len,
        }
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        ctx = self._answer([request], call_hooks, {}, isolate=False)[0]
        return results_of(ctx)[0]

    system_one = predict

    def predict_batch(
        self,
        requests: Sequence[Request],
        batch_size: int | None = None,
        hooks_timeout: float | None = None,
        *,
        sort_by_length: bool = False,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Answers many requests, each routed by itself and with a context of its own; like ones share forward passes.

        Args:
            requests: See `Request`.
            batch_size: See `laya.Agent.predict_batch`.
            hooks_timeout: Overrides the Router's timeout for this call, in seconds.
            sort_by_length: See `laya.Agent.predict_batch`.
            hooks: Hook objects for this call; they fire once a request.
            on_predict_start: Start callables for this call.
            on_predict_end: End callables for this call.
            hooks_raise: Overrides the Router's policy for this call.
            return_exceptions: True puts what failed a request in its place instead of failing its group and raising.

        Returns:
            One result a request, in order; see `predict`.

        Raises:
            TypeError: A request is not a dict, or holds no possible state.
            ValueError: A request lacks a key or has an unknown one, or its questions are wrong.
        """
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        passes = {"batch_size": batch_size, "sort_by_length": sort_by_length}
        contexts = self._answer(requests, call_hooks, passes, isolate=return_exceptions)
        return [ctx.error if ctx.error is not None else results_of(ctx)[0] for ctx in contexts]

    def predict_long(
        self,
        state: Any,
        questions: Mapping[Any, Any],
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: LangGuess = None,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        *,
        window: int | None = None,
        stride: int | None = None,
        aggregate: str = "auto",
        batch_size: int | None = None,
    ) -> Result:
        """Routes one state of any length and answers questions about it; see `laya.Agent.predict_long`.

        Hooks given here see the whole state; hooks installed on the agent see its windows.
        """
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        request = {"state": state, "questions": questions, "model": model, "task": task, "lang": lang, "lang_guess": lang_guess}
        ctx = self._route(request, call_hooks)
        agent = self._bind(ctx)

        scored = False

        def body(contexts: list[PredictContext]) -> list[Results]:
            nonlocal scored
            scored = True
            options = {"window": window, "stride": stride, "aggregate": aggregate, "batch_size": batch_size}
            with serving([ctx.run_id]):
                return [[agent.predict_long(ctx.states[0], ctx.questions, **options)] for ctx in contexts]

        def complete(ctx: PredictContext) -> None:
            _add_routing(ctx)
            if not scored:  # whatever a hook supplied, no window was read for this call
                ctx.results = [{**result, "usage": {**(result.get("usage") or {}), "windows": 0}} for result in ctx.results or []]

        run_calls([ctx], call_hooks, body, complete=complete)
        return results_of(ctx)[0]

    def _answer(self, requests: Sequence[Request], hooks: CallHooks, passes: dict[str, Any], isolate: bool) -> list[PredictContext]:
        """Routes requests, runs them group by group, and returns their contexts in order."""
        contexts: list[PredictContext] = []
        for index, request in enumerate(requests):
            try:
                contexts.append(self._route(_checked(request, index), hooks))
            except Exception as error:
                if not isolate:
                    raise
                contexts.append(PredictContext(states=[], questions={}, router=self, error=error))
        groups: dict[str | None, list[PredictContext]] = {}
        for ctx in contexts:
            if ctx.error is None:
                groups.setdefault(ctx.model, []).append(ctx)
        for group in groups.values():
            self._answer_group(group, hooks, passes, isolate)
        return contexts

    def _answer_group(self, group: list[PredictContext], hooks: CallHooks, passes: dict[str, Any], isolate: bool) -> None:
        try:
            for ctx in group:
                agent = self._bind(ctx)
        except Exception as error:
            if not isolate:
                raise
            for ctx in group:
                ctx.error = error
            return
        run_calls(group, hooks, lambda waiting: _shared_passes(agent, waiting, passes), isolate=isolate, complete=_add_routing)

    def _route(self, request: Request, hooks: CallHooks) -> PredictContext:
        wishes = Wishes(request.get("model"), request.get("task"), request.get("lang"), request.get("lang_guess"))
        ctx = PredictContext(
            states=[request["state"]],
            questions=request["questions"],
            router=self,
            max_len=request.get("max_len"),
            head_max_len=request.get("head_max_len"),
        )
        if request.get("run_id") is not None:
            ctx.run_id = str(request["run_id"])
        ctx.decision = self.table.decide(request["state"], request["questions"], wishes)
        hooks.fire("on_route", ctx)
        # A hook may have rewritten the decision; what it says is what happens.
        decision = RouteDecision(ctx.decision or {})
        ctx.model = self.table.resolve(decision.get("model", self.table.default))
        ctx.decision = RouteDecision({**decision, "model": ctx.model, "repo": str(self.table.sources[ctx.model])})
        return ctx

    def _bind(self, ctx: PredictContext) -> AgentLike:
        agent = self._agent(ctx.model or self.table.default)
        ctx.agent = agent
        return agent


def _checked(request: Any, index: int) -> Request:
    if not isinstance(request, Mapping):
        raise TypeError(f"requests[{index}] must be a dict with state and questions, not {type(request).__name__}")
    missing = [key for key in ("state", "questions") if key not in request]
    unknown = sorted(str(key) for key in request if key not in _REQUEST_KEYS)
    if missing or unknown:
        told = [f"lacks {', '.join(missing)}"] if missing else []
        told += [f"has unknown keys {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"requests[{index}] {' and '.join(told)}; a request has {', '.join(sorted(_REQUEST_KEYS))}")
    return request


def _add_routing(ctx: PredictContext) -> None:
    # A copy: a skipped call's result may live in the hook's own cache.
    ctx.results = [{**result, "routing": result.get("routing", dict(ctx.decision or {}))} for result in results_of(ctx)]


def _shared_passes(agent: AgentLike, contexts: list[PredictContext], options: dict[str, Any]) -> list[Results | BaseException]:
    """Answers contexts that one agent serves: those with equal questions and budgets together."""
    outcomes: dict[int, Results | BaseException] = {}
    passes: dict[tuple[tuple[Question, ...], int | None, int | None], list[int]] = {}
    for index, ctx in enumerate(contexts):
        try:
            for state in ctx.states:
                serialize(state)
            passes.setdefault((parse_questions(ctx.questions), ctx.max_len, ctx.head_max_len), []).append(index)
        except Exception as error:
            outcomes[index] = error
    for (_, max_len, head_max_len), members in passes.items():
        states = [state for index in members for state in contexts[index].states]
        try:
            with serving(contexts[index].run_id for index in members):
                budgets = {"max_len": max_len, "head_max_len": head_max_len}
                results = agent.predict_batch(states, contexts[members[0]].questions, **budgets, **options)
            if len(results) != len(states):
                raise ValueError(f"{len(results)} results for {len(states)} states: a hook of the agent gave or left too few or too many")
        except Exception as error:
            outcomes.update(dict.fromkeys(members, error))
        else:
            remaining = iter(results)
            outcomes.update({index: [next(remaining) for _ in contexts[index].states] for index in members})
    return [outcomes[index] for index in range(len(contexts))]
