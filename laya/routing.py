"""Which checkpoint answers a request: explicit wishes first, then what the questions and the text say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from laya.language import detect, primary_language, reads_english
from laya.names import BUILT_IN, STANDALONE, CheckpointSource, canonical

LangGuess = str | Callable[[Any], str | None] | None
"""A language code, or a function from a state to one (or to None, when it cannot tell)."""

ENGLISH = "english"
MULTILINGUAL = "multilingual"
TYPED_DECISIONS = "typed-decisions"

WORKFLOWS: Mapping[frozenset[str], str] = {
    frozenset({"action", "needs_review", "outcome", "risk", "urgency"}): "agent_trace_observability",
    frozenset({"action", "category", "churn_risk", "needs_human", "urgency"}): "customer_service",
    frozenset({"discrepancy_severity", "disposition", "duplicate", "matches_order", "urgency"}): "invoice_processing",
    frozenset({"credential_compromise", "disposition", "severity", "true_positive", "urgency"}): "security_incidents",
}
"""Question-id sets that the typed-decisions checkpoint was made for."""


class RouteDecision(dict[str, Any]):
    """Where a request goes: ``model``, ``repo``, ``reason``, ``detection`` and ``workflow``."""

    @property
    def model(self) -> str:
        """Name of the checkpoint."""
        return str(self["model"])

    @property
    def reason(self) -> str:
        """Why it was chosen, in words."""
        return str(self["reason"])


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller says about the routing of a request; None says nothing.

    Raises:
        TypeError: ``lang`` is not a code.
    """

    model: str | None = None
    task: str | None = None
    lang: str | None = None
    lang_guess: LangGuess = None

    def __post_init__(self) -> None:
        if not isinstance(self.lang, str | None):
            raise TypeError(f"lang must be a language code such as 'de', or None, not {self.lang!r}")


@dataclass(frozen=True, slots=True)
class _Said:
    """A language, who said so, and the code that was said."""

    by: str
    code: Any
    language: str


