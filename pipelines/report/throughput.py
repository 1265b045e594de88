"""Rows a second over the time that a job worked; the time in which it was stopped is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.report.facts import Span

_MOST_BINS = 60
_PAUSE_S = 30.0
"""Nobody working for this long (or for a twentieth of the whole, if that is longer) is a stop, and no gap between two parts."""


@dataclass(slots=True)
class Throughput:
    """Rows a second over working time.

    Attributes:
        seconds: Working time in all.
        edges: Edges of the bins, in seconds of working time; one more than there are rates.
        rates: Rows a second in each bin.
        stops: Where the job was stopped: working time until then, and for how many seconds.
    """

    seconds: float = 0.0
    edges: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    stops: list[tuple[float, float]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Rows a second over the whole working time."""
        rows = sum(rate * (end - start) for rate, start, end in zip(self.rates, self.edges, self.edges[1:], strict=False))
        return rows / self.seconds if self.seconds else 0.0


def throughput(spans: Sequence[Span]) -> Throughput:
    """Spreads the rows of each part evenly over the time in which it was made.

    Args:
        spans: When parts were made, by start.
    """
    worked = _worked(spans)
    seconds = sum(end - start for start, end in worked)
    if seconds <= 0:
        return Throughput()
    # Bins much shorter than a part would show the parts' own edges.
    longest = max(span.end - span.start for span in spans)
    bins = max(1, min(_MOST_BINS, len(spans), int(seconds / longest * 4)))
    width = seconds / bins
    rows = [0.0] * bins
    offset, offsets, stops = 0.0, [], []
    for index, (start, end) in enumerate(worked):
        if index:
            stops.append((offset, start - worked[index - 1][1]))
        offsets.append(offset - start)
        offset += end - start
    section = 0
    for span in spans:
        while span.start > worked[section][1]:
            section += 1
        _spread(rows, width, span.start + offsets[section], span.end + offsets[section], span.rows)
    return Throughput(seconds, [width * index for index in range(bins + 1)], [count / width for count in rows], stops)


def _worked(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Joins the parts' times to sections without stops."""
    joined: list[tuple[float, float]] = []
    for pause in (0.0, None):
        known = joined if pause is None else [(span.start, max(span.start, span.end)) for span in spans]
        if pause is None:
            pause = max(_PAUSE_S, sum(end - start for start, end in known) / 20)
        joined = []
        for start, end in known:
            if joined and start - joined[-1][1] <= pause:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
    return joined


def _spread(rows: list[float], width: float, start: float, end: float, count: int) -> None:
    first = min(int(start / width), len(rows) - 1)
    last = min(int(end / width), len(rows) - 1)
    if first == last or end <= start:
        rows[first] += count
        return
    for index in range(first, last + 1):
        shared = min(end, (index + 1) * width) - max(start, index * width)
        rows[index] += count * max(shared, 0.0) / (end - start)
