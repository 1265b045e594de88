"""The scoring job: a plan, one task a fragment, one part file a task, a summary."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import ray
from ray.data import TaskPoolStrategy
from rich.console import Console

from cluster import ClusterRouter, Hosting
from laya import Temperatures
from laya.names import BUILT_IN
from pipelines.asking import STOPS_THE_JOB
from pipelines.config import AUTO, ScoreConfig
from pipelines.errors import InputError
from pipelines.model_names import registered
from pipelines.outputs import opened, summarized, write_empty
from pipelines.plan import ScorePlan, make_plan
from pipelines.progress import ProgressCounter, shown
from pipelines.sampling import sample_requests
from pipelines.session import ray_session
from pipelines.shares import WORKER_CPUS, agent_share, embedded_cpus
from pipelines.summary import Summary
from pipelines.worker import FragmentJob, score_fragment


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
    started = time.time()
    plan = make_plan(config)
    scoring_s = 0.0
    if plan.pending:
        workers = min(config.agents, len(plan.pending))
        # Rows that choose need room for two checkpoints at least, such as the two that languages are split between.
        slots = max(2, config.agents) if _rows_choose(config) else config.agents
        with ray_session(config.address, embedded_cpus(slots, config.agents, config.agent_cpus)), _job_router(config, slots) as router:
            load_models(plan, router)
            with opened(plan) as plan:
                ready = time.monotonic()
                _run(plan, router, workers, console)
                scoring_s = time.monotonic() - ready
    else:
        with opened(plan) as plan:
            write_empty(plan)
    return summarized(plan, started, scoring_s)


def _rows_choose(config: ScoreConfig) -> bool:
    return config.model == AUTO or config.model_column is not None


@contextmanager
def _job_router(config: ScoreConfig, slots: int) -> Iterator[ClusterRouter]:
    """The router of a job, closed at the end with its agents."""
    calibration = {} if config.calibration is None else {"calibration": Temperatures.load(config.calibration)}
    hosting = Hosting(options=calibration, hooks=config.agent_hooks)
    share = agent_share(slots, config.agent_cpus)
    router = ClusterRouter(
        models={
            name: str(Path(source).absolute()) if Path(source).is_dir() else source for name, source in registered(config.model).items()
        },
        max_loaded=slots,
        name=f"score-{uuid4().hex[:12]}",
        num_cpus=share.threads,
        num_gpus=share.num_gpus,
        agent_options={"num_cpus": share.num_cpus},
        hosting={name: replace(hosting, max_replicas=slots) for name in {*BUILT_IN, config.model} - {AUTO}},
        actor_hooks=config.hooks,
    )
    try:
        yield router
    finally:
        router.close()


def load_models(plan: ScorePlan, router: ClusterRouter) -> None:
    """Loads what will be asked, and asks once: what a model cannot hold would otherwise make an error of every row."""
    config = plan.config
    if not _rows_choose(config):
        router.scale(config.model, config.agents)
    tried: set[str] = set()
    for request in sample_requests(plan):
        try:
            name = router.route(request["state"], request["questions"], model=request["model"], lang=request["lang"]).model
        except ValueError:  # a row that names a checkpoint that there is not
            continue
        if name in tried:
            continue
        tried.add(name)
        budgets = {"max_len": request["max_len"], "head_max_len": request["head_max_len"]}
        (answer,) = router.predict_batch(
            [{"state": "", "questions": request["questions"], "model": name, **budgets}], return_exceptions=True
        )
        if isinstance(answer, STOPS_THE_JOB):
            raise answer
        if isinstance(answer, ValueError) and plan.questions is not None and not config.agent_hooks:
            asked = "" if isinstance(config.questions, dict) else f"question file {config.questions}: "
            raise InputError(f"{asked}{answer}")


def _run(plan: ScorePlan, router: ClusterRouter, workers: int, console: Console | None) -> None:
    counter = ray.remote(ProgressCounter).options(num_cpus=0).remote()
    job = FragmentJob.of(plan, router, in_flight=max(2, 2 * plan.config.agents // workers), progress=counter)
    ray.data.DataContext.get_current().enable_progress_bars = False
    pending = plan.pending
    if not pending:  # another run of the same job has done the rest meanwhile
        return
    fragments = ray.data.from_items([{"fragment": pickle.dumps(fragment)} for fragment in pending], override_num_blocks=len(pending))
    parts = fragments.map(score_fragment, fn_args=(job,), compute=TaskPoolStrategy(size=workers), num_cpus=WORKER_CPUS)
    left = sum(fragment.rows for fragment in pending)
    with nullcontext() if console is None else shown(counter, plan.row_count - left, plan.row_count, console):
        for part in parts.iter_rows():
            if part["stopped"] is not None:
                raise pickle.loads(part["stopped"])
