"""From timed runs to what the benchmark says of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ceiling import Matrices, flops
from benchmarks.differences import Difference, compare
from benchmarks.sides import Run


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side's speed.

    Attributes:
        name: Which side.
        laya: Version of the package.
        torch: Version of torch there.
        threads: Threads torch computes with.
        seconds: One run a round.
        median_seconds: Their median.
        decisions_per_second: States x questions by the median.
        tokens_per_second: Real tokens, no padding, by the median.
    """

    name: str
    laya: str
    torch: str
    threads: int
    seconds: list[float]
    median_seconds: float
    decisions_per_second: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    Attributes:
        seed: Of the states.
        states: Number of states of one run.
        decisions: States x questions.
        tokens: Real tokens of one run, all questions counted.
        sides: Ours, then the peer if there was one.
        ratios: Peer seconds / our seconds of each round.
        ratio: Their median, or None without a peer.
        difference: Between the answers, in the round where it was largest; None without a peer.
        ceiling_flops: The machine's fp32 matrix multiply rate, in FLOP/s.
        useful_flops: Our rate, by the formula of `benchmarks.ceiling`.
        executed_flops: The same without the positions that our engine skips.
        notes: What a reader of the numbers should know.
    """

    seed: int
    states: int
    decisions: int
    tokens: int
    sides: list[SideReport]
    ratios: list[float]
    ratio: float | None
    difference: Difference | None
    ceiling_flops: float
    useful_flops: float
    executed_flops: float
    notes: list[str]

    @property
    def same(self) -> bool:
        """Whether no answers differ."""
        return self.difference is None or self.difference.same


def summarize(
    sides: Sequence[tuple[str, Mapping[str, Any]]],
    turns: Sequence[Sequence[Run]],
    ceiling: float,
    counted: Matrices,
    seed: int,
    notes: Sequence[str],
) -> Report:
    """Turns runs into a report.

    Args:
        sides: Name and versions of each side, ours first.
        turns: For each round, one run of each side.
        ceiling: The machine's matrix multiply rate, in FLOP/s.
        counted: The checkpoint's matrix parameters.
        seed: Of the states.
        notes: What a reader of the numbers should know.
    """
    results = turns[0][0].results
    tokens = sum(result["usage"]["input_tokens"] for result in results)
    decisions = sum(len(result["answers"]) for result in results)
    reports = []
    for index, (name, about) in enumerate(sides):
        seconds = [runs[index].seconds for runs in turns]
        median = statistics.median(seconds)
        reports.append(
            SideReport(name, about["laya"], about["torch"], about["threads"], seconds, median, decisions / median, tokens / median)
        )
    pairs = [(runs[0], runs[1]) for runs in turns if len(runs) > 1]
    ratios = [theirs.seconds / ours.seconds for ours, theirs in pairs]
    differences = [compare(ours.results, theirs.results) for ours, theirs in pairs]
    our_seconds = reports[0].median_seconds
    return Report(
        seed,
        len(results),
        decisions,
        tokens,
        reports,
        ratios,
        statistics.median(ratios) if ratios else None,
        max(differences, key=lambda difference: (not difference.same, difference.largest), default=None),
        ceiling,
        flops(counted.useful, tokens) / our_seconds,
        flops(counted.executed, tokens) / our_seconds,
        list(notes),
    )


def show(report: Report) -> None:
    """Prints a report as a short table and a few lines."""
    console = Console(highlight=False)
    table = Table(title=f"{report.states} states, {report.decisions} decisions, {report.tokens:,} tokens", title_justify="left")
    table.add_column("side", no_wrap=True)
    for column in ("median s", "decisions/s", "tokens/s", "ratio", "max difference"):
        table.add_column(column, justify="right")
    for index, side in enumerate(report.sides):
        ratio = "" if report.ratio is None else f"{report.ratio:.2f}x" if index == 0 else "1.00x"
        apart = f"{report.difference.largest:.1e}" if index and report.difference else ""
        speeds = (f"{side.median_seconds:.3f}", f"{side.decisions_per_second:.0f}", f"{side.tokens_per_second:,.0f}")
        table.add_row(f"{side.name}, laya {side.laya}", *speeds, ratio, apart)
    console.print(table)
    threads = ", ".join(f"{side.name}: torch {side.torch}, {side.threads} threads" for side in report.sides)
    console.print(f"CPU, fp32; {threads}. {len(report.sides[0].seconds)} rounds, seed {report.seed}.")
    if report.ratios:
        console.print(f"Paired ratios (peer seconds / ours): {', '.join(f'{ratio:.2f}' for ratio in report.ratios)}.")
    useful, executed = (rate / report.ceiling_flops for rate in (report.useful_flops, report.executed_flops))
    console.print(
        f"Matrix multiply ceiling {report.ceiling_flops / 1e12:.3f} TFLOP/s; ours: useful {report.useful_flops / 1e12:.3f} ({useful:.0%}), "
        f"executed {report.executed_flops / 1e12:.3f} ({executed:.0%}), attention products not counted."
    )
    for note in report.notes:
        console.print(note)
    if report.difference is not None and not report.difference.same:
        console.print(_complaint(report.difference), style="bold red", markup=False)


def _complaint(difference: Difference) -> str:
    """Says that answers differ, and where to look."""
    parts = []
    if difference.where:
        parts.append(f"numbers differ by up to {difference.largest:.2g} (at {difference.where})")
    for what, places in (("decisions differ", difference.flipped), ("other values differ", difference.unlike)):
        if places:
            parts.append(f"{what} ({len(places)}, the first at {places[0]})")
    return f"THE ANSWERS DIFFER: {'; '.join(parts)}."
