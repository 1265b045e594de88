"""Calls that are routed first: the part of a Router that does not care where its agents live."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from laya.answers import Result
from laya.confidence import ConfidenceGate, MinConfidence
from laya.hooks.call import CallHooks, Results, results_of, run_calls, serving
from laya.hooks.context import PredictContext
from laya.hooks.protocol import PredictHooks
from laya.hooks.registry import HookRegistry
from laya.options import Passes
from laya.requests import AgentLike, Request, checked_request, request_of, shared_passes
from laya.routing import LangGuess, RouteDecision, RoutingTable, Wishes
from laya.windows import check_aggregate, without_windows


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
        request = request_of(state, questions or {}, model, task, lang, lang_guess)
        ctx = self._route(request, self._call_hooks(hooks, None, None, hooks_raise))
        return RouteDecision(ctx.decision or {})

    def route_batch(
        self, requests: Sequence[Request], hooks_timeout: float | None = None, *, hooks: Any = None, hooks_raise: bool | None = None
    ) -> list[RouteDecision]:
        """Chooses the checkpoint for each of many requests, as `predict_batch` would, and fires on_route for each.

        Args:
            requests: See `Request`; ``questions`` may be left out.
            hooks_timeout: Overrides the Router's timeout for this call, in seconds.
            hooks: Hook objects for this call.
            hooks_raise: Overrides the Router's policy for this call.

        Raises:
            TypeError: A request is not a dict.
            ValueError: A request lacks its state or has an unknown key, or names an unknown checkpoint.
        """
        call_hooks = self._call_hooks(hooks, None, None, hooks_raise, hooks_timeout)
        contexts = []
        for index, request in enumerate(requests):
            asked = {"questions": {}, **request} if isinstance(request, Mapping) else request
            contexts.append(self._route(checked_request(asked, index), call_hooks))
        return [RouteDecision(ctx.decision or {}) for ctx in contexts]

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
        *,
        min_confidence: MinConfidence = None,
    ) -> Result:
        """Routes one state and answers questions about it; see `route` and `laya.Agent.predict_batch` for the arguments.

        The checkpoint is told the language that the request or a guess names, else the one that was detected (of Latin text).

        Returns:
            ``{"model", "answers", "usage", "routing"}``.
        """
        gate = ConfidenceGate(min_confidence)
        request = request_of(state, questions, model, task, lang, lang_guess, max_len, head_max_len)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        ctx = self._answer([request], call_hooks, {}, gate, isolate=False)[0]
        return results_of(ctx)[0]

    system_one = predict

    def predict_batch(
        self,
        requests: Sequence[Request],
        batch_size: int | None = None,
        hooks_timeout: float | None = None,
        min_confidence: MinConfidence = None,
        sort_by_length: bool = False,
        hooks: Any = None,
        on_predict_start: PredictHooks = None,
        on_predict_end: PredictHooks = None,
        hooks_raise: bool | None = None,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Answers many requests, each routed by itself and with a context of its own; like ones share forward passes.

        Args:
            requests: See `Request`.
            batch_size: See `laya.Agent.predict_batch`.
            hooks_timeout: Overrides the Router's timeout for this call, in seconds.
            min_confidence: See `laya.Agent.predict_batch`.
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
            ValueError: A request lacks a key or has an unknown one, or its questions are wrong; ``min_confidence`` is wrong.
        """
        gate = ConfidenceGate(min_confidence)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        Passes(batch_size)
        passes = {"batch_size": batch_size, "sort_by_length": sort_by_length}
        contexts = self._answer(requests, call_hooks, passes, gate, isolate=return_exceptions)
        return [_outcome(ctx) for ctx in contexts] if return_exceptions else [results_of(ctx)[0] for ctx in contexts]

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
        min_confidence: MinConfidence = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        run_id: str | None = None,
    ) -> Result:
        """Routes one state of any length and answers questions about it; see `laya.Agent.predict_long`.

        Hooks given here see the whole state; hooks installed on the agent see its windows. ``run_id`` is the id of the request in their
        context, as in `Request`; None makes one.
        """
        Passes(batch_size)
        check_aggregate(aggregate)
        gate = ConfidenceGate(min_confidence)
        call_hooks = self._call_hooks(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        request = {**request_of(state, questions, model, task, lang, lang_guess, max_len, head_max_len), "run_id": run_id}
        ctx = self._route(request, call_hooks)
        agent = self._bind(ctx)

        scored = False

        def body(_: list[PredictContext]) -> list[Results]:
            nonlocal scored
            scored = True
            options: dict[str, Any] = {"window": window, "stride": stride, "aggregate": aggregate, "batch_size": batch_size}
            options |= {"lang": ctx.lang, "max_len": ctx.max_len, "head_max_len": ctx.head_max_len}
            with serving([ctx.run_id]):
                return [[agent.predict_long(part, ctx.questions, **options) for part in ctx.states]]

        def complete(ctx: PredictContext) -> None:
            _add_routing(ctx)
            if not scored:  # whatever a hook supplied, no window was read for this call
                ctx.results = [
                    {**without_windows(result), "usage": {**(result.get("usage") or {}), "windows": 0}} for result in ctx.results or []
                ]
            gate.complete(ctx)

        run_calls([ctx], call_hooks, body, complete=complete)
        return results_of(ctx)[0]

    def _answer(
        self, requests: Sequence[Request], hooks: CallHooks, passes: dict[str, Any], gate: ConfidenceGate, isolate: bool
    ) -> list[PredictContext]:
        """Routes requests, runs them group by group, and returns their contexts in order."""
        contexts: list[PredictContext] = []
        for index, request in enumerate(requests):
            try:
                contexts.append(self._route(checked_request(request, index), hooks))
            except Exception as error:
                if not isolate:
                    raise
                contexts.append(PredictContext(states=[], questions={}, router=self, error=error))
        groups: dict[str | None, list[PredictContext]] = {}
        for ctx in contexts:
            if ctx.error is None:
                groups.setdefault(ctx.model, []).append(ctx)
        for group in groups.values():
            self._answer_group(group, hooks, passes, gate, isolate)
        return contexts

    def _answer_group(
        self, group: list[PredictContext], hooks: CallHooks, passes: dict[str, Any], gate: ConfidenceGate, isolate: bool
    ) -> None:
        """Answers the requests of one checkpoint."""
        try:
            for ctx in group:
                agent = self._bind(ctx)
        except Exception as error:
            if not isolate:
                raise
            for ctx in group:
                ctx.error = error
            return

        def complete(ctx: PredictContext) -> None:
            _add_routing(ctx)
            gate.complete(ctx)

        run_calls(group, hooks, lambda waiting: shared_passes(agent, waiting, passes), isolate=isolate, complete=complete)

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
        ctx.decision, ctx.lang = self.table.decide(request["state"], request["questions"], wishes)
        hooks.fire("on_route", ctx)
        # A hook may have rewritten the decision; what it says is what happens.
        decision = RouteDecision(ctx.decision or {})
        ctx.model = self.table.resolve(decision.get("model", self.table.default))
        ctx.decision = RouteDecision({**decision, "model": ctx.model, "repo": self.table.repo(ctx.model)})
        return ctx

    def _fire(self, events: Iterable[tuple[str, str, Any]]) -> None:
        """Fires lifecycle events, each an event, a checkpoint and its agent; no lock may be held, so that a hook can call back in.

        They tell what has happened already, so a hook that fails keeps none of them from the others.

        Raises:
            Exception: The first that a hook raised, once all of them were fired.
        """
        failure: Exception | None = None
        for event, name, agent in events:
            ctx = PredictContext(states=[], questions={}, model=name, agent=agent, router=self)
            try:
                self._call_hooks().fire(event, ctx)
            except Exception as error:
                if failure is None:
                    failure = error
                else:
                    failure.add_note(f"{event} of {name!r} failed too: {type(error).__name__}: {error}")
        if failure is not None:
            raise failure

    def _bind(self, ctx: PredictContext) -> AgentLike:
        agent = self._agent(ctx.model or self.table.default)
        ctx.agent = agent
        return agent


def _outcome(ctx: PredictContext) -> Any:
    """What stands for a request among those that may fail alone."""
    try:
        return ctx.error if ctx.error is not None else results_of(ctx)[0]
    except (TypeError, ValueError) as error:  # a hook left no result
        return error


def _add_routing(ctx: PredictContext) -> None:
    # A copy: a skipped call's result may live in the hook's own cache.
    ctx.results = [{**result, "routing": result.get("routing", dict(ctx.decision or {}))} for result in results_of(ctx)]
