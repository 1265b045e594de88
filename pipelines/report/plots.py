"""The plots of a report: SVG that stands in the page, with its colours and fonts. Importing this brings matplotlib."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pipelines.report.throughput import Throughput
from pipelines.report.words import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What matplotlib draws in one of these colours is drawn in the page's colour of that name, which dark and light pages define.
_COLOURS = {"ink": "#010203", "muted": "#020304", "line": "#030405", "accent": "#040506", "warn": "#050607", "paper": "#060708"}
INK, MUTED, LINE, ACCENT, WARN, PAPER = _COLOURS.values()
_DASHES = (0, (3, 2))

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
_NO_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def _quietly() -> Iterator[None]:
    """Lets matplotlib be imported without leaving a font cache in the user's home, or a line on the terminal where it cannot."""
    if "matplotlib" in sys.modules:
        yield
        return
    log = logging.getLogger("matplotlib")
    level, known = log.level, os.environ.get("MPLCONFIGDIR")
    log.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="laya-report-") as folder:
            os.environ["MPLCONFIGDIR"] = folder
            yield
    finally:
        log.setLevel(level)
        if known is None:
            del os.environ["MPLCONFIGDIR"]
        else:
            os.environ["MPLCONFIGDIR"] = known


with _quietly():
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator


def histogram_plot(name: str, counts: Sequence[int], threshold: float | None) -> Markup:
    """Answers by confidence.

    Args:
        name: What sets this plot apart from the others of the page.
        counts: Answers in equal bins from 0 to 1.
        threshold: The confidence that answers must have, if they must.
    """

    def draw(axes: Axes) -> None:
        width = 1 / len(counts)
        middles = [(index + 0.5) * width for index in range(len(counts))]
        below = [threshold is not None and middle < threshold for middle in middles]
        axes.bar(middles, counts, width=width * 0.86, color=[WARN if unsure else ACCENT for unsure in below])
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.set_xlabel("confidence")
        if threshold is not None:
            axes.axvline(threshold, color=INK, linewidth=0.9, linestyle=_DASHES)
        _count_axis(axes)

    return _svg(f"histogram-{name}", (4.4, 2.2), f"Histogram of {sum(counts):,} answers by confidence", draw)


def reliability_plot(name: str, bins: Sequence[Sequence[float]]) -> Markup:
    """Share of right answers over confidence: on the diagonal, confidence can be taken at its word.

    Args:
        name: What sets this plot apart from the others of the page.
        bins: For each bin of confidence: answers, sum of their confidence, how many are right.
    """
    filled = [(sure / rows, right / rows, rows) for rows, sure, right in bins if rows]
    most = max(rows for _, _, rows in filled)
    sure, right = [x for x, _, _ in filled], [y for _, y, _ in filled]

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=_DASHES)
        axes.plot(sure, right, color=ACCENT, linewidth=1, alpha=0.55)
        sizes = [12 + 110 * rows / most for _, _, rows in filled]
        axes.scatter(sure, right, s=sizes, color=ACCENT, edgecolors=PAPER, linewidths=1, zorder=3, clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="share right")
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])

    return _svg(f"reliability-{name}", (3.0, 2.9), "Share of right answers over confidence", draw)


def throughput_plot(name: str, found: Throughput, width: float) -> Markup:
    """Rows a second over working time.

    Args:
        name: What sets this plot apart from the others of the page.
        found: What to draw.
        width: Of the plot, in inches of 72 points.
    """

    def draw(axes: Axes) -> None:
        axes.stairs(found.rates, found.edges, baseline=None, color=ACCENT, linewidth=1.5)
        axes.stairs(found.rates, found.edges, fill=True, color=ACCENT, alpha=0.13, linewidth=0)
        axes.set_xlim(0, found.seconds)
        axes.set_xlabel("working time")
        axes.xaxis.set_major_locator(MultipleLocator(_step(found.seconds / (3 if width < 6 else 7))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
        for at, _ in found.stops:
            axes.axvline(at, color=WARN, linewidth=1.1, linestyle=_DASHES)
        _count_axis(axes)

    told = f"Rows a second over {duration(found.seconds)} of work, {found.mean:,.0f} on average"
    return _svg(f"throughput-{name}", (width, 2.3), told, draw)


def _step(least: float) -> float:
    """A distance of ticks that is a round time."""
    power = 10.0
    while power > least:
        power /= 10
    fine = [power * factor for factor in (1, 2, 5, 10)]
    return next((step for step in (*(step for step in fine if step < 15), *_STEPS) if step >= least), least)


_STEPS = [minutes * 60 for minutes in (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720)] + [86400 * days for days in (1, 2, 5, 10)]


def _count_axis(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.10g}"))


def _svg(name: str, size: tuple[float, float], told: str, draw: Callable[[Axes], None]) -> Markup:
    # The user's own style is set aside. Names inside the SVG are hashes with this salt: no two plots of a page share one.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": name})
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=_NO_METADATA)
    return Markup(_fit(file.getvalue(), told))


def _fit(svg: str, told: str) -> str:
    """Makes a part of the page of a drawing: the page's colours and fonts, and a text for those who do not see it."""
    svg = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width, height = (0.0, 0.0) if box is None else (float(box[1]), float(box[2]))
    # A point of the drawing is a third more than a pixel of the page: its 9 point text is 12 pixels high.
    start = f'<svg role="img" aria-label="{told}" style="max-width: {width * 4 / 3:.0f}px" viewBox="0 0 {width:g} {height:g}">'
    svg = re.sub(r"<svg\b.*?>", start, svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<g id="[a-z][^"]*_\d+"', "<g", svg).replace("xlink:href", "href")
    svg = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font-size: \1", svg)
    for colour, value in _COLOURS.items():
        svg = svg.replace(value, f"var(--{colour})")
    return svg
