"""The summary of a finished job, as it is returned and printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laya.questions import Question
from pipelines.tally import QuestionTally, Tally


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
        questions: The questions that all rows share; none where each row has its own.
        abstain_output: Folder of the rows put aside for review, if there is one.
        report: Location of the report, if one was written.
    """

    tally: Tally
    resumed_rows: int
    seconds: float
    scoring_seconds: float
    output: str
    parts: int
    questions: tuple[Question, ...] = ()
    abstain_output: str | None = None
    report: str | None = None


def print_summary(summary: Summary, console: Console) -> None:
    """Prints what a job did."""
    # Labels, ids and paths are the user's: no bracket in them is a style.
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    tally = summary.tally
    fresh = tally.rows - summary.resumed_rows
    share = fresh / tally.rows if tally.rows else 0.0
    say(f"rows        {tally.rows:,}" + (f" ({summary.resumed_rows:,} from an earlier run)" if summary.resumed_rows else ""))
    if tally.repeats:
        say(f"repeats     {tally.repeats:,} rows ask the same as another one near them, and share its answer")
    say(f"errors      {tally.errors.total():,}" + "".join(f"  {name}: {count:,}" for name, count in tally.errors.most_common()))
    for examples in tally.examples.values():
        say(f"            e.g. {examples[0]}")
    say(f"truncated   {tally.truncated:,}")
    if tally.scanned:
        say(f"windows     {tally.windows:,} of {tally.scanned:,} rows that were read window by window")
    say(f"time        {summary.seconds:.1f} s, of which scoring {summary.scoring_seconds:.1f} s")
    if fresh and summary.scoring_seconds:
        rates = fresh / summary.scoring_seconds, tally.tokens * share / summary.scoring_seconds
        say(f"speed       {rates[0]:,.0f} rows/s, {rates[1]:,.0f} tokens/s")
    say("models      " + ", ".join(f"{name}: {count:,}" for name, count in tally.models.most_common()))
    console.print(_answers_table(tally, summary.questions))
    say(f"output      {summary.output} ({summary.parts} part file{'s' if summary.parts != 1 else ''})")
    if summary.abstain_output is not None:
        say(f"review      {summary.abstain_output} (copies of the rows with an unsure answer)")
    if summary.report is not None:
        say(f"report      {summary.report}")


def _answers_table(tally: Tally, questions: Sequence[Question]) -> Table:
    qids = [str(question.qid) for question in questions] or list(tally.questions)
    counted = {qid: tally.questions.get(qid, QuestionTally()) for qid in qids}
    labelled = any(counts.evaluation.rows or counts.evaluation.unusable for counts in counted.values())
    gated = any(counts.abstained for counts in counted.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ["question", "answers", "mean confidence", *(["unsure"] if gated else []), *(["against labels"] if labelled else [])]
    for name in names:
        table.add_column(name, overflow="fold")
    for qid, counts in counted.items():
        answered = counts.answers.total()
        order = sorted(counts.answers.items()) if counts.type == "score" else counts.answers.most_common()
        answers = "\n".join(f"{name}: {count:,}" for name, count in order)
        row = [qid, answers or "none", f"{counts.confidence / answered:.2f}" if answered else "-"]
        row += [f"{counts.abstained:,}"] if gated else []
        row += [_against_labels(counts)] if labelled else []
        table.add_row(*map(Text, row))
    return table


def _against_labels(counts: QuestionTally) -> str:
    found = counts.evaluation
    lines = []
    if found.rows:
        lines = [
            f"accuracy {found.accuracy:.3f} of {found.rows:,}",
            f"commonest label {found.baseline / found.rows:.3f}",
            f"Brier score {found.mean_brier:.3f}",
            f"calibration error {found.calibration_error:.3f}",
        ]
        if counts.type == "score":
            lines.append(f"mean error {found.level_error / found.rows:.2f} levels")
    if found.unusable:
        lines.append(f"{found.unusable:,} labels are no answer, e.g. {found.unusable_example!r}")
    return "\n".join(lines) or "-"
