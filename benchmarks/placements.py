"""How many placements the rules of `cluster.residency` decide in a second: `python -m benchmarks.placements`.

The rules alone, without Ray and without a checkpoint: every command is obeyed at once, and the clock is simulated.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from benchmarks.harness import positive
from cluster.commands import Close, Command, Drain, Grant, Load
from cluster.residency import Residency

GOAL = 20_000
CHECKPOINTS = 256
SLOTS = 64
MIN_RESIDENCY_S = 0.1
_TICK_S = 0.01  # simulated seconds between two rounds of commands

DESCRIPTION = f"""\
Time the rules by which checkpoints share slots: {CHECKPOINTS} checkpoints on {SLOTS} slots, asked for at random, so that three of four
requests turn somebody out. Nothing is loaded: every load, drain and close ends at once, on a simulated clock on which a
checkpoint stays {MIN_RESIDENCY_S} s at least. A decided placement is one request granted, with all the evictions and loads it takes.
"""

EPILOG = f"""\
examples:
  python -m benchmarks.placements
  python -m benchmarks.placements --rounds 9 --json out/placements.json

exit codes: 0 fine; 1 some case is below the goal of {GOAL:,} placements a second of CPU time; 2 bad arguments.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked for.

    Attributes:
        name: What the table calls it.
        outstanding: Requests that wait for a grant at a time.
        hits: Share of the requests that are for a checkpoint which is ready.
    """

    name: str
    outstanding: int
    hits: float = 0.0


CASES = (
    Case("1 at a time", 1),
    Case("8 at a time", 8),
    Case("64 at a time", 64),
    Case("256 at a time", 256),
    Case("8 at a time, 90 % of them ready", 8, hits=0.9),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run.

    Attributes:
        granted: Placements decided.
        evictions: Replicas that had to leave for them.
        cpu_seconds: CPU time of this process.
        wall_seconds: Time on the wall.
    """

    granted: int
    evictions: int
    cpu_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What was measured of one case.

    Attributes:
        case: Which one.
        runs: All timed runs.
        per_cpu_second: Placements decided in a second of CPU time, the median.
        per_wall_second: Placements decided in a second on the wall, the median.
    """

    case: Case
    runs: list[Run]
    per_cpu_second: float
    per_wall_second: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line: the mistake, not the whole usage before it.
        self.exit(2, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = _Parser(
        prog="benchmarks.placements", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, default=5, help="timed runs of each case (default: %(default)s)")
    parser.add_argument("--placements", type=positive, default=20_000, help="placements of one run (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all that was measured there")
    parser.add_argument("--seed", type=int, default=0, help="of the requests (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit code."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.json and not args.json.parent.is_dir():
        parser.error(f"--json: there is no folder {args.json.parent}")
    reports = measure(args.rounds, args.placements, args.seed)
    show(reports)
    if args.json:
        args.json.write_text(json.dumps([asdict(report) for report in reports], indent=1) + "\n", encoding="utf-8")
    return 0 if all(report.per_cpu_second >= GOAL for report in reports) else 1


def measure(rounds: int, placements: int, seed: int) -> list[CaseReport]:
    """Measures every case, one after the other in each round, so that whatever else the machine does meets all of them.

    Args:
        rounds: Timed runs of each case.
        placements: Placements of one run.
        seed: Of the requests.
    """
    runs = [[churn(case, placements, seed) for case in CASES] for _ in range(rounds)]
    return [_summarize(case, list(its_runs)) for case, its_runs in zip(CASES, zip(*runs, strict=True), strict=True)]


def _summarize(case: Case, runs: list[Run]) -> CaseReport:
    per_cpu_second = statistics.median(run.granted / run.cpu_seconds for run in runs)
    return CaseReport(case, runs, per_cpu_second, statistics.median(run.granted / run.wall_seconds for run in runs))


def churn(case: Case, placements: int, seed: int) -> Run:
    """Asks for checkpoints until so many requests are granted.

    Args:
        case: How they are asked for.
        placements: How many.
        seed: Of the requests.
    """
    now = 0.0
    residency = Residency(SLOTS, MIN_RESIDENCY_S, lambda: now)
    rng = random.Random(seed)
    names = [f"checkpoint-{number}" for number in range(CHECKPOINTS)]
    asked = granted = evictions = 0
    todo: list[Command] = []
    cpu, wall = time.process_time(), time.perf_counter()
    while granted < placements:
        now += _TICK_S
        while asked < granted + case.outstanding:
            asked += 1
            todo += residency.place(_choose(rng, names, residency, case.hits), asked)
        answers: list[Command] = []
        for command in todo:
            match command:
                case Grant():
                    granted += 1
                case Load(replica, _):
                    answers += residency.loaded(replica)
                case Drain(replica):
                    evictions += 1
                    answers += residency.emptied(replica)
                case Close(replica, _):
                    answers += residency.gone(replica)
                case _:
                    raise AssertionError(f"nothing else is to happen: {command}")
        todo = answers or residency.advance()
    return Run(granted, evictions, time.process_time() - cpu, time.perf_counter() - wall)


def _choose(rng: random.Random, names: Sequence[str], residency: Residency, hits: float) -> str:
    """A name at random; in that share of cases, one that is ready."""
    if hits and residency.book.arrived and rng.random() < hits:
        return rng.choice(list(residency.book.arrived.values())).checkpoint
    return rng.choice(names)


def show(reports: Sequence[CaseReport]) -> None:
    """Prints what was measured as a short table."""
    console = Console(highlight=False)
    table = Table(title=f"{CHECKPOINTS} checkpoints on {SLOTS} slots", title_justify="left")
    table.add_column("requests")
    for column in ("placements/s of CPU", "placements/s of wall", "evictions a placement"):
        table.add_column(column, justify="right")
    for report in reports:
        share = sum(run.evictions for run in report.runs) / sum(run.granted for run in report.runs)
        table.add_row(report.case.name, f"{report.per_cpu_second:,.0f}", f"{report.per_wall_second:,.0f}", f"{share:.2f}")
    console.print(table)
    slowest = min(report.per_cpu_second for report in reports)
    console.print(
        f"Medians of {len(reports[0].runs)} runs. The goal is {GOAL:,} a second of CPU: {'met' if slowest >= GOAL else 'MISSED'}."
    )


if __name__ == "__main__":
    sys.exit(main())
