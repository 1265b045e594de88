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
from benchmarks.settings import Setting
from benchmarks.sides import Run


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side's speed.

    Attributes:
        name: Which side.
        ours: Whether it is this package.
        exact: Whether it computes in fp32.
        laya: Version of the package.
        torch: Version of torch there.
        threads: Threads torch computes with.
        precision: What it says that it computes in; "" if it does not say.
        reason: Why.
        seconds: One run a round.
        median_seconds: Their median.
        decisions_per_second: States x questions by the median.
        tokens_per_second: Real tokens, no padding, by the median.
        difference: Of its answers from the first side's, in the round where it was largest; None for the first.
    """

    name: str
    ours: bool
    exact: bool
    laya: str
    torch: str
    threads: int
    precision: str
    reason: str
    seconds: list[float]
    median_seconds: float
    decisions_per_second: float
    tokens_per_second: float
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our sides next to one of the peer's.

    Attributes:
        ours: Name of ours.
        peer: Name of the peer's, and what it stands for.
        ratios: Peer seconds / our seconds of each round.
        ratio: Their median.
    """

    ours: str
    peer: str
    ratios: list[float]
    ratio: float


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    Attributes:
        checkpoint: Which.
        seed: Of the states.
        states: Number of states of one run.
        decisions: States x questions.
        tokens: Real tokens of one run, all questions counted.
        sides: Ours, then the peer's if there was one.
        comparisons: Ours next to the peer's.
        ceilings: The machine's matrix multiply rate by type, in FLOP/s.
        useful_flops: The rate of each of our sides, by the formula of `benchmarks.ceiling`.
        executed_flops: The same without the positions that our engine skips.
        notes: What a reader of the numbers should know.
    """

    checkpoint: str
    seed: int
    states: int
    decisions: int
    tokens: int
    sides: list[SideReport]
    comparisons: list[Comparison]
    ceilings: dict[str, float]
    useful_flops: dict[str, float]
    executed_flops: dict[str, float]
    notes: list[str]

    @property
    def same(self) -> bool:
        """Whether no answers differ."""
        return all(side.difference is None or side.difference.same for side in self.sides)


def summarize(
    settings: Sequence[tuple[Setting, Mapping[str, Any]]],
    turns: Sequence[Sequence[Run]],
    ceilings: Mapping[str, float],
    counted: Matrices,
    checkpoint: str,
    seed: int,
    notes: Sequence[str],
) -> Report:
    """Turns runs into a report.

    Args:
        settings: Setting and versions of each side; the first is ours in fp32, which the others' answers are compared with.
        turns: For each round, one run of each side.
        ceilings: The machine's matrix multiply rate by type, in FLOP/s.
        counted: The checkpoint's matrix parameters.
        checkpoint: Which.
        seed: Of the states.
        notes: What a reader of the numbers should know.
    """
    results = turns[0][0].results
    tokens = sum(result["usage"]["input_tokens"] for result in results)
    decisions = sum(len(result["answers"]) for result in results)
    sides = []
    for index, (setting, about) in enumerate(settings):
        seconds = [runs[index].seconds for runs in turns]
        median = statistics.median(seconds)
        exact = setting.exact or about["precision"] == "float32"
        apart = [compare(runs[0].results, runs[index].results, reduced=not exact) for runs in turns] if index else []
        worst = max(apart, key=lambda difference: (not difference.same, difference.largest), default=None)
        versions = (about["laya"], about["torch"], about["threads"], about["precision"], about["reason"])
        sides.append(SideReport(setting.name, setting.ours, exact, *versions, seconds, median, decisions / median, tokens / median, worst))
    rates = {side.name: side.median_seconds for side in sides if side.ours}
    return Report(
        checkpoint,
        seed,
        len(results),
        decisions,
        tokens,
        sides,
        _comparisons(sides),
        dict(ceilings),
        {name: flops(counted.useful, tokens) / seconds for name, seconds in rates.items()},
        {name: flops(counted.executed, tokens) / seconds for name, seconds in rates.items()},
        list(notes),
    )


def _comparisons(sides: Sequence[SideReport]) -> list[Comparison]:
    peers = [side for side in sides if not side.ours]
    found = []
    for ours in (side for side in sides if side.ours) if peers else ():
        best = min(peers, key=lambda side: side.median_seconds)
        best_exact = min((side for side in peers if side.exact), key=lambda side: side.median_seconds, default=best)
        for peer, what in ((peers[0], "as it comes"), (best_exact, "its best in fp32"), (best, "its best")):
            ratios = [theirs / own for own, theirs in zip(ours.seconds, peer.seconds, strict=True)]
            found.append(Comparison(ours.name, f"{what}: {peer.name}", ratios, statistics.median(ratios)))
    return found


def show(report: Report) -> None:
    """Prints a report as a short table and a few lines."""
    console = Console(highlight=False, width=120)
    title = f"{report.checkpoint}: {report.states} states, {report.decisions} decisions, {report.tokens:,} tokens"
    table = Table(title=title, title_justify="left")
    table.add_column("side", no_wrap=True)
    for column in ("median s", "decisions/s", "tokens/s", "of ceiling", "executed", "max difference"):
        table.add_column(column, justify="right")
    for side in report.sides:
        shares = ("", "")
        if side.name in report.useful_flops:
            ceiling = report.ceilings[side.precision or "float32"]
            shares = (f"{report.useful_flops[side.name] / ceiling:.0%}", f"{report.executed_flops[side.name] / ceiling:.0%}")
        apart = f"{side.difference.largest:.1e}" if side.difference else ""
        speeds = (f"{side.median_seconds:.3f}", f"{side.decisions_per_second:.1f}", f"{side.tokens_per_second:,.0f}")
        table.add_row(side.name, *speeds, *shares, apart)
    console.print(table)
    versions = {f"laya {side.laya}, torch {side.torch}, {side.threads} threads": None for side in report.sides}
    console.print(f"CPU; {'; '.join(versions)}. {len(report.sides[0].seconds)} rounds, seed {report.seed}.")
    for comparison in report.comparisons:
        paired = ", ".join(f"{ratio:.2f}" for ratio in comparison.ratios)
        console.print(f"{comparison.ours}: {comparison.ratio:.2f} times the peer {comparison.peer} (rounds: {paired}).", markup=False)
    for side in report.sides:
        if side.ours and side.reason:
            console.print(f"{side.name} computes in {side.precision}: {side.reason}.", markup=False)
    rates = ", ".join(f"{name} {rate / 1e12:.3f}" for name, rate in report.ceilings.items())
    console.print(f"Matrix multiply ceiling in TFLOP/s: {rates}. Attention products are not counted as work.")
    for note in report.notes:
        console.print(note)
    for side in report.sides:
        if side.difference is not None and not side.difference.same:
            console.print(f"{side.name}: {_complaint(side.difference)}", style="bold red", markup=False)


def _complaint(difference: Difference) -> str:
    """Says that answers differ, and where to look."""
    parts = []
    if difference.where:
        parts.append(f"numbers differ by up to {difference.largest:.2g} (at {difference.where})")
    for what, places in (("decisions differ", difference.flipped), ("other values differ", difference.unlike)):
        if places:
            parts.append(f"{what} ({len(places)}, the first at {places[0]})")
    return f"THE ANSWERS DIFFER: {'; '.join(parts)}."
