"""What a job did: counts that add up over its parts, and the summary that is printed at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laya.questions import Question

_YES = frozenset({"true", "yes", "1"})
_NO = frozenset({"false", "no", "0"})


@dataclass(slots=True)
class QuestionTally:
    """Counts of one question's answers.

    Attributes:
        answers: Decision to count: a choice's labels, a score's nearest levels, "yes" and "no" of a noul.
        confidence: Sum of answer_confidence.
        truths: Usable labels to how many rows have them.
        right: Rows of those whose decision is the label.
        level_error: Sum of |score - label| over labelled rows, for a score.
    """

    answers: Counter[str] = field(default_factory=Counter)
    confidence: float = 0.0
    truths: Counter[str] = field(default_factory=Counter)
    right: int = 0
    level_error: float = 0.0

    @property
    def labelled(self) -> int:
        """Rows that had a usable label."""
        return self.truths.total()


@dataclass(slots=True)
class Tally:
    """Counts over rows. Parts carry theirs, so a resumed job adds up what earlier runs have done."""

    rows: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    truncated: int = 0
    tokens: int = 0
    models: Counter[str] = field(default_factory=Counter)
    questions: dict[str, QuestionTally] = field(default_factory=dict)

    def add_error(self, error: BaseException) -> None:
        """Counts a row that could not be answered."""
        self.rows += 1
        self.errors[type(error).__name__] += 1

    def add_result(self, result: Mapping[str, Any], questions: Sequence[Question], truths: Mapping[str, Any]) -> None:
        """Counts an answered row.

        Args:
            result: A result, of a Router or of an agent.
            questions: The questions of the job.
            truths: Question id (as text) to what the row's label column holds, where there is one.
        """
        self.rows += 1
        usage = result.get("usage") or {}
        self.truncated += bool(usage.get("truncated"))
        self.tokens += usage.get("input_tokens", 0)
        if "routing" in result:
            self.models[str(result["routing"]["model"])] += 1
        for question in questions:
            qid = str(question.qid)
            tally = self.questions.setdefault(qid, QuestionTally())
            answer = result["answers"][question.qid]
            decision = decided(answer)
            tally.answers[decision] += 1
            tally.confidence += answer["answer_confidence"]
            truth = label_text(question, truths.get(qid))
            if truth is not None:
                tally.truths[truth] += 1
                tally.right += decision == truth
                if question.type == "score":
                    tally.level_error += abs(answer["score"] - int(truth))

    def to_json(self) -> str:
        """The counts as JSON."""
        questions = {
            qid: {
                "answers": tally.answers,
                "confidence": tally.confidence,
                "truths": tally.truths,
                "right": tally.right,
                "level_error": tally.level_error,
            }
            for qid, tally in self.questions.items()
        }
        counts = {"rows": self.rows, "errors": self.errors, "truncated": self.truncated, "tokens": self.tokens, "models": self.models}
        return json.dumps({**counts, "questions": questions})

    @classmethod
    def total(cls, parts: Iterable[str]) -> Tally:
        """Adds up counts written by `to_json`."""
        total = cls()
        for part in map(json.loads, parts):
            total.rows += part["rows"]
            total.errors.update(part["errors"])
            total.truncated += part["truncated"]
            total.tokens += part["tokens"]
            total.models.update(part["models"])
            for qid, counts in part["questions"].items():
                tally = total.questions.setdefault(qid, QuestionTally())
                tally.answers.update(counts["answers"])
                tally.confidence += counts["confidence"]
                tally.truths.update(counts["truths"])
                tally.right += counts["right"]
                tally.level_error += counts["level_error"]
        return total


def decided(answer: Mapping[str, Any]) -> str:
    """The decision of an answer as text: a label, the nearest level, "yes" or "no"."""
    if answer["type"] == "choice":
        return str(answer["choice"])
    if answer["type"] == "score":
        return str(round(answer["score"]))
    return "yes" if answer["noul"] >= 0.5 else "no"


def label_text(question: Question, truth: Any) -> str | None:
    """A row's label in the words of `decided`; None where it is missing or is none of the question's answers."""
    if truth is None or truth == "":
        return None
    if question.type == "choice":
        return str(truth) if str(truth) in map(str, question.labels) else None
    if question.type == "score":
        try:
            level = float(truth)
        except (TypeError, ValueError):
            return None
        return str(int(level)) if level.is_integer() and 0 <= level < question.n else None
    said = str(truth).strip().lower()
    return "yes" if said in _YES else "no" if said in _NO else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished job.

    Attributes:
        tally: Counts over all parts, also those of earlier runs.
        resumed_rows: Rows that earlier runs had committed.
        seconds: What this run took.
        scoring_seconds: What it took once its agents were ready.
        output: The folder.
        parts: Number of part files.
        questions: The questions that were asked.
    """

    tally: Tally
    resumed_rows: int
    seconds: float
    scoring_seconds: float
    output: str
    parts: int
    questions: tuple[Question, ...] = ()


def print_summary(summary: Summary, questions: Sequence[Question], console: Console) -> None:
    """Prints what a job did."""
    # Labels, ids and paths are the user's: no bracket in them is a style.
    say = partial(console.print, markup=False, highlight=False)
    tally = summary.tally
    fresh = tally.rows - summary.resumed_rows
    share = fresh / tally.rows if tally.rows else 0.0
    say(f"rows        {tally.rows:,}" + (f" ({summary.resumed_rows:,} from an earlier run)" if summary.resumed_rows else ""))
    say(f"errors      {tally.errors.total():,}" + "".join(f"  {name}: {count:,}" for name, count in tally.errors.most_common()))
    say(f"truncated   {tally.truncated:,}")
    say(f"time        {summary.seconds:.1f} s, of which scoring {summary.scoring_seconds:.1f} s")
    if fresh and summary.scoring_seconds:
        rates = fresh / summary.scoring_seconds, tally.tokens * share / summary.scoring_seconds
        say(f"speed       {rates[0]:,.0f} rows/s, {rates[1]:,.0f} tokens/s")
    say("models      " + ", ".join(f"{name}: {count:,}" for name, count in tally.models.most_common()))
    say(_answers_table(tally, questions))
    say(f"output      {summary.output} ({summary.parts} part file{'s' if summary.parts != 1 else ''})", soft_wrap=True)


def _answers_table(tally: Tally, questions: Sequence[Question]) -> Table:
    labelled = any(counts.labelled for counts in tally.questions.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("question", "answers", "mean confidence", *(("against labels",) if labelled else ())):
        table.add_column(name, overflow="fold")
    for question in questions:
        counts = tally.questions.get(str(question.qid), QuestionTally())
        answered = counts.answers.total()
        order = sorted(counts.answers.items()) if question.type == "score" else counts.answers.most_common()
        answers = "\n".join(f"{name}: {count:,}" for name, count in order)
        row = [str(question.qid), answers or "none", f"{counts.confidence / answered:.2f}" if answered else "-"]
        if labelled:
            row.append(_against_labels(question, counts))
        table.add_row(*map(Text, row))
    return table


def _against_labels(question: Question, counts: QuestionTally) -> str:
    if not counts.labelled:
        return "-"
    lines = [f"accuracy {counts.right / counts.labelled:.3f} of {counts.labelled:,}"]
    lines.append(f"commonest label {counts.truths.most_common(1)[0][1] / counts.labelled:.3f}")
    if question.type == "score":
        lines.append(f"mean error {counts.level_error / counts.labelled:.2f} levels")
    return "\n".join(lines)
