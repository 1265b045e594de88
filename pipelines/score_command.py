"""`laya score` and `laya report`: flags that override the fields of a configuration file."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from pipelines.config import ScoreConfig, load_config
from pipelines.flags import by_question, listed

EXIT_INTERRUPTED = 130

Command = Callable[..., Any]


def _flag(field: str, *names: str, **options: Any) -> Callable[[Command], Command]:
    """An option that sets a field of `ScoreConfig`, whose description is its help; not given, it leaves the field alone."""
    described = ScoreConfig.model_fields[field]
    default = described.get_default(call_default_factory=True)
    shown = f" [default: {default}]" if isinstance(default, str | int) and not isinstance(default, bool) else ""
    return click.option(f"--{field.replace('_', '-')}", *names, field, default=None, help=f"{described.description}{shown}", **options)


def _columns(_: click.Context, __: click.Parameter, names: str | None) -> tuple[str, ...] | None:
    return listed(names)


def _labels(_: click.Context, __: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str] | None:
    return by_question("--labels", pairs, "COLUMN") or None


def _min_confidence(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> float | dict[str, float] | None:
    if not given:
        return None
    try:
        if len(given) == 1 and "=" not in given[0]:
            return float(given[0])
        return {question: float(value) for question, value in by_question("--min-confidence", given, "NUMBER").items()}
    except ValueError:
        raise click.UsageError(f"--min-confidence {' '.join(given)}: write a number from 0 to 1, or QUESTION=NUMBER") from None


def _repeated(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...] | None:
    return given or None


_FLAGS = (
    _flag("questions", "-q", metavar="FILE"),
    _flag("questions_column", metavar="COLUMN"),
    _flag("output", "-o", metavar="DIR"),
    _flag("format", type=click.Choice(["parquet", "jsonl"])),
    _flag("state", "-s", metavar="COLUMN[,COLUMN]", callback=_columns),
    _flag("state_json", is_flag=True),
    _flag("columns", metavar="COLUMN[,COLUMN]", callback=_columns),
    _flag("model", "-m", metavar="NAME"),
    _flag("model_column", metavar="COLUMN"),
    _flag("lang", metavar="CODE"),
    _flag("lang_column", metavar="COLUMN"),
    _flag("max_len", type=click.IntRange(1), metavar="TOKENS"),
    _flag("max_len_column", metavar="COLUMN"),
    _flag("head_max_len", type=click.IntRange(1), metavar="TOKENS"),
    _flag("calibration", metavar="FILE"),
    _flag("long", type=click.Choice(["truncate", "scan"])),
    _flag("window", type=click.IntRange(1), metavar="TOKENS"),
    _flag("stride", type=click.IntRange(1), metavar="TOKENS"),
    _flag("hooks", multiple=True, metavar="PATH", callback=_repeated),
    _flag("agent_hooks", multiple=True, metavar="PATH", callback=_repeated),
    _flag("min_confidence", multiple=True, metavar="[QUESTION=]NUMBER", callback=_min_confidence),
    _flag("abstain_output", metavar="DIR"),
    _flag("labels", multiple=True, metavar="QUESTION=COLUMN", callback=_labels),
    _flag("on_error", type=click.Choice(["row", "raise"])),
    _flag("agents", type=click.IntRange(1)),
    _flag("agent_cpus", type=click.FloatRange(0, min_open=True)),
    _flag("rows_per_fragment", type=click.IntRange(1)),
    _flag("address", metavar="ADDRESS"),
)


def _with_flags(command: Command) -> Command:
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--config", "-c", metavar="FILE", help="YAML file of a job; flags override its fields, which have their names.")
@_with_flags
@click.option("--no-report", is_flag=True, help="Write no OUTPUT.report.html.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and how long it might take; write nothing.")
@click.option("--quiet", is_flag=True, help="Show no progress, only the summary.")
def score(inputs: tuple[str, ...], config: str | None, no_report: bool, dry_run: bool, quiet: bool, **flags: Any) -> None:
    """Answer questions about every row of Parquet, JSONL, CSV and text files.

    INPUT is a file, a folder or a glob, here or on s3:// or gs://. The output holds the input's columns, typed columns for each question,
    and a column `laya` that says how a row was answered, or why it could not be. A run that was stopped goes on where it was when the same
    command is given again.

    \b
    laya score mails/*.csv -q tickets -s subject,body -o out --agents 2
    laya score tickets.jsonl -q my-questions.yaml -o out --labels team=true_team
    laya score s3://bucket/mails/ -q tickets -o s3://bucket/answers --dry-run
    laya score --config job.yaml --agents 4
    """
    from rich.console import Console

    given = {name: value for name, value in flags.items() if value is not None}
    if inputs:
        given["inputs"] = inputs
    if no_report:
        given["report"] = False
    if config is None and not inputs:
        raise click.UsageError("no input: give a file, a folder or a glob, or --config FILE")
    job = load_config(config, given)
    if dry_run:
        from pipelines.dry_run import foresee, print_forecast

        print_forecast(foresee(job), Console())
        return
    _run(job, quiet)


def _run(job: ScoreConfig, quiet: bool) -> None:
    from rich.console import Console

    from pipelines.score import score as run
    from pipelines.storage import list_folder
    from pipelines.summary import print_summary

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end is like Ctrl-C
    try:
        summary = run(job, None if quiet else Console(stderr=True))
    except KeyboardInterrupt:
        done = bool(list_folder(job.output))
        kept = f"what was committed stays in {job.output}, and the same command goes on from there" if done else "nothing was committed yet"
        click.echo(f"\nstopped; {kept}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    print_summary(summary, Console())


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("output", metavar="DIR")
def report(output: str) -> None:
    """Write DIR.report.html: what a job did, from the notes in its output folder, also while it runs.

    The page stands for itself: it opens without a network.

    \b
    laya report out
    """
    from pipelines.report import write_report

    click.echo(write_report(output))
