"""Fits temperatures to answers that are known, so that probabilities say how often answers are right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from laya.calibration import MAX_TEMPERATURE, MIN_TEMPERATURE, LangTemperatures, Temperatures, option_bucket
from laya.language import primary_language
from laya.questions import TYPE_IDS, Question

MIN_RECORDS = 50
_HALVINGS = 60
_DECIMALS = 4

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """What the network said of one question about one state, and what was right.

    Attributes:
        type: "choice", "score" or "noul".
        logits: One a slot, in slot order, as the network gave them.
        truth: The slot of the right answer.
        lang: Language of the state; None where it is not known.
    """

    type: str
    logits: Sequence[float]
    truth: int
    lang: str | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    """A record that was looked over.

    Attributes:
        type: Its question type.
        gaps: [K] its logits less the logit of the right answer.
        language: Primary subtag, or None.
    """

    type: str
    gaps: npt.NDArray[np.float64]
    language: str | None

    @property
    def bucket(self) -> str:
        """Its "<type>:<bucket>"."""
        return f"{self.type}:{option_bucket(len(self.gaps))}"


def right_slots(questions: Sequence[Question], truths: Sequence[Mapping[Any, Any]]) -> list[dict[str | int, int]]:
    """The slots of right answers.

    Args:
        questions: The questions.
        truths: One mapping a state: question id to the label of a choice, the level of a score, the bool of a noul. A question that
            is left out has no right answer there.

    Returns:
        One mapping a state: question id to slot.

    Raises:
        ValueError: A question id or an answer is not one of those asked for; the message names it.
    """
    if isinstance(truths, str | Mapping):
        raise ValueError(f"truths must hold one dict a state, not be one {type(truths).__name__}")
    by_id = {question.qid: question for question in questions}
    slots: list[dict[str | int, int]] = []
    for index, truth in enumerate(truths):
        if not isinstance(truth, Mapping):
            raise ValueError(f"truths[{index}] must be a dict of question id to right answer, not {type(truth).__name__}")
        unknown = [qid for qid in truth if qid not in by_id]
        if unknown:
            raise ValueError(f"truths[{index}] answers {unknown[0]!r}, which is not asked: the questions are {list(by_id)}")
        slots.append({qid: _slot(by_id[qid], answer, f"truths[{index}]") for qid, answer in truth.items()})
    return slots


def _slot(question: Question, answer: Any, place: str) -> int:
    answers = list(range(question.n)) if question.type == "score" else list(question.labels)
    if answer not in answers:
        raise ValueError(f"{place}: {answer!r} is no answer of question {question.qid!r}: those are {answers}")
    return question.order.index(answers.index(answer))


def fit_temperatures(records: Iterable[CalibrationRecord | Mapping[str, Any]], *, min_records: int = MIN_RECORDS) -> Temperatures:
    """Fits the temperatures with which the right answers are most likely: those of least mean negative log-likelihood.

    Every question type gets one, from all of its records; a type and option bucket, and a language's type and type and option bucket,
    only where there are enough records of it. A record of one option says nothing and is passed over.

    Args:
        records: `CalibrationRecord` objects, or dicts with their fields.
        min_records: Fewest records for a temperature of its own. A type with fewer is fitted all the same, with a RuntimeWarning; a
            type without any has 1.0.

    Raises:
        ValueError: There is no record that says anything, or one is wrong: the message names it.

    Example:
        >>> records = agent.calibration_records(states, questions, truths)
        >>> laya.fit_temperatures(records).save("calibration.json")
        >>> agent = laya.load("mini", calibration="calibration.json")
    """
    if type(min_records) is not int or min_records < 1:
        raise ValueError(f"min_records must be a positive number of records, not {min_records!r}")
    samples = [sample for index, record in enumerate(records) if len((sample := _sample(record, index)).gaps) > 1]
    if not samples:
        raise ValueError("no records to fit temperatures to: records of two options or more are needed")
    types = _grouped(samples, lambda sample: sample.type)
    thin = [f"{name} ({len(members)})" for name, members in types.items() if len(members) < min_records]
    if thin:
        warnings.warn(f"temperatures fitted to fewer than {min_records} records: {', '.join(thin)}", RuntimeWarning, stacklevel=2)
    choice, score, noul = (_fit(types[name]) if name in types else 1.0 for name in TYPE_IDS)
    by_lang = {
        language: own
        for language, spoken in _grouped(samples, lambda sample: sample.language, min_records).items()
        if language is not None and (own := _of_language(spoken, min_records)) != LangTemperatures()
    }
    return Temperatures((choice, score, noul), _fits(samples, lambda sample: sample.bucket, min_records), by_lang)


def _of_language(samples: Sequence[_Sample], min_records: int) -> LangTemperatures:
    own = _fits(samples, lambda sample: sample.type, min_records)
    choice, score, noul = (own.get(name) for name in TYPE_IDS)
    return LangTemperatures((choice, score, noul), _fits(samples, lambda sample: sample.bucket, min_records))


def _sample(record: Any, index: int) -> _Sample:
    """Looks a record over.

    Raises:
        ValueError: It is wrong.
    """
    place = f"records[{index}]"
    if isinstance(record, Mapping):
        try:
            record = CalibrationRecord(**record)
        except TypeError:
            raise ValueError(f"{place} must have type, logits, truth and perhaps lang, not {', '.join(map(str, record))}") from None
    if not isinstance(record, CalibrationRecord):
        raise ValueError(f"{place} must be a CalibrationRecord or a dict, not {type(record).__name__}")
    if not isinstance(record.type, str) or record.type not in TYPE_IDS:
        raise ValueError(f"{place}: type must be one of {', '.join(TYPE_IDS)}, not {record.type!r}")
    if record.lang is not None and not isinstance(record.lang, str):
        raise ValueError(f"{place}: lang must be a language code or None, not {record.lang!r}")
    try:
        logits = np.asarray(record.logits, dtype=np.float64)
    except (TypeError, ValueError):
        logits = np.empty(0)
    if logits.ndim != 1 or not logits.size or not np.isfinite(logits).all():
        raise ValueError(f"{place}: logits must be finite numbers, one a slot, not {record.logits!r}")
    truth: Any = record.truth
    if isinstance(truth, bool) or not isinstance(truth, Integral) or truth not in range(len(logits)):
        raise ValueError(f"{place}: truth must be one of the slots 0 to {len(logits) - 1}, not {truth!r}")
    return _Sample(record.type, logits - logits[int(truth)], None if record.lang is None else primary_language(record.lang))


def _grouped(samples: Iterable[_Sample], key: Callable[[_Sample], _Key], fewest: int = 1) -> dict[_Key, list[_Sample]]:
    groups: dict[_Key, list[_Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return {name: members for name, members in groups.items() if len(members) >= fewest}


def _fits(samples: Iterable[_Sample], key: Callable[[_Sample], str], fewest: int) -> dict[str, float]:
    return {name: _fit(members) for name, members in _grouped(samples, key, fewest).items()}


def _fit(samples: Sequence[_Sample]) -> float:
    """The temperature of least log-likelihood: convex in 1 / t, so where its slope changes sign, or the bound that it falls towards."""
    blocks = [np.stack([sample.gaps for sample in members]) for members in _grouped(samples, lambda sample: len(sample.gaps)).values()]
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    if _slope(blocks, low) >= 0:
        return MAX_TEMPERATURE
    if _slope(blocks, high) <= 0:
        return MIN_TEMPERATURE
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _slope(blocks, middle) < 0:
            low = middle
        else:
            high = middle
    return round(1 / high, _DECIMALS)


def _slope(blocks: Iterable[npt.NDArray[np.float64]], inverse: float) -> float:
    """Derivative by 1 / t of the summed negative log-likelihood, log(sum(exp(gaps / t))) of every record.

    Args:
        blocks: [records, K] gaps, records of equal K together.
        inverse: 1 / t.
    """
    total = 0.0
    for gaps in blocks:
        weights = np.exp(inverse * (gaps - gaps.max(axis=1, keepdims=True)))
        total += float(((weights * gaps).sum(axis=1) / weights.sum(axis=1)).sum())
    return total
