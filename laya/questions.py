"""Typed questions: validation, and the option texts that the model reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from laya.states import check_text, one_line_json

QuestionType = Literal["choice", "score", "noul"]
TYPE_IDS: dict[QuestionType, int] = {"choice": 0, "score": 1, "noul": 2}
"""Row of the model's type embedding for each question type."""

_NOUL_DEFAULTS = {"false": "no, the statement does not hold", "true": "yes, the statement holds"}


@dataclass(frozen=True, slots=True)
class Question:
    """One validated question.

    Attributes:
        qid: The id that its answer will carry: a non-empty str, or an int.
        type: choice, score or noul.
        instructions: What is asked, as text.
        labels: The answers in the caller's order: labels of a choice (the caller's own objects), level texts of a score,
            (False, True) of a noul.
        order: Slot s of the sequence shows option ``order[s]``.
        option_texts: The texts of the options in slot order.
    """

    qid: str | int
    type: QuestionType
    instructions: str
    labels: tuple[Any, ...]
    order: tuple[int, ...]
    option_texts: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of options."""
        return len(self.labels)

    @property
    def type_id(self) -> int:
        """Row of the type embedding."""
        return TYPE_IDS[self.type]


def parse_questions(questions: Mapping[Any, Any]) -> tuple[Question, ...]:
    """Validates the questions of a call.

    Args:
        questions: Question id to ``{"type", "instructions", "criteria"?, "labels"?, "option_order"?}``. Other keys are ignored.

    Returns:
        The questions in the mapping's order.

    Raises:
        TypeError: ``questions`` is not a mapping.
        ValueError: A question is wrong; the message names it and the mend.
    """
    if not isinstance(questions, Mapping):
        raise TypeError(f"questions must be a dict of question id to question, not {type(questions).__name__}")
    return tuple(_parse(qid, spec) for qid, spec in questions.items())


def _refuse(qid: Any, problem: str) -> NoReturn:
    raise ValueError(f"question {qid!r}: {problem}")


def _parse(qid: Any, spec: Any) -> Question:
    if isinstance(qid, bool) or not isinstance(qid, str | int) or (isinstance(qid, str) and not qid.strip()):
        _refuse(qid, "a question id is a non-empty string (or an int)")
    if not isinstance(spec, Mapping):
        _refuse(qid, f"must be a dict with type, instructions and criteria, not {type(spec).__name__}")
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in TYPE_IDS:
        _refuse(qid, f"type must be one of choice, score, noul (in lower case), not {kind!r}")
    instructions = _instructions(qid, spec.get("instructions"))
    criteria = spec.get("criteria")
    if kind == "choice":
        labels, texts = _choice(qid, criteria)
    elif kind == "score":
        labels, texts = _score(qid, criteria)
    else:
        labels, texts = _noul(qid, criteria, spec.get("labels"))
    for text in (instructions, *texts):
        check_text(text, f"question {qid!r}")
    order = _order(qid, spec.get("option_order"), len(texts))
    return Question(qid, kind, instructions, tuple(labels), order, tuple(texts[index] for index in order))


def _text(qid: Any, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return one_line_json(value)
    except (TypeError, ValueError) as error:
        _refuse(qid, f"{value!r} cannot be written as JSON ({error}); use text")


def _instructions(qid: Any, value: Any) -> str:
    wrong_type = isinstance(value, bool) or not isinstance(value, str | dict | list | int | float)
    blank = (isinstance(value, str) and not value.strip()) or value in ([], {})
    if wrong_type or blank:
        _refuse(qid, f"instructions must say what is asked: a non-empty string (or a dict, list or number), not {value!r}")
    return _text(qid, value)


def _choice(qid: Any, criteria: Any) -> tuple[list[Any], list[str]]:
    if isinstance(criteria, Mapping):
        options = list(criteria.items())
    elif isinstance(criteria, list):
        options = [(label, None) for label in criteria]
    else:
        _refuse(qid, "a choice needs criteria: a dict of label to description, or a list of labels")
    if not options:
        _refuse(qid, "a choice needs at least one label in criteria")
    labels: list[Any] = []
    for label, _ in options:
        if not isinstance(label, str | int | float) or (isinstance(label, float) and not math.isfinite(label)):
            _refuse(qid, f"label {label!r} must be a string, a finite number or a bool")
    # Labels are compared as Python compares dict keys, so the list is as strict as a dict would be: 1, 1.0 and True are equal.
    seen: set[Any] = set()
    for label, _ in options:
        if label in seen:
            _refuse(qid, f"label {label!r} is given twice")
        seen.add(label)
        labels.append(label)
    return labels, [str(label) if text is None or text == "" else f"{label}: {_text(qid, text)}" for label, text in options]


def _score(qid: Any, criteria: Any) -> tuple[list[Any], list[str]]:
    if not isinstance(criteria, list) or not criteria:
        _refuse(qid, "a score needs criteria: a list of level texts, level 0 first")
    if any(level is None for level in criteria):
        _refuse(qid, "a level of a score must not be null")
    levels = [_text(qid, level) for level in criteria]
    return list(levels), [f"level {index}: {text}" for index, text in enumerate(levels)]


def _noul(qid: Any, criteria: Any, names: Any) -> tuple[list[Any], list[str]]:
    texts = dict(_NOUL_DEFAULTS)
    if criteria is not None:
        if not isinstance(criteria, Mapping):
            _refuse(qid, "criteria of a noul must be a dict keyed true and false, or left out")
        given: set[str] = set()
        for key, text in criteria.items():
            side = str(key).lower()
            if side not in texts:
                _refuse(qid, f"criteria of a noul may only be keyed true and false, not {key!r}")
            if side in given:
                _refuse(qid, f"criteria of a noul say twice what {side} means")
            given.add(side)
            if text is not None and text != "":
                texts[side] = _text(qid, text)
    shown = {"false": "false", "true": "true"}
    if names is not None:
        if not isinstance(names, Mapping) or set(names) != set(shown) or not all(isinstance(name, str) for name in names.values()):
            _refuse(qid, 'labels of a noul must be {"false": text, "true": text}')
        shown = {side: name.strip() for side, name in names.items()}
        if not all(shown.values()) or shown["false"] == shown["true"]:
            _refuse(qid, "labels of a noul must be two distinct, non-empty strings")
    return [False, True], [f"{shown[side]}: {texts[side]}" for side in ("false", "true")]


def _order(qid: Any, order: Any, n: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(n))
    whole = isinstance(order, list | tuple) and all(type(index) is int for index in order)
    if not whole or sorted(order) != list(range(n)):
        _refuse(qid, f"option_order must hold each of 0 to {n - 1} once, not {order!r}")
    return tuple(order)
