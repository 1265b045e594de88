"""The scoring job: a plan, one task a fragment, one part file a task, a summary."""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import ray
from ray.data import TaskPoolStrategy
from rich.console import Console

from cluster import ClusterRouter
from laya.files import CheckpointError
from laya.names import BUILT_IN, canonical
from pipelines.config import AUTO, ScoreConfig
from pipelines.errors import InputError, RecordError
from pipelines.plan import ScorePlan, make_plan, open_output
from pipelines.progress import ProgressCounter, shown
from pipelines.report import Summary, Tally
from pipelines.session import ray_session
from pipelines.sinks import part_name, part_notes
from pipelines.sources import read, state_of
from pipelines.worker import FragmentJob, score_fragment

WORKER_CPUS = 0.25
"""Share of a CPU that a worker counts for: it reads, waits for agents and writes."""
SAMPLE_ROWS = 100
"""Rows that are routed before an "auto" job starts, so that a checkpoint that cannot be had stops it at once."""


def score(config: ScoreConfig, console: Console | None = None) -> Summary:
    """Scores files into part files, each row exactly once.

    A run that was stopped goes on where it was when it is started again with the same config.

    Args:
        config: What to do.
        console: Where progress is shown; None shows none.

    Returns:
        Counts over all parts, those of earlier runs included.

    Raises:
        InputError: Something given is wrong; nothing has been scored.
        laya.CheckpointError: A checkpoint cannot be had; what was committed stays.
    """
    started = time.monotonic()
    plan = make_plan(config)
    scoring_s = 0.0
    if plan.pending:
        # An automatic choice needs room for the two checkpoints that languages are split between.
        slots = config.agents if config.model != AUTO else max(2, config.agents)
        threads = max(1, (os.cpu_count() or 1) // config.agents)
        workers = min(config.agents, len(plan.pending))
        with ray_session(config.address, slots * threads + workers + 1), _job_router(config, slots, threads) as router:
            _load_models(config, plan, router)
            with open_output(config, plan):
                ready = time.monotonic()
                _run(config, plan, router, workers, console)
                scoring_s = time.monotonic() - ready
    else:
        with open_output(config, plan):
            pass
    return _summary(config, plan, time.monotonic() - started, scoring_s)


@contextmanager
def _job_router(config: ScoreConfig, slots: int, threads: int) -> Iterator[ClusterRouter]:
    known = config.model == AUTO or canonical(config.model) in BUILT_IN
    folder = Path(config.model)
    gpus = ray.cluster_resources().get("GPU", 0.0)
    router = ClusterRouter(
        models={} if known else {config.model: str(folder.absolute()) if folder.is_dir() else config.model},
        max_loaded=slots,
        name=f"score-{uuid.uuid4().hex[:12]}",
        num_cpus=threads,
        num_gpus=min(1.0, gpus / slots),
    )
    try:
        yield router
    finally:
        router.close()


def _load_models(config: ScoreConfig, plan: ScorePlan, router: ClusterRouter) -> None:
    if config.model != AUTO:
        router.scale(config.model, config.agents)
        _try_questions(config, plan, router, config.model)
        return
    tried: set[str] = set()
    for record in islice(read(plan.pending[0]), SAMPLE_ROWS):
        try:
            state = state_of(record, plan.state)
        except RecordError:
            continue
        name = router.route(state, plan.questions).model
        if name not in tried:
            _try_questions(config, plan, router, name)
            tried.add(name)


def _try_questions(config: ScoreConfig, plan: ScorePlan, router: ClusterRouter, model: str) -> None:
    """Asks once: what the model cannot hold would otherwise make an error of every row."""
    try:
        router.predict("", plan.questions, model=model)
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        raise InputError(f"question file {config.questions}: {error}") from None


def _run(config: ScoreConfig, plan: ScorePlan, router: ClusterRouter, workers: int, console: Console | None) -> None:
    counter = ray.remote(ProgressCounter).options(num_cpus=0).remote()
    job = FragmentJob(
        router=router,
        model=None if config.model == AUTO else config.model,
        output=str(Path(config.output).absolute()),
        in_flight=max(2, 2 * config.agents // workers),
        files={file.path: (file.size, file.mtime_ns) for file in plan.files},
        columns=plan.columns,
        questions=plan.questions,
        parsed=plan.parsed,
        schema=plan.schema,
        state=plan.state,
        labels=plan.labels,
        fingerprint=plan.fingerprint,
        progress=counter,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    fragments = ray.data.from_items([asdict(fragment) for fragment in plan.pending], override_num_blocks=len(plan.pending))
    parts = fragments.map(score_fragment, fn_args=(job,), compute=TaskPoolStrategy(size=workers), num_cpus=WORKER_CPUS)
    rows = sum(fragment.rows for fragment in plan.pending)
    with nullcontext() if console is None else shown(counter, rows, console):
        for part in parts.iter_rows():
            if part["stopped"] is not None:
                raise pickle.loads(part["stopped"])


def _summary(config: ScoreConfig, plan: ScorePlan, seconds: float, scoring_s: float) -> Summary:
    tallies = {fragment.index: _read_tally(config.output, fragment.index) for fragment in plan.fragments}
    return Summary(
        tally=Tally.total(tallies.values()),
        resumed_rows=Tally.total(tallies[index] for index in plan.done).rows,
        seconds=seconds,
        scoring_seconds=scoring_s,
        output=config.output,
        parts=len(tallies),
        questions=plan.parsed,
    )


def _read_tally(output: str, index: int) -> str:
    notes = part_notes(output, index)
    if notes is None:
        raise InputError(f"{output}: part {part_name(index)} is damaged or gone; give the same command again")
    return notes[FragmentJob.TALLY_KEY]
