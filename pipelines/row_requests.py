"""Requests of rows: what one record asks of a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from laya.questions import Question, parse_questions
from pipelines.config import AUTO, AskConfig
from pipelines.errors import RecordError
from pipelines.sources import Record, state_of
from pipelines.sources.json_text import parse_json

OwnQuestions = tuple[Mapping[Any, Any], tuple[Question, ...]]
_KNOWN_TEXTS = 1000
"""Different texts of questions whose parsed form is kept."""


@dataclass(frozen=True, slots=True)
class RowRequests:
    """Makes requests of records.

    Attributes:
        config: What is asked.
        state: Columns that the questions are about.
        questions: The questions of all rows; None where each row has its own.
    """

    config: AskConfig
    state: tuple[str, ...]
    questions: Mapping[Any, Any] | None
    _known: dict[str, OwnQuestions] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def scan(self) -> bool:
        """Whether texts longer than the model reads are read window by window."""
        return self.config.long == "scan"

    @property
    def windows(self) -> dict[str, Any]:
        """Arguments of a call that reads window by window."""
        return {"window": self.config.window, "stride": self.config.stride}

    @property
    def each_asks_its_own(self) -> bool:
        """Whether each row has its own questions."""
        return self.questions is None

    @property
    def columns(self) -> frozenset[str]:
        """The columns that requests are made of."""
        config = self.config
        named = (config.questions_column, config.model_column, config.lang_column, config.max_len_column)
        return frozenset([*self.state, *(name for name in named if name is not None)])

    def request(self, record: Record) -> dict[str, Any]:
        """What a record asks.

        Raises:
            RecordError: It could not be read, it has no state, or a column that says how to answer it holds what it must not.
        """
        config = self.config
        state = state_of(record, self.state, config.state_json)
        model = _text(record, config.model_column) or config.model
        return {
            "state": state,
            "questions": self.own_questions(record)[0] if self.questions is None else self.questions,
            "model": None if model == AUTO else model,
            "lang": _text(record, config.lang_column) or config.lang,
            "max_len": _max_len(record, config.max_len_column) or config.max_len,
            "head_max_len": config.head_max_len,
        }

    def own_questions(self, record: Record) -> OwnQuestions:
        """A record's own questions, as they stand in it and parsed.

        Raises:
            RecordError: It has none, or they are not valid.
        """
        column = self.config.questions_column or ""
        given = record.columns.get(column)
        if given is None or given == "":
            raise RecordError(f"{record.where}: `{column}` is empty; it must hold the row's questions")
        if not isinstance(given, str):
            return _checked(record, column, given)
        # Rows of one kind ask the same, so the same texts come again and again.
        known = self._known.get(given)
        if known is None:
            try:
                value = parse_json(given)
            except ValueError as error:
                raise RecordError(f"{record.where}: `{column}` is {error}") from None
            known = _checked(record, column, value)
            if len(self._known) < _KNOWN_TEXTS:
                self._known[given] = known
        return known


def _checked(record: Record, column: str, questions: Any) -> OwnQuestions:
    if not isinstance(questions, Mapping) or not questions:
        raise RecordError(f"{record.where}: `{column}` must map question ids to questions")
    try:
        return questions, parse_questions(questions)
    except ValueError as error:
        raise RecordError(f"{record.where}: `{column}`: {error}") from None


def _text(record: Record, column: str | None) -> str | None:
    value = None if column is None else record.columns.get(column)
    if value is not None and not isinstance(value, str):
        raise RecordError(f"{record.where}: `{column}` must be text, not {value!r}")
    return value.strip() or None if value is not None else None


def _max_len(record: Record, column: str | None) -> int | None:
    value = None if column is None else record.columns.get(column)
    if value is None or value == "" or value != value:
        return None
    try:
        # A column of whole numbers with gaps is one of floats, to many writers.
        whole = isinstance(value, float) and value.is_integer()
        number = int(value) if isinstance(value, str) or whole else value
    except ValueError:
        number = None
    if type(number) is not int or number < 1:
        raise RecordError(f"{record.where}: `{column}` must be a positive whole number of tokens, not {value!r}")
    return number
