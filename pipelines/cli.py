"""The `laya` command. Heavy imports stay inside the commands, so that --help answers at once."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.config import AUTO, DEFAULT_MODEL
from pipelines.errors import InputError
from pipelines.flags import by_question, listed
from pipelines.question_files import load_questions
from pipelines.score_command import EXIT_INTERRUPTED, report, score
from pipelines.texts import read_texts

if TYPE_CHECKING:
    from laya.questions import Question
    from laya.router import Router

EXIT_BAD_INPUT = 2

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_QUESTIONS_HELP = "YAML or JSON file of question id to question, or the name of a bundled one (tickets, packages)."
_MODEL_HELP = "Checkpoint: mini, english, multilingual, typed-decisions, a folder, a hub id, or 'auto' to choose by language."


@click.group(context_settings=_HELP)
@click.version_option(package_name="laya", message="%(prog)s %(version)s")
def cli() -> None:
    """Typed decisions: calibrated answers to typed questions about texts.

    \b
    laya score tickets.jsonl --questions tickets --output out    score files
    laya report out                                              a page about what that did
    laya predict "Where is my parcel?" --questions tickets       ask about one text
    laya route "Wo ist mein Paket?"                              which checkpoint would answer
    laya export-onnx --model mini --output mini.onnx             the network for onnxruntime, without torch
    laya status                                                  what the routers of a running Ray do
    """


cli.add_command(score)
cli.add_command(report)


@cli.command(context_settings=_HELP)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--questions", "-q", required=True, metavar="FILE", help=_QUESTIONS_HELP)
@click.option("--model", "-m", default=DEFAULT_MODEL, show_default=True, metavar="NAME", help=_MODEL_HELP)
@click.option("--batch", metavar="FILE", help="One text a line, blank lines left out; '-' reads standard input.")
@click.option("--long", "scan", is_flag=True, help="Read texts of any length, window by window.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a text and line.")
def predict(texts: tuple[str, ...], questions: str, model: str, batch: str | None, scan: bool, as_json: bool) -> None:
    """Answer questions about texts, in this process.

    \b
    laya predict "I was charged twice!" -q tickets
    laya predict -q tickets --batch mails.txt --json
    """
    asked, parsed = load_questions(questions)
    states = [*texts, *read_texts(batch)] if batch else list(texts)
    if not states:
        raise click.UsageError("no text: give one, or --batch FILE ('-' for standard input)")
    router, chosen = _router(model)
    if scan:
        results = [router.predict_long(state, asked, model=chosen) for state in states]
    else:
        results = router.predict_batch([{"state": state, "questions": asked, "model": chosen} for state in states])
    for state, result in zip(states, results, strict=True):
        click.echo(json.dumps(result, ensure_ascii=False).encode() if as_json else _told(state, parsed, result))


@cli.command(context_settings=_HELP, short_help="Say which checkpoint would answer, and why.")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--questions", "-q", metavar="FILE", help=_QUESTIONS_HELP)
@click.option("--model", "-m", default=AUTO, show_default=True, metavar="NAME", help="A checkpoint that is asked for.")
@click.option("--lang", metavar="CODE", help="Language of the texts, such as en, de or pt-BR.")
@click.option("--default", "fallback", default="english", show_default=True, help="Checkpoint where the language cannot be told.")
@click.option("--batch", metavar="FILE", help="One text a line, blank lines left out; '-' reads standard input.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a text and line.")
def route(
    texts: tuple[str, ...], questions: str | None, model: str, lang: str | None, fallback: str, batch: str | None, as_json: bool
) -> None:
    """Say which checkpoint would answer, and why; nothing is loaded.

    \b
    laya route "Wo ist mein Paket?"
    """
    from laya.router import Router

    asked = load_questions(questions)[0] if questions else None
    states = [*texts, *read_texts(batch)] if batch else list(texts)
    if not states:
        raise click.UsageError("no text: give one, or --batch FILE ('-' for standard input)")
    try:
        router = Router(default=fallback)
        decisions = [router.route(state, asked, model=None if model == AUTO else model, lang=lang) for state in states]
    except ValueError as error:
        raise InputError(str(error)) from None
    for decision in decisions:
        click.echo(json.dumps(decision, ensure_ascii=False).encode() if as_json else f"{decision.model}: {decision.reason}")


@cli.command("export-onnx", context_settings=_HELP, short_help="Write a checkpoint's network for onnxruntime.")
@click.option("--model", "-m", required=True, metavar="NAME", help="Checkpoint: mini, english, ..., a folder or a hub id.")
@click.option("--output", "-o", required=True, metavar="FILE", help="The file to write, usually NAME.onnx.")
@click.option("--int8", is_flag=True, help="Store weights in 8 bits: a smaller file. What that costs in accuracy is measured and printed.")
@click.option("--texts", multiple=True, metavar="INPUT", help="With --int8: JSONL, CSV or Parquet to measure on. Default: bundled tickets.")
@click.option(
    "--questions", "-q", default="tickets", show_default=True, metavar="FILE", help="With --int8: what to ask. " + _QUESTIONS_HELP
)
@click.option("--state", "-s", metavar="COLUMN[,COLUMN]", help="With --texts: as in `laya score`.")
@click.option("--labels", multiple=True, metavar="QUESTION=COLUMN", help="With --texts: column with a question's right answers.")
def export_onnx(
    model: str, output: str, int8: bool, texts: tuple[str, ...], questions: str, state: str | None, labels: tuple[str, ...]
) -> None:
    """Write a checkpoint's network as an ONNX file, for laya.ONNXAgent.

    The file is compared with torch before it is put in its place. An ONNXAgent needs the checkpoint too, for tokenizer and budgets,
    but neither its weights nor torch: laya.ONNXAgent("mini", "mini.onnx").

    \b
    laya export-onnx --model mini --output mini.onnx
    laya export-onnx --model mini --output mini-int8.onnx --int8
    laya export-onnx -m mini -o mini-int8.onnx --int8 --texts my.jsonl -q my-questions.yaml --labels team=true_team
    """
    from rich.console import Console

    from laya.agent import Agent
    from laya.onnx_agent import ONNXAgent
    from laya.onnx_export import export_onnx as export
    from pipelines.quantization import measure_cost, print_cost, read_labelled_texts

    if not int8 and (texts or state or labels):
        raise click.UsageError("--texts, --state and --labels say what --int8 is measured on: add --int8")
    if not texts and (state or labels):
        raise click.UsageError("--state and --labels describe --texts: add --texts INPUT")
    sample = read_labelled_texts(texts, questions, listed(state), by_question("--labels", labels, "COLUMN")) if int8 else None
    written = export(model, output, int8)
    told = "" if int8 else f"; largest difference of a logit from torch {written.difference:.1g}"
    click.echo(f"{written.path}: {written.size / 1e6:.1f} MB, {written.precision}{told}")
    if sample is not None:
        click.echo(f"measuring what 8 bits cost on {len(sample.states)} texts ...", err=True)
        print_cost(measure_cost(Agent(model), ONNXAgent(model, output), sample), sample.questions, Console())


@cli.command(context_settings=_HELP, short_help="Show what the routers of a running Ray do.")
@click.option(
    "--address", metavar="ADDRESS", help="Ray cluster to look at, HOST:PORT. Default: what RAY_ADDRESS names, or one on this machine."
)
@click.option("--router", metavar="NAME", help="Show only the router of this name.")
@click.option("--interval", default=1.0, show_default=True, type=click.FloatRange(0.1), metavar="SECONDS", help="Time between two looks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, once.")
def status(address: str | None, router: str | None, interval: float, as_json: bool) -> None:
    """Show what the routers of a running Ray do: nodes, checkpoints, and each replica with its load and memory.

    On a terminal the tables are drawn anew until Ctrl-C; elsewhere they are printed once. Queue counts rows that wait in a replica,
    waiting are requests that no replica has taken yet. Below 96 columns pids and each replica's weights are left out.

    \b
    laya status
    laya status --address 10.0.0.5:6379 --json
    """
    from rich.console import Console

    from pipelines.status import show_status

    show_status(address, router, as_json, interval, Console())


@cli.group(context_settings=_HELP)
def dataset() -> None:
    """Build data sets from what is on this machine."""


@dataset.command("installed-packages", context_settings=_HELP)
@click.option("--output", "-o", required=True, metavar="FILE", help="JSONL file to write.")
def installed_packages(output: str) -> None:
    """One row for each Python distribution installed here, with labels from its trove classifiers.

    Score it with `laya score FILE -q packages -s name,summary,description -o DIR`.
    """
    from pipelines.packages import write_installed_packages

    try:
        counts = write_installed_packages(Path(output))
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written ({error.strerror or error})") from None
    click.echo(f"{counts.rows} rows written to {output}")


def _router(model: str) -> tuple[Router, str | None]:
    """A Router of this process for a --model, and the name to ask it for (None chooses by language)."""
    from laya.router import Router
    from pipelines.model_names import registered

    return Router(models=registered(model)), None if model == AUTO else model


def _told(state: str, questions: Sequence[Question], result: dict[str, Any]) -> str:
    rows = [(str(question.qid), *_value(question, result["answers"][question.qid])) for question in questions]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {qid:<{widths[0]}}  {value:<{widths[1]}}  {told}" for qid, value, told in rows]
    return "\n".join([f"{state[:100]!r}", *lines])


def _value(question: Question, answer: dict[str, Any]) -> tuple[str, str]:
    """An answer in words, and how sure it is."""
    told = f"confidence {answer['answer_confidence']:.2f}"
    if question.type == "score":
        # The expected level lies between levels, so the one that it is nearest to says what it means.
        level = question.labels[round(answer["score"])]
        return f"{answer['score']:.2f} of 0 to {question.n - 1}", f"{told}, nearest to {' '.join(str(level).split())!r}"
    if question.type == "noul":
        return "yes" if answer["noul"] >= 0.5 else "no", f"{told}, probability of yes {answer['noul']:.2f}"
    return str(answer["choice"]), told


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command. Wrong input ends in one line on standard error and exit code 2."""
    from laya.files import CheckpointError

    # A warning is for whoever calls the library; on a terminal its text is enough.
    warnings.showwarning = lambda message, *_, **__: click.echo(f"laya: {message}", err=True)
    try:
        cli.main(arguments, prog_name="laya", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(EXIT_BAD_INPUT)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "laya"
        _fail(f"{command}: {error.format_message()} (see {command} --help)")
    except click.ClickException as error:
        _fail(f"laya: {error.format_message()}")
    except (InputError, CheckpointError) as error:
        _fail(f"laya: {error}")
    except (KeyboardInterrupt, click.Abort):  # before RuntimeError, which an Abort is
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)  # whoever was reading has gone
    except OSError as error:
        _fail(f"laya: {error}")
    except RuntimeError as error:
        from cluster import AgentDiedError, AgentLostError, NoRoomError
        from laya.onnx_export import ExportError

        if isinstance(error, ExportError):
            _fail(f"laya: {error}")
        if not isinstance(error, AgentDiedError | AgentLostError | NoRoomError):
            raise
        click.echo(f"laya: {error}; what was committed stays, and the same command goes on from there", err=True)
        sys.exit(1)


def _fail(message: str) -> None:
    click.echo(" ".join(message.split()), err=True)
    sys.exit(EXIT_BAD_INPUT)
