"""What a checkpoint's answers lose when its network is stored in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laya.questions import Question
from laya.runtime import AgentRuntime
from pipelines.question_files import load_questions
from pipelines.report import Tally, decided
from pipelines.sources import Record, RecordError, cut, default_state_columns, find_inputs, read, read_columns, state_of

BUNDLED_TEXTS = "tickets"
"""The data set that ships with the package: 240 labelled messages."""
_BUNDLED_STATE = ("subject", "text")
_BUNDLED_LABELS = {"department": "true_department", "urgency": "true_urgency", "leaving": "true_leaving"}
_CHUNK_ROWS = 64


@dataclass(slots=True)
class QuantizationCost:
    """Answers of two agents to the same questions.

    Attributes:
        before: Counts of the agent in full precision, against the labels where there are any.
        after: Counts of the quantized one.
        changed: Question id to the rows whose decision is another.
        largest: Question id to the largest change of a probability.
    """

    before: Tally = field(default_factory=Tally)
    after: Tally = field(default_factory=Tally)
    changed: dict[str, int] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)


def measure_cost(
    before: AgentRuntime,
    after: AgentRuntime,
    texts: Sequence[str],
    questions: str = BUNDLED_TEXTS,
    state: tuple[str, ...] | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[QuantizationCost, tuple[Question, ...]]:
    """Asks two agents the same and compares.

    Args:
        before: The agent in full precision.
        after: The quantized agent.
        texts: Files, folders and globs of JSONL, CSV and Parquet; none takes the bundled messages and their labels.
        questions: Path of a question file, or the name of one that ships with the package.
        state: Columns that the questions are about; None finds the usual one.
        labels: Question id to the column that holds its right answer.

    Returns:
        The comparison, and the questions that were asked.

    Raises:
        pipelines.inputs.InputError: Something is wrong with the input; one line names it and the mend.
    """
    asked, parsed = load_questions(questions)
    if not texts:
        texts, state, labels = [str(resources.files("configs") / "datasets" / "tickets.jsonl")], _BUNDLED_STATE, _BUNDLED_LABELS
    files = find_inputs(texts)
    columns = state or default_state_columns(read_columns(files).names)
    cost = QuantizationCost()
    records = (record for fragment in cut(files) for record in read(fragment))
    for chunk in _chunks(records, columns):
        states = [value for value, _ in chunk]
        pairs = zip(before.predict_batch(states, asked), after.predict_batch(states, asked), strict=True)
        for (_, record), (old, new) in zip(chunk, pairs, strict=True):
            truths = {qid: record.columns.get(column) for qid, column in (labels or {}).items()}
            for tally, result in ((cost.before, old), (cost.after, new)):
                tally.add_result({**result, "routing": {"model": ""}}, parsed, truths)
            for question in parsed:
                qid = str(question.qid)
                first, second = old["answers"][question.qid], new["answers"][question.qid]
                cost.changed[qid] = cost.changed.get(qid, 0) + (decided(first) != decided(second))
                change = max(abs(x - y) for x, y in zip(_shares(first), _shares(second), strict=True))
                cost.largest[qid] = max(cost.largest.get(qid, 0.0), change)
    return cost, parsed


def _chunks(records: Iterator[Record], columns: tuple[str, ...]) -> Iterator[list[tuple[Any, Record]]]:
    while chunk := list(islice(records, _CHUNK_ROWS)):
        usable = []
        for record in chunk:
            try:
                usable.append((state_of(record, columns), record))
            except RecordError:
                continue  # what nobody can answer tells nothing of the two agents
        if usable:
            yield usable


def _shares(answer: Mapping[str, Any]) -> list[float]:
    return [answer["noul"]] if answer["type"] == "noul" else list(answer["probabilities"].values())


def print_cost(cost: QuantizationCost, questions: Sequence[Question], console: Console) -> None:
    """Prints a comparison as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("question", "texts", "accuracy before", "accuracy after", "decisions changed", "largest change of a probability"):
        table.add_column(name, overflow="fold")
    for question in questions:
        qid = str(question.qid)
        before, after = cost.before.questions.get(qid), cost.after.questions.get(qid)
        if before is None or after is None:
            continue
        accuracies = [f"{tally.right / tally.labelled:.3f}" if tally.labelled else "-" for tally in (before, after)]
        table.add_row(*map(Text, (qid, str(cost.before.rows), *accuracies, str(cost.changed[qid]), f"{cost.largest[qid]:.4f}")))
    console.print(table)
