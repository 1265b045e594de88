"""The output folder of a job: held while it is written to, and added up at the end."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import laya
from pipelines.errors import InputError
from pipelines.plan import ScorePlan
from pipelines.sinks import Manifest, input_facts, locked, part_notes, remove_unfinished, run_location, write_manifest, write_part
from pipelines.storage import write_bytes
from pipelines.summary import Summary
from pipelines.tally import Tally


@contextmanager
def opened(plan: ScorePlan) -> Iterator[ScorePlan]:
    """Holds a job's folders for the parts of a block: the manifest first, so that a run that stops can be told from another.

    Yields:
        The plan as it is now: since it was made, another run may have been there.

    Raises:
        InputError: A folder cannot be written to, another run writes to it now, or it holds another job's output.
    """
    config = plan.config
    manifest = Manifest(
        facts=plan.facts,
        config=config.model_dump(mode="json", exclude={"questions"}),
        questions=None if plan.questions is None else {str(qid): question for qid, question in plan.questions.items()},
        fragments=len(plan.fragments) or 1,  # see `write_empty`
        rows=plan.row_count,
        inputs=input_facts(plan.files),
    )
    folders = [config.output, *([] if config.abstain_output is None else [config.abstain_output])]
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(locked(folder))
        plan = plan.refreshed()
        for folder in folders:
            write_manifest(folder, manifest)
            remove_unfinished(folder)
        yield plan
        for folder in folders:
            remove_unfinished(folder)
        plan.refreshed()  # an object store has no locks: whoever was there meanwhile is told, at least


def write_empty(plan: ScorePlan) -> None:
    """Of an input without rows, one part without rows: its schema is what readers ask for."""
    if not plan.fragments:
        now = time.time()
        notes = {"started_at": now, "finished_at": now, "tally": Tally().to_dict()}
        write_part(plan.config.output, 0, (), plan.schema, plan.config.format, lambda: notes)


def summarized(plan: ScorePlan, started: float, scoring_s: float) -> Summary:
    """Adds up the parts, those of earlier runs included, and writes down what this run did."""
    config = plan.config
    indices = [fragment.index for fragment in plan.fragments] or [0]
    notes = {**plan.done, **part_notes(config.output, [index for index in indices if index not in plan.done])}
    missing = [index for index in indices if index not in notes]
    if missing:
        raise InputError(f"{config.output}: part {missing[0]} is damaged or gone; give the same command again")
    tallies = {index: Tally.from_dict(note["tally"]) for index, note in notes.items()}
    done = Tally.total(tallies[index] for index in plan.done)
    total = Tally.total(tallies.values())
    run = {
        "started_at": started,
        "seconds": time.time() - started,
        "scoring_seconds": scoring_s,
        "rows": total.rows - done.rows,
        "agents": config.agents,
        "version": laya.__version__,
    }
    if run["rows"]:
        write_bytes(run_location(config.output, started), json.dumps(run).encode())
    report = None
    if config.report:
        from pipelines.report import write_report

        try:
            report = write_report(config.output)
        except InputError as error:  # the rows are there all the same
            warnings.warn(f"no report: {error}", RuntimeWarning, stacklevel=2)
    return Summary(
        tally=total,
        resumed_rows=done.rows,
        seconds=run["seconds"],
        scoring_seconds=scoring_s,
        output=config.output,
        parts=len(tallies),
        questions=plan.parsed or (),
        abstain_output=config.abstain_output,
        report=report,
    )
