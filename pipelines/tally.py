"""What became of rows: counts that add up over parts, so that a resumed job tells of all of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from laya.questions import Question
from pipelines.evaluation import Evaluation, decided

CONFIDENCE_BINS = 20
"""Equal bins of confidence from 0 to 1, for histograms."""
EXAMPLES = 3
"""Errors of one class that are kept word for word."""
_LONGEST_EXAMPLE = 300


@dataclass(slots=True)
class QuestionTally:
    """Counts of one question's answers.

    Attributes:
        type: Of the question.
        answers: Decision to count: a choice's labels, a score's nearest levels, "yes" and "no" of a noul.
        confidence: Sum of answer_confidence.
        histogram: Answers by confidence, in `CONFIDENCE_BINS` equal bins.
        abstained: Answers that are less sure than they must be.
        evaluation: What comparing them with labels gave.
    """

    type: str = ""
    answers: Counter[str] = field(default_factory=Counter)
    confidence: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * CONFIDENCE_BINS)
    abstained: int = 0
    evaluation: Evaluation = field(default_factory=Evaluation)

    def add(self, question: Question, answer: Mapping[str, Any], truth: Any, abstained: bool) -> None:
        """Counts an answer, and compares it with its label if there is one."""
        decision = decided(answer)
        confidence = answer["answer_confidence"]
        self.type = question.type
        self.answers[decision] += 1
        self.confidence += confidence
        self.histogram[min(int(confidence * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)] += 1
        self.abstained += abstained
        self.evaluation.add_truth(question, answer, decision, truth)

    def merge(self, other: QuestionTally) -> None:
        """Adds another one's counts."""
        self.type = self.type or other.type
        self.answers.update(other.answers)
        self.confidence += other.confidence
        self.histogram = [mine + theirs for mine, theirs in zip(self.histogram, other.histogram, strict=True)]
        self.abstained += other.abstained
        self.evaluation.merge(other.evaluation)

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them."""
        counts = {name: getattr(self, name) for name in ("type", "answers", "confidence", "histogram", "abstained")}
        return {**counts, "evaluation": self.evaluation.to_dict()}

    @classmethod
    def from_dict(cls, counts: Mapping[str, Any]) -> Self:
        """Counts written by `to_dict`."""
        answers, evaluation = Counter(counts["answers"]), Evaluation.from_dict(counts["evaluation"])
        return cls(counts["type"], answers, counts["confidence"], list(counts["histogram"]), counts["abstained"], evaluation)


@dataclass(slots=True)
class Tally:
    """Counts over rows.

    Attributes:
        rows: Rows.
        errors: Class of error to rows that could not be answered for it.
        examples: Class of error to a few messages, each with where it was.
        truncated: Rows of which only a part was read.
        tokens: Tokens that were read, special ones and options included.
        windows: Windows of long texts that were read.
        scanned: Rows that were read window by window.
        repeats: Rows that ask the same as an earlier one of their fragment, and share its answer.
        models: Checkpoint to rows that it answered.
        reasons: Why rows were routed to where they were.
        questions: Question id (as text) to its counts.
    """

    rows: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    truncated: int = 0
    tokens: int = 0
    windows: int = 0
    scanned: int = 0
    repeats: int = 0
    models: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    questions: dict[str, QuestionTally] = field(default_factory=dict)

    def add_error(self, error: BaseException, where: str) -> None:
        """Counts a row that could not be answered, and where it was."""
        self.rows += 1
        name = type(error).__name__
        self.errors[name] += 1
        examples = self.examples.setdefault(name, [])
        if len(examples) < EXAMPLES:
            message = str(error).strip().partition("\n")[0]
            told = message if message.startswith(where) else f"{where}: {message}"
            examples.append(told[:_LONGEST_EXAMPLE].encode(errors="replace").decode())

    def add_result(
        self, result: Mapping[str, Any], questions: Sequence[Question], truths: Mapping[str, Any], abstained: Collection[str] = ()
    ) -> None:
        """Counts an answered row.

        Args:
            result: A result, of a Router or of an agent.
            questions: The questions of the row.
            truths: Question id (as text) to what the row's label column holds, where there is one.
            abstained: Ids (as text) of the questions whose answers are less sure than they must be.
        """
        self.rows += 1
        usage = result.get("usage") or {}
        self.truncated += bool(usage.get("truncated"))
        self.tokens += usage.get("input_tokens", 0)
        windows = usage.get("windows")
        if windows is not None:
            self.windows += windows
            self.scanned += 1
        if "routing" in result:
            self.models[str(result["routing"]["model"])] += 1
            self.reasons[str(result["routing"].get("reason"))] += 1
        for question in questions:
            qid = str(question.qid)
            tally = self.questions.get(qid)
            if tally is None:
                tally = self.questions[qid] = QuestionTally()
            tally.add(question, result["answers"][question.qid], truths.get(qid), qid in abstained)

    def merge(self, other: Tally) -> None:
        """Adds another one's counts."""
        for name in ("rows", "truncated", "tokens", "windows", "scanned", "repeats"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.update(other.errors)
        self.models.update(other.models)
        self.reasons.update(other.reasons)
        for name, examples in other.examples.items():
            self.examples[name] = [*self.examples.get(name, []), *examples][:EXAMPLES]
        for qid, tally in other.questions.items():
            self.questions.setdefault(qid, QuestionTally()).merge(tally)

    @classmethod
    def total(cls, parts: Iterable[Tally]) -> Self:
        """The counts of several together."""
        total = cls()
        for part in parts:
            total.merge(part)
        return total

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them."""
        questions = {qid: tally.to_dict() for qid, tally in self.questions.items()}
        return {**{name: getattr(self, name) for name in self.__slots__}, "questions": questions}

    @classmethod
    def from_dict(cls, counts: Mapping[str, Any]) -> Self:
        """Counts written by `to_dict`."""
        counters = {name: Counter(counts[name]) for name in ("errors", "models", "reasons")}
        questions = {qid: QuestionTally.from_dict(tally) for qid, tally in counts["questions"].items()}
        return cls(**{**counts, **counters, "questions": questions})
