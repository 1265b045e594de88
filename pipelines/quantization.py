"""What a checkpoint's answers lose when its network is stored in 8 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laya.questions import Question
from laya.runtime import AgentRuntime
from pipelines.errors import InputError, RecordError
from pipelines.evaluation import decided
from pipelines.plan import check_labels
from pipelines.question_files import load_questions
from pipelines.sources import (
    check_state_columns,
    default_state_columns,
    find_inputs,
    read,
    state_of,
    survey,
)
from pipelines.tally import Tally

BUNDLED_TEXTS = "tickets"
"""The data set that ships with the package: 240 labelled messages."""
_BUNDLED_STATE = ("subject", "text")
_BUNDLED_LABELS = {"department": "true_department", "urgency": "true_urgency", "leaving": "true_leaving"}


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """What two agents are compared on.

    Attributes:
        asked: The questions as the user wrote them.
        questions: The same, validated.
        states: The states.
        truths: For each state: question id to its right answer, where there are labels.
    """

    asked: Mapping[Any, Any]
    questions: tuple[Question, ...]
    states: list[Any]
    truths: list[Mapping[str, Any]]


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
    changed: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)


def read_labelled_texts(
    texts: Sequence[str],
    questions: str = BUNDLED_TEXTS,
    state: tuple[str, ...] | None = None,
    labels: Mapping[str, str] | None = None,
) -> LabelledTexts:
    """Reads what agents are to be compared on. Rows that cannot be read tell nothing of them and are passed over.

    Args:
        texts: Files, folders and globs of JSONL, CSV and Parquet; none takes the bundled messages and their labels.
        questions: Path of a question file, or the name of one that ships with the package.
        state: Columns that the questions are about; None finds the usual one.
        labels: Question id to the column that holds its right answer.

    Raises:
        InputError: Something is wrong with the input, or none of its rows can be read; one line names it and the mend.
    """
    asked, parsed = load_questions(questions)
    if not texts:
        texts, state = [str(resources.files("configs") / "datasets" / f"{BUNDLED_TEXTS}.jsonl")], _BUNDLED_STATE
        labels = {qid: column for qid, column in _BUNDLED_LABELS.items() if qid in asked}
    files = find_inputs(texts)
    surveyed = survey(files)
    names = surveyed.columns.names
    columns = state or default_state_columns(names)
    check_state_columns(columns, names)
    check_labels(labels or {}, parsed, names)
    found = LabelledTexts(asked, parsed, [], [])
    for record in (record for fragment in surveyed.fragments for record in read(fragment)):
        try:
            found.states.append(state_of(record, columns))
        except RecordError:
            continue
        found.truths.append({qid: record.columns.get(column) for qid, column in (labels or {}).items()})
    if not found.states:
        raise InputError(f"{', '.join(texts)}: no row can be read, so there is nothing to measure on")
    return found


def measure_cost(before: AgentRuntime, after: AgentRuntime, texts: LabelledTexts) -> QuantizationCost:
    """Asks two agents the same and compares.

    Args:
        before: The agent in full precision.
        after: The quantized agent.
        texts: What they are asked.
    """
    cost = QuantizationCost()
    results = (agent.predict_batch(texts.states, texts.asked) for agent in (before, after))
    for truths, old, new in zip(texts.truths, *results, strict=True):
        for tally, result in ((cost.before, old), (cost.after, new)):
            tally.add_result(result, texts.questions, truths)
        for question in texts.questions:
            qid = str(question.qid)
            first, second = old["answers"][question.qid], new["answers"][question.qid]
            cost.changed[qid] += decided(first) != decided(second)
            shift = max(abs(x - y) for x, y in zip(_shares(first), _shares(second), strict=True))
            cost.largest[qid] = max(cost.largest.get(qid, 0.0), shift)
    return cost


def _shares(answer: Mapping[str, Any]) -> list[float]:
    return [answer["noul"]] if answer["type"] == "noul" else list(answer["probabilities"].values())


def print_cost(cost: QuantizationCost, questions: Sequence[Question], console: Console) -> None:
    """Prints a comparison as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("question", "accuracy float32", "int8", "decisions changed", "largest shift"):
        table.add_column(name)
    for question in questions:
        qid = str(question.qid)
        before, after = cost.before.questions[qid], cost.after.questions[qid]
        accuracies = [f"{found.accuracy:.3f}" if found.rows else "no labels" for found in (before.evaluation, after.evaluation)]
        table.add_row(*map(Text, (qid, *accuracies, f"{cost.changed[qid]} of {cost.before.rows}", f"{cost.largest[qid]:.4f}")))
    console.print(f"What int8 costs on {cost.before.rows} texts; the largest shift is that of a probability:", highlight=False)
    console.print(table)
