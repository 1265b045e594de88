"""Requests to a Router: what one holds, and how those that one agent serves share its forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol

from laya.answers import Result
from laya.engine.errors import OutOfMemoryError
from laya.hooks.call import Results, serving
from laya.hooks.context import PredictContext
from laya.options import checked_lang, langs_of
from laya.questions import Question, parse_questions
from laya.routing import LangGuess
from laya.states import serialize

Request = Mapping[str, Any]
"""``{"state", "questions"}`` and optionally model, task, lang, lang_guess, max_len, head_max_len, run_id."""

_REQUEST_KEYS = frozenset({"state", "questions", "model", "task", "lang", "lang_guess", "max_len", "head_max_len", "run_id"})
_GROUPS_AT_ONCE = 16
"""Groups of different questions that one call asks an agent for at a time."""


class AgentLike(Protocol):
    """What a Router needs of an agent, here or in another process."""

    def predict_batch(self, states: Sequence[Any], questions: Mapping[Any, Any], **options: Any) -> Results:
        """Answers the same questions about every state."""

    def predict_long(self, state: Any, questions: Mapping[Any, Any], **options: Any) -> Result:
        """Answers questions about one state of any length."""


def request_of(
    state: Any,
    questions: Mapping[Any, Any],
    model: str | None,
    task: str | None,
    lang: str | None,
    lang_guess: LangGuess,
    max_len: int | None = None,
    head_max_len: int | None = None,
) -> Request:
    """The request that the arguments of a single call make."""
    return {
        "state": state,
        "questions": questions,
        "model": model,
        "task": task,
        "lang": lang,
        "lang_guess": lang_guess,
        "max_len": max_len,
        "head_max_len": head_max_len,
    }


def checked_request(request: Any, index: int) -> Request:
    """Returns a request of a batch as it is.

    Raises:
        TypeError: It is not a dict.
        ValueError: It lacks a key or has an unknown one.
    """
    if not isinstance(request, Mapping):
        raise TypeError(f"requests[{index}] must be a dict with state and questions, not {type(request).__name__}")
    missing = [key for key in ("state", "questions") if key not in request]
    unknown = sorted(str(key) for key in request if key not in _REQUEST_KEYS)
    if missing or unknown:
        told = [f"lacks {', '.join(missing)}"] if missing else []
        told += [f"has unknown keys {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"requests[{index}] {' and '.join(told)}; a request has {', '.join(sorted(_REQUEST_KEYS))}")
    return request


def shared_passes(agent: AgentLike, contexts: list[PredictContext], options: dict[str, Any]) -> list[Results | BaseException]:
    """Answers contexts that one agent serves: those with equal questions and budgets together."""
    outcomes: dict[int, Results | BaseException] = {}
    langs: dict[int, list[str | None]] = {}
    passes: dict[tuple[tuple[Question, ...], int | None, int | None], list[int]] = {}
    for index, ctx in enumerate(contexts):
        try:
            for state in ctx.states:
                serialize(state)
            langs[index] = langs_of(checked_lang(ctx.lang), len(ctx.states))
            passes.setdefault((parse_questions(ctx.questions), ctx.max_len, ctx.head_max_len), []).append(index)
        except Exception as error:
            outcomes[index] = error

    def ask(members: list[int]) -> list[Results | BaseException]:
        return _pass(agent, [contexts[index] for index in members], [langs[index] for index in members], options)

    groups = list(passes.values())
    for members, answered in zip(groups, _at_once(ask, groups), strict=True):
        outcomes.update(zip(members, answered, strict=True))
    return [outcomes[index] for index in range(len(contexts))]


def _at_once(ask: Callable[[list[int]], list[Results | BaseException]], groups: list[list[int]]) -> Iterable[list[Results | BaseException]]:
    """Asks for groups at the same time: those of different questions meet in the engine's queue and share its passes."""
    if len(groups) < 2:
        return map(ask, groups)
    with ThreadPoolExecutor(min(_GROUPS_AT_ONCE, len(groups)), "laya-groups") as pool:
        return [asked.result() for asked in [pool.submit(copy_context().run, ask, group) for group in groups]]


def _pass(
    agent: AgentLike, contexts: list[PredictContext], langs: list[list[str | None]], options: dict[str, Any]
) -> list[Results | BaseException]:
    """Answers contexts of equal questions and budgets together; alone, where together they hold a row that memory has no room for."""
    first = contexts[0]
    states = [state for ctx in contexts for state in ctx.states]
    shared = {"max_len": first.max_len, "head_max_len": first.head_max_len, "lang": [code for codes in langs for code in codes]}
    try:
        with serving(ctx.run_id for ctx in contexts):
            results = agent.predict_batch(states, first.questions, **shared, **options)
        if len(results) != len(states):
            raise ValueError(f"{len(results)} results for {len(states)} states: a hook of the agent gave or left too few or too many")
    except OutOfMemoryError as error:
        if len(contexts) == 1:
            return [error]
    except Exception as error:
        return [error] * len(contexts)
    else:
        remaining = iter(results)
        return [[next(remaining) for _ in ctx.states] for ctx in contexts]
    return [_pass(agent, [ctx], [codes], options)[0] for ctx, codes in zip(contexts, langs, strict=True)]