class RoutingTable:
    """The checkpoints that a Router knows, and the rules that choose among them.

    Args:
        models: Name to source: a folder, a hub id, a (location, subfolder) pair or a CheckpointSource. Built-in names are re-pointed.
        default: The checkpoint for texts whose language cannot be told.
        auto_task_detection: Whether question-id sets of known workflows choose the typed-decisions checkpoint.
        standalone_repos: Whether the published family is taken from one hub repository each.
        lang_guess: What is believed of the language where a request says nothing.

    Raises:
        ValueError: ``default`` is not a known name.
        TypeError: A source is of none of these kinds.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | None = None,
        default: str = ENGLISH,
        auto_task_detection: bool = False,
        standalone_repos: bool = False,
        lang_guess: LangGuess = None,
    ) -> None:
        self.sources: dict[str, CheckpointSource] = {**BUILT_IN, **(STANDALONE if standalone_repos else {})}
        for name, source in (models or {}).items():
            self.register(name, source)
        self._attached: dict[str, str] = {}
        self.default = self.resolve(default)
        self.auto_task_detection = auto_task_detection
        self.lang_guess = lang_guess

    def register(self, name: str, source: Any) -> str:
        """Points a name at a checkpoint and returns the name as it is kept."""
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"a checkpoint's name is a non-empty string, not {name!r}")
        self.sources[canonical(name)] = _as_source(source)
        return canonical(name)

    def attach(self, name: str, agent: Any) -> str:
        """Notes that a name means an agent that exists already, until `detach`; returns the name as it is kept.

        A name that was not known means the agent's checkpoint afterwards.
        """
        model_id = str(getattr(agent, "model_id", name))
        kept = canonical(name) if canonical(name) in self.sources else self.register(name, model_id)
        self._attached[kept] = model_id
        return kept

    def detach(self, name: str) -> None:
        """Gives a name its own checkpoint back."""
        self._attached.pop(name, None)

    def repo(self, name: str) -> str:
        """What a decision calls the checkpoint of a name."""
        return self._attached.get(name) or str(self.sources[name])

    def preloaded(self, names: Iterable[str] | str | None) -> list[str]:
        """The kept names that a ``preload`` asks for; None asks for all but the small bundled checkpoint.

        Raises:
            ValueError: A name is unknown.
        """
        wanted = [names] if isinstance(names, str) else [name for name in self.sources if name != "mini"] if names is None else names
        return [self.resolve(name) for name in wanted]

    def resolve(self, name: str) -> str:
        """The kept name that a name or alias stands for.

        Raises:
            ValueError: No checkpoint is known by it.
        """
        if not isinstance(name, str) or canonical(name) not in self.sources:
            raise ValueError(
                f"unknown checkpoint {name!r}: known are {', '.join(sorted(self.sources))}; "
                "register others with Router(models={name: source})"
            )
        return canonical(name)

    def decide(self, state: Any, questions: Mapping[Any, Any] | None, wishes: Wishes) -> tuple[RouteDecision, str | None]:
        """Chooses: model > task > workflow > lang > the call's lang_guess > the Router's > detection > default.

        Returns:
            The decision, and the language of the state: what was said of it, whatever decided; else what was guessed or detected, if
            that was needed and found one; else None.

        Raises:
            ValueError: A wish names an unknown checkpoint.
        """
        workflow = WORKFLOWS.get(frozenset(questions)) if isinstance(questions, Mapping) else None
        decision = self._by_name(wishes, workflow)
        # A guess that has to be made is made where it decides, not for its own sake.
        said = self._said(state, wishes, guess=decision is None)
        if decision is None:
            decision = self._by_language(state, said, workflow)
        found = decision["detection"]
        if found is not None:
            return decision, found["language"]
        return decision, None if said is None else said.language

    def _by_name(self, wishes: Wishes, workflow: str | None) -> RouteDecision | None:
        for label, wish in (("model", wishes.model), ("task", wishes.task)):
            if wish is not None:
                return self._decision(self.resolve(wish), f"{label}={wish!r} was asked for", workflow)
        if workflow is not None and self.auto_task_detection:
            return self._decision(TYPED_DECISIONS, f"the question ids are those of the {workflow} workflow", workflow)
        return None

    def _by_language(self, state: Any, said: _Said | None, workflow: str | None) -> RouteDecision:
        if said is not None:
            return self._decision(ENGLISH if reads_english(said.language) else MULTILINGUAL, f"{said.by} says {said.code!r}", workflow)
        found = detect(state)
        if found["script"] == "unknown":
            return self._decision(self.default, "no letters to tell a language by: default", workflow, found)
        if found["non_latin_fraction"] > 0.5:
            return self._decision(MULTILINGUAL, f"most letters are {found['script']}", workflow, found)
        if found["language_undecided"]:
            return self._decision(self.default, "the language could not be told with confidence: default", workflow, found)
        name = ENGLISH if found["is_english"] else MULTILINGUAL
        return self._decision(name, f"the text reads as language {found['language']!r}", workflow, found)

    def _said(self, state: Any, wishes: Wishes, guess: bool) -> _Said | None:
        """The first of those who may say something of the language that does; functions are only asked for a ``guess``."""
        for by, wish in (("lang", wishes.lang), ("lang_guess", wishes.lang_guess), ("the Router's lang_guess", self.lang_guess)):
            code = (wish(state) if guess else None) if callable(wish) else wish
            language = None if code is None else primary_language(str(code))
            if language is not None:
                return _Said(by, code, language)
        return None

    def _decision(self, model: str, reason: str, workflow: str | None, detection: Any = None) -> RouteDecision:
        return RouteDecision(model=model, repo=self.repo(model), reason=reason, detection=detection, workflow=workflow)


def _as_source(source: Any) -> CheckpointSource:
    if isinstance(source, CheckpointSource):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return CheckpointSource(str(source[0]), source[1])
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return BUILT_IN.get(canonical(str(source))) or CheckpointSource(str(source))
    raise TypeError(f"a checkpoint's source is a folder, a hub id or a (location, subfolder) pair, not {source!r}")
