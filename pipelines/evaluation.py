"""Answers against labels: accuracy, Brier score, calibration and confusion, as sums that add up over parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from laya.questions import Question

RELIABILITY_BINS = 15
"""Equal bins of confidence, as in Guo et al. 2017, "On Calibration of Modern Neural Networks"."""

_LONGEST_EXAMPLE = 100

_YES = frozenset({"true", "yes", "1"})
_NO = frozenset({"false", "no", "0"})


@dataclass(slots=True)
class Evaluation:
    """Answers of one question against their labels.

    Attributes:
        confusion: (label, decision) to rows.
        brier: Sum of the Brier scores: (p - y)^2 of a noul, of the others summed over all options.
        level_error: Sum of |expected level - label|, for a score.
        bins: For each of `RELIABILITY_BINS` bins of answer_confidence: rows, sum of confidence, rows that are right.
        unusable: Labels that are none of the question's answers.
        unusable_example: The first of them.
    """

    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    brier: float = 0.0
    level_error: float = 0.0
    bins: list[list[float]] = field(default_factory=lambda: [[0, 0.0, 0] for _ in range(RELIABILITY_BINS)])
    unusable: int = 0
    unusable_example: str | None = None

    def add_truth(self, question: Question, answer: Mapping[str, Any], decision: str, truth: Any) -> None:
        """Compares an answer with what the label's column holds; an empty one says nothing."""
        if truth is None or truth == "" or truth != truth:  # NaN is how some writers say that there is nothing
            return
        if isinstance(truth, float) and truth.is_integer():
            truth = int(truth)  # a column of whole numbers with gaps is one of floats, to many writers
        label = label_text(question, truth)
        if label is None:
            self.unusable += 1
            self.unusable_example = self.unusable_example or str(truth)[:_LONGEST_EXAMPLE]
        else:
            self.add(question, answer, decision, label)

    def add(self, question: Question, answer: Mapping[str, Any], decision: str, label: str) -> None:
        """Counts an answer and its label, in the words of `decided`."""
        confidence = answer["answer_confidence"]
        self.confusion[label, decision] += 1
        counts = self.bins[min(int(confidence * RELIABILITY_BINS), RELIABILITY_BINS - 1)]
        counts[0] += 1
        counts[1] += confidence
        counts[2] += decision == label
        if question.type == "noul":
            self.brier += (answer["noul"] - (label == "yes")) ** 2
        else:
            self.brier += sum((share - (str(option) == label)) ** 2 for option, share in answer["probabilities"].items())
        if question.type == "score":
            self.level_error += abs(answer["score"] - int(label))

    @property
    def rows(self) -> int:
        """Answers that had a usable label."""
        return self.confusion.total()

    @property
    def right(self) -> int:
        """Those whose decision is the label."""
        return sum(count for (label, decision), count in self.confusion.items() if label == decision)

    @property
    def labels(self) -> Counter[str]:
        """Label to rows."""
        labels: Counter[str] = Counter()
        for (label, _), count in self.confusion.items():
            labels[label] += count
        return labels

    @property
    def baseline(self) -> int:
        """Rows that always answering with the commonest label would get right."""
        return max(self.labels.values(), default=0)

    @property
    def accuracy(self) -> float:
        """Share of the answers that are right; 0 without labels."""
        return self.right / self.rows if self.rows else 0.0

    @property
    def mean_brier(self) -> float:
        """Brier score of one answer; 0 without labels."""
        return self.brier / self.rows if self.rows else 0.0

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: how far confidence and accuracy of a bin lie apart, averaged over answers; 0 without labels."""
        return sum(abs(confidence - right) for _, confidence, right in self.bins) / self.rows if self.rows else 0.0

    def merge(self, other: Evaluation) -> None:
        """Adds another one's sums."""
        self.confusion.update(other.confusion)
        self.brier += other.brier
        self.level_error += other.level_error
        self.bins = [[a + b for a, b in zip(mine, theirs, strict=True)] for mine, theirs in zip(self.bins, other.bins, strict=True)]
        self.unusable += other.unusable
        self.unusable_example = self.unusable_example or other.unusable_example

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON can hold them."""
        confusion = [[label, decision, count] for (label, decision), count in self.confusion.items()]
        plain = ("brier", "level_error", "bins", "unusable", "unusable_example")
        return {"confusion": confusion, **{name: getattr(self, name) for name in plain}}

    @classmethod
    def from_dict(cls, sums: Mapping[str, Any]) -> Self:
        """Sums written by `to_dict`."""
        confusion = Counter({(label, decision): count for label, decision, count in sums["confusion"]})
        bins = [list(counts) for counts in sums["bins"]]
        return cls(confusion, sums["brier"], sums["level_error"], bins, sums["unusable"], sums["unusable_example"])


def decided(answer: Mapping[str, Any]) -> str:
    """The decision of an answer as text: a label, the nearest level, "yes" or "no"."""
    if answer["type"] == "choice":
        return str(answer["choice"])
    if answer["type"] == "score":
        return str(round(answer["score"]))
    return "yes" if answer["noul"] >= 0.5 else "no"


def label_text(question: Question, truth: Any) -> str | None:
    """A row's label in the words of `decided`; None where it is none of the question's answers."""
    if question.type == "choice":
        return str(truth) if str(truth) in map(str, question.labels) else None
    if question.type == "score":
        try:
            level = float(truth)
        except (TypeError, ValueError, OverflowError):
            return None
        return str(int(level)) if level.is_integer() and 0 <= level < question.n else None
    said = str(truth).strip().lower()
    return "yes" if said in _YES else "no" if said in _NO else None
