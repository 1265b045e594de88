"""What a job would do, and how long it might take: nothing is written, and no Ray is started."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from laya.files import CheckpointError
from laya.router import Router
from pipelines.config import ScoreConfig
from pipelines.errors import InputError
from pipelines.model_names import registered
from pipelines.plan import ScorePlan, make_plan
from pipelines.report.words import duration
from pipelines.sampling import sample_requests

_FEW_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a job would do.

    Attributes:
        plan: Its plan.
        sampled: Rows that were looked at.
        routing: Checkpoint to how many of them it would answer.
        tokens_per_row: Tokens that the network reads of one of them, all questions together; None where nothing could be measured.
        rows_per_s: What one agent on this machine does; None likewise.
        hindrance: Why nothing could be measured.
    """

    plan: ScorePlan
    sampled: int
    routing: Counter[str]
    tokens_per_row: float | None
    rows_per_s: float | None
    hindrance: str | None


def foresee(config: ScoreConfig) -> Forecast:
    """Makes a job's plan and answers a sample of its rows in this process.

    Raises:
        InputError: As `pipelines.plan.make_plan`.
        CheckpointError: Likewise.
    """
    plan = make_plan(config)
    router = Router(models=registered(config.model))
    requests = list(sample_requests(plan))
    routing = Counter(_routed(router, request) for request in requests)
    try:
        tokens, rows_per_s = _measured(router, requests)
    except (CheckpointError, InputError, OSError) as error:
        return Forecast(plan, len(requests), routing, None, None, str(error).partition("\n")[0])
    return Forecast(plan, len(requests), routing, tokens, rows_per_s, None)


def _routed(router: Router, request: dict[str, Any]) -> str:
    try:
        return router.route(request["state"], model=request["model"], lang=request["lang"]).model
    except ValueError:
        return f"no checkpoint {request['model']!r}"


def _measured(router: Router, requests: list[dict[str, Any]]) -> tuple[float, float]:
    """Tokens of a row and rows a second, of as many requests as a few seconds allow; the first ones, which also load, do not count."""
    warm, timed = requests[:2], requests[2:] or requests
    router.predict_batch(warm, return_exceptions=True)
    answered, tokens, started = 0, 0, time.monotonic()
    problem: BaseException | None = None
    for start in range(0, len(timed), 16):
        for result in router.predict_batch(timed[start : start + 16], return_exceptions=True):
            if isinstance(result, CheckpointError):
                raise result
            if isinstance(result, BaseException):
                problem = problem or result
            else:
                answered += 1
                tokens += result["usage"]["input_tokens"]
        if time.monotonic() - started > _FEW_SECONDS:
            break
    if not answered:
        raise InputError("there is no row to ask about" if problem is None else f"no sampled row could be answered: {problem}")
    return tokens / answered, answered / (time.monotonic() - started)


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Prints what a job would do."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    plan, config = forecast.plan, forecast.plan.config
    files = plan.files
    size = decimal(sum(file.size for file in files))
    say(f"input       {len(files):,} file{'s' if len(files) != 1 else ''}, {plan.row_count:,} rows, {size}")
    for file in files[:5]:
        say(f"            {file.path} ({file.format}, {decimal(file.size)})")
    if len(files) > 5:
        say(f"            and {len(files) - 5:,} more")
    say(f"state       {', '.join(plan.rows.state) or '-'}{' (JSON)' if config.state_json else ''}")
    asked = f"column {config.questions_column}" if plan.parsed is None else ", ".join(f"{q.qid} ({q.type})" for q in plan.parsed)
    say(f"questions   {asked}")
    left = sum(fragment.rows for fragment in plan.pending)
    done = f", {plan.row_count - left:,} rows are done already" if plan.done else ""
    say(f"fragments   {len(plan.pending):,} of up to {config.rows_per_fragment:,} rows{done}")
    routing = ", ".join(f"{name}: {count}" for name, count in forecast.routing.most_common())
    say(f"routing     {routing or '-'} (of {forecast.sampled} sampled rows)")
    say(f"agents      {config.agents}")
    if forecast.tokens_per_row is None or forecast.rows_per_s is None:
        say(f"estimate    none: {forecast.hindrance}")
    else:
        say(f"tokens      about {forecast.tokens_per_row * left:,.0f} ({forecast.tokens_per_row:,.0f} a row, all questions together)")
        seconds = left / forecast.rows_per_s
        say(f"time        about {duration(seconds)} at the {forecast.rows_per_s:,.1f} rows/s of this machine with all its cores")
        say("            (without the start of Ray and the agents; agents on one machine share its cores, each further one adds its own)")
    say(f"output      {config.output} ({config.format}); nothing was written")
