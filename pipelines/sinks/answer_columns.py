"""Answers as Arrow columns: typed ones for each question where all rows share them, else one list a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from laya.questions import Question
from pipelines.errors import InputError
from pipelines.gating import Thresholds, is_below, threshold_of

ANSWERS_COLUMN = "answers"

_OWN_ANSWER = pa.struct(
    [
        ("question", pa.string()),
        ("type", pa.string()),
        ("answer", pa.string()),
        ("score", pa.float64()),
        ("noul", pa.float64()),
        ("confidence", pa.float64()),
        ("abstain", pa.bool_()),
        ("probabilities", pa.list_(pa.struct([("label", pa.string()), ("probability", pa.float64())]))),
    ]
)


class AnswerColumns(Protocol):
    """The columns that answers are written to."""

    @property
    def fields(self) -> Sequence[tuple[pa.Field[Any], str]]:
        """Each with what it is, for messages."""

    def values(self, answers: Mapping[Any, Any]) -> Any:
        """What the answers of one row become; AttributeError, KeyError, TypeError or ValueError if they are not what they must be."""

    def arrays(self, rows: Sequence[Any]) -> list[pa.Array[Any]]:
        """The columns of many rows: for each what `values` gave, or None for one without answers."""


def answer_columns(questions: Sequence[Question] | None, thresholds: Thresholds = None) -> AnswerColumns:
    """The columns of questions that all rows share, or (None) of those that each row has of its own."""
    return OwnAnswers(thresholds) if questions is None else TypedAnswers(questions, thresholds)


def abstain_columns(questions: Sequence[Question] | None) -> list[str]:
    """The columns that say of answers to questions of all rows whether they are less sure than they must be."""
    return [_abstain_column(question) for question in questions or ()]


class TypedAnswers:
    """For each question, under its id: the label of a choice (as text), the expected level of a score or the probability of yes of a noul.

    ``<id>_confidence`` is the calibrated probability of the top answer; ``<id>_probabilities`` of a choice and a score is a struct with one
    field a label or level; ``<id>_abstain`` says whether the answer is less sure than it must be, and is null where no threshold is set.

    Raises:
        InputError: Two labels of a choice are written alike.
    """

    def __init__(self, questions: Sequence[Question], thresholds: Thresholds = None) -> None:
        self._columns = [_QuestionColumns(question, threshold_of(thresholds, question.qid)) for question in questions]
        self.fields = [(field, f"an answer to question {column.question.qid!r}") for column in self._columns for field in column.fields]

    def values(self, answers: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
        """For each question the values of its columns."""
        return [column.values(answers[column.question.qid]) for column in self._columns]

    def arrays(self, rows: Sequence[list[tuple[Any, ...]] | None]) -> list[pa.Array[Any]]:
        """The columns of all questions."""
        return [
            array
            for index, column in enumerate(self._columns)
            for array in column.arrays([None if row is None else row[index] for row in rows])
        ]


class _QuestionColumns:
    """The columns of one question."""

    def __init__(self, question: Question, threshold: float | None) -> None:
        name = str(question.qid)
        self.question = question
        self._threshold = threshold
        self._options = _options(question)
        self.fields: list[pa.Field[Any]] = [
            pa.field(name, pa.string() if question.type == "choice" else pa.float64()),
            pa.field(f"{name}_confidence", pa.float64()),
        ]
        if self._options is not None:
            self.fields.append(pa.field(f"{name}_probabilities", pa.struct([(option, pa.float64()) for option in self._options])))
        self.fields.append(pa.field(_abstain_column(question), pa.bool_()))

    def values(self, answer: Mapping[str, Any]) -> tuple[Any, ...]:
        decision = answer[self.question.type]
        decision = str(decision) if self.question.type == "choice" else float(decision)
        confidence = float(answer["answer_confidence"])
        abstains = None if self._threshold is None else is_below(answer, self._threshold)
        if self._options is None:
            return decision, confidence, abstains
        shares = {str(label): float(share) for label, share in answer["probabilities"].items()}
        return decision, confidence, *(shares.get(option) for option in self._options), abstains

    def arrays(self, rows: Sequence[tuple[Any, ...] | None]) -> list[pa.Array[Any]]:
        nothing = (None,) * (3 + len(self._options or ()))
        columns = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(nothing)
        arrays = [pa.array(columns[0], self.fields[0].type), pa.array(columns[1], pa.float64())]
        if self._options is not None:
            parts: list[Any] = [pa.array(column, pa.float64()) for column in columns[2:-1]]
            absent = pa.array([row is None for row in rows], pa.bool_())
            kind: Any = self.fields[2].type
            arrays.append(pa.StructArray.from_arrays(parts, fields=list(kind), mask=absent))
        arrays.append(pa.array(columns[-1], pa.bool_()))
        return arrays


def _abstain_column(question: Question) -> str:
    return f"{question.qid!s}_abstain"


def _options(question: Question) -> list[str] | None:
    if question.type == "noul":
        return None
    options = [str(label) for label in question.labels] if question.type == "choice" else [str(level) for level in range(question.n)]
    for index, option in enumerate(options):
        if option in options[:index]:
            raise InputError(f"question {question.qid!r}: two labels are written {option!r} in the output; rename one of them")
    return options


class OwnAnswers:
    """Rows with questions of their own: one list of answers a row, each with exactly its own labels."""

    fields = ((pa.field(ANSWERS_COLUMN, pa.list_(_OWN_ANSWER)), "the answers to each row's own questions"),)

    def __init__(self, thresholds: Thresholds = None) -> None:
        self._thresholds = thresholds

    def values(self, answers: Mapping[Any, Any]) -> list[dict[str, Any]]:
        """One dict an answer."""
        return [self._value(qid, answer) for qid, answer in answers.items()]

    def arrays(self, rows: Sequence[list[dict[str, Any]] | None]) -> list[pa.Array[Any]]:
        """The one column."""
        return [pa.array(rows, pa.list_(_OWN_ANSWER))]

    def _value(self, qid: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        threshold = threshold_of(self._thresholds, qid)
        kind = answer["type"]
        value = {
            "question": str(qid),
            "type": kind,
            "confidence": float(answer["answer_confidence"]),
            "abstain": None if threshold is None else is_below(answer, threshold),
        }
        if kind == "choice":
            return {**value, "answer": str(answer["choice"]), "probabilities": _shares(answer["probabilities"].items())}
        if kind == "score":
            return {**value, "score": float(answer["score"]), "probabilities": _shares(answer["probabilities"].items())}
        return {**value, "noul": float(answer["noul"])}


def _shares(probabilities: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"label": str(label), "probability": float(share)} for label, share in probabilities]
