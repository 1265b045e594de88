"""What a report shows of each question: its options, how often each was the answer, how sure, how right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from laya.questions import Question, parse_questions
from pipelines.evaluation import Evaluation
from pipelines.gating import Thresholds, threshold_of
from pipelines.report.plots import histogram_plot, reliability_plot
from pipelines.report.words import shown
from pipelines.tally import QuestionTally

MOST_ANSWERS = 40
"""Answers that are listed each by itself."""
MOST_LABELS = 12
"""Labels up to which confusion is a matrix; above, it is a list of what is most often taken for what."""
MOST_CONFUSIONS = 10


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One possible answer.

    Attributes:
        name: Of the option, as it stands in the output.
        text: What the question says of it.
        rows: How often it was the answer.
        share: The same, of all answers.
        width: The same, of the commonest one's.
    """

    name: str
    text: str
    rows: int
    share: float
    width: float


@dataclass(frozen=True, slots=True)
class QuestionView:
    """One question of a report.

    Attributes:
        number: Its place, which its anchor is made of.
        qid: Its id.
        type: choice, score or noul.
        instructions: What was asked; empty where each row has questions of its own.
        answered: How many answers there are.
        answers: The possible ones.
        more_answers: How many different ones are not listed, and how many rows have them.
        confidence: The mean.
        threshold: The confidence that answers must have, if they must.
        abstained: How many do not.
        histogram: Answers by confidence.
        evaluation: Answers against labels.
        reliability: Share of right answers over confidence, where there are labels.
        matrix: Labels, and for each a row of counts by decision, where there are few.
        confusions: (label, decision, rows), the commonest mistakes, where there are many.
    """

    number: int
    qid: str
    type: str
    instructions: str
    answered: int
    answers: Sequence[AnswerRow]
    more_answers: tuple[int, int]
    confidence: float
    threshold: float | None
    abstained: int
    histogram: Markup | None
    evaluation: Evaluation
    reliability: Markup | None
    matrix: tuple[Sequence[str], Sequence[Sequence[int]]] | None
    confusions: Sequence[tuple[str, str, int]]

    @property
    def top(self) -> AnswerRow | None:
        """The commonest answer."""
        return max(self.answers, key=lambda row: row.rows) if self.answered else None


def view_questions(
    questions: Mapping[str, Any] | None, counted: Mapping[str, QuestionTally], thresholds: Thresholds, most: int
) -> list[QuestionView]:
    """What to show of a job's questions.

    Args:
        questions: Those of all rows, as the manifest has them; None where each row has its own.
        counted: Question id to its counts.
        thresholds: The confidence that answers must have.
        most: How many are shown; of the rows' own questions, those that were asked most often.
    """
    parsed = {str(question.qid): question for question in parse_questions(questions or {})}
    qids = list(parsed) if questions is not None else sorted(counted, key=lambda qid: -counted[qid].answers.total())
    return [
        _view(number, qid, parsed.get(qid), (questions or {}).get(qid), counted.get(qid, QuestionTally()), threshold_of(thresholds, qid))
        for number, qid in enumerate(qids[:most], 1)
    ]


def _view(
    number: int, qid: str, question: Question | None, spec: Mapping[str, Any] | None, counts: QuestionTally, threshold: float | None
) -> QuestionView:
    kind = counts.type if question is None else question.type
    texts = {} if question is None else _option_texts(question, spec or {})
    answered = counts.answers.total()
    names = sorted({*texts, *counts.answers}, key=_order(kind, counts, list(texts)))
    rows = [(name, counts.answers[name]) for name in names]
    most = max((n for _, n in rows), default=0)
    evaluation = counts.evaluation
    labels = [name for name in names if any(name in pair for pair in evaluation.confusion)] if kind == "choice" else names
    few = len(labels) <= MOST_LABELS
    mistakes = sorted(((*pair, n) for pair, n in evaluation.confusion.items() if pair[0] != pair[1]), key=lambda mistake: -mistake[2])
    return QuestionView(
        number=number,
        qid=qid,
        type=kind,
        instructions="" if question is None else shown(question.instructions),
        answered=answered,
        answers=[AnswerRow(name, texts.get(name, ""), n, n / (answered or 1), n / (most or 1)) for name, n in rows[:MOST_ANSWERS]],
        more_answers=(len(rows[MOST_ANSWERS:]), sum(n for _, n in rows[MOST_ANSWERS:])),
        confidence=counts.confidence / answered if answered else 0.0,
        threshold=threshold,
        abstained=counts.abstained,
        histogram=histogram_plot(str(number), counts.histogram, threshold) if answered else None,
        evaluation=evaluation,
        reliability=reliability_plot(str(number), evaluation.bins) if evaluation.rows else None,
        matrix=(labels, [[evaluation.confusion[label, decision] for decision in labels] for label in labels])
        if evaluation.rows and few
        else None,
        confusions=[] if few else mistakes[:MOST_CONFUSIONS],
    )


def _option_texts(question: Question, spec: Mapping[str, Any]) -> dict[str, str]:
    """Each possible answer, in the question's order, with what the question says of it."""
    if question.type == "score":
        return {str(level): shown(text) for level, text in enumerate(question.labels)}
    criteria = spec.get("criteria")
    said = criteria if isinstance(criteria, Mapping) else {}
    if question.type == "choice":
        return {str(label): shown(said.get(label) or "") for label in question.labels}
    words = {str(key).lower(): value for key, value in said.items()}
    named = {str(key).lower(): value for key, value in (spec.get("labels") or {}).items()}
    return {
        answer: shown(": ".join(filter(None, (named.get(truth), str(words.get(truth) or "")))))
        for answer, truth in (("yes", "true"), ("no", "false"))
    }


def _order(kind: str, counts: QuestionTally, names: Sequence[str]) -> Any:
    """Levels from below, yes before no, labels by how common they are."""
    places = {name: place for place, name in enumerate(names)}
    if kind == "score":
        return lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
    if kind == "noul":
        return lambda name: name != "yes"
    return lambda name: (-counts.answers[name], places.get(name, len(places)), name)
