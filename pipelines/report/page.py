"""The page of a report: what its template is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from laya import __version__
from pipelines.report import words
from pipelines.report.facts import Job
from pipelines.report.plots import throughput_plot
from pipelines.report.question_views import QuestionView, view_questions
from pipelines.report.throughput import Throughput, throughput

MOST_QUESTIONS = 60
"""Questions that are shown each by itself; rows with their own may ask thousands."""
_MOST_FILES = 30
_SAID_ELSEWHERE = ("inputs", "questions", "output", "report")


def render(job: Job) -> str:
    """The page as HTML."""
    tally = job.tally
    found = throughput(job.spans)
    questions = view_questions(job.manifest.questions, tally.questions, job.manifest.config.get("min_confidence"), MOST_QUESTIONS)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            job=job,
            tally=tally,
            figures=_figures(job, found, questions),
            questions=questions,
            more_questions=max(0, len(tally.questions) - len(questions)),
            labelled=any(view.evaluation.rows for view in questions),
            gated=any(view.threshold is not None for view in questions),
            found=found,
            plots={"wide": throughput_plot("wide", found, 10.04), "narrow": throughput_plot("narrow", found, 4.6)} if found.rates else {},
            models=_shares(tally.models),
            reasons=_shares(tally.reasons),
            settings=_settings(job.manifest.config),
            inputs=job.manifest.inputs[:_MOST_FILES],
            input_bytes=sum(file.get("size") or 0 for file in job.manifest.inputs),
            more_inputs=max(0, len(job.manifest.inputs) - _MOST_FILES),
            version=__version__,
            versions=sorted({str(run["version"]) for run in job.runs if run.get("version")}),
        )
    )


@cache
def _environment() -> Environment:
    # Everything that is not Markup is escaped: labels, messages, paths and questions are the user's.
    environment = Environment(
        loader=PackageLoader("pipelines.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for filter_ in (words.shown, words.count, words.share, words.rate, words.size, words.duration, words.moment):
        environment.filters[filter_.__name__] = filter_
    environment.filters["tojson_text"] = partial(json.dumps, indent=2, ensure_ascii=False)
    return environment


def _figures(job: Job, found: Throughput, questions: Sequence[QuestionView]) -> list[tuple[str, str, str]]:
    """The numbers of the headline: each with its name, and what else to say of it."""
    tally = job.tally
    errors = tally.errors.total()
    figures = [
        ("rows", words.short(tally.rows), f"of {job.manifest.rows:,}" if not job.complete else f"in {len(job.spans):,} parts"),
        ("errors", words.short(errors), words.share(errors, tally.rows) + " of rows"),
        ("rows a second", words.rate(found.mean), f"over {words.duration(found.seconds)}"),
    ]
    rated = [view for view in questions if view.evaluation.rows]
    if rated:
        right, rows = sum(view.evaluation.right for view in rated), sum(view.evaluation.rows for view in rated)
        figures.append(("accuracy", words.share(right, rows), f"{rows:,} labelled answers"))
    if any(view.threshold is not None for view in questions):
        unsure = sum(counts.abstained for counts in tally.questions.values())
        answers = sum(counts.answers.total() for counts in tally.questions.values())
        figures.append(("unsure", words.share(unsure, answers), f"{unsure:,} answers"))
    pace = f"{words.rate(tally.tokens / found.seconds)} a second" if found.seconds else ""
    figures.append(("tokens read", words.short(tally.tokens), pace))
    return figures


def _shares(counted: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """Names with their counts and shares, the commonest first."""
    total = sum(counted.values())
    return [(name, rows, rows / total) for name, rows in sorted(counted.items(), key=lambda pair: -pair[1])]


def _settings(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields of a config that say something."""
    return [(name, _told(value)) for name, value in config.items() if name not in _SAID_ELSEWHERE and value not in (None, [], {}, False)]


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {part}" for name, part in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)
