"""Plots as SVG that goes into a page: text stays text, and colours are the page's own, so that they follow light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipelines.evaluation import Evaluation

# Colours that no plot uses otherwise, each to be replaced by a variable of the page.
_INK, _FAINT, _ACCENT, _SECOND = "#010101", "#020202", "#030303", "#040404"
_VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--line)", _ACCENT: "var(--accent)", _SECOND: "var(--second)"}
_LONGEST_LABEL = 28
_MOST_BARS = 30

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
_numbers = count()


def throughput_plot(points: Sequence[tuple[float, float]]) -> str:
    """Rows a second over the seconds of work."""

    def draw(axes: Axes) -> None:
        unit, name = next((unit, name) for unit, name in ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")) if points[-1][0] >= 3 * unit or unit == 1.0)
        moments, rates = [moment / unit for moment, _ in points], [rate for _, rate in points]
        axes.fill_between(moments, rates, color=_ACCENT, alpha=0.18, linewidth=0)
        axes.plot(moments, rates, color=_ACCENT, linewidth=1.6)
        axes.set_xlabel(f"{name} of work")
        axes.set_ylabel("rows/s")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.yaxis.set_major_locator(MaxNLocator(5))

    return _svg(draw, (7.2, 2.3))


def answers_plot(answers: Mapping[str, int], in_order: bool) -> str:
    """How often each answer was given; the commonest first, unless they have an order of their own."""
    items = sorted(answers.items()) if in_order else sorted(answers.items(), key=lambda item: -item[1])
    shown = items[:_MOST_BARS]
    if len(items) > len(shown):
        shown.append((f"{len(items) - len(shown)} more", sum(number for _, number in items[_MOST_BARS:])))

    def draw(axes: Axes) -> None:
        total = sum(answers.values()) or 1
        places = range(len(shown), 0, -1)
        bars = axes.barh(places, [number for _, number in shown], color=_ACCENT, height=0.66)
        axes.bar_label(bars, [f"{number:,} ({number / total:.0%})" for _, number in shown], padding=4, color=_INK)
        axes.set_yticks(list(places), [_short(name) for name, _ in shown])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xticks([])
        axes.set_xlim(right=max((number for _, number in shown), default=1) * 1.28)

    return _svg(draw, (3.6, 0.45 + 0.27 * len(shown)))


def confidence_plot(histogram: Sequence[int], thresholds: Sequence[float]) -> str:
    """How sure the answers are, with the thresholds that they must reach."""

    def draw(axes: Axes) -> None:
        width = 1 / len(histogram)
        axes.bar([index * width for index in range(len(histogram))], histogram, width * 0.9, align="edge", color=_ACCENT)
        for threshold in thresholds:
            axes.axvline(threshold, color=_SECOND, linewidth=1.4, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1)
        axes.set_xlabel("confidence")
        axes.set_ylabel("answers")
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))

    return _svg(draw, (3.4, 2.1))


def reliability_plot(evaluation: Evaluation) -> str:
    """How often answers of a confidence are right: on the diagonal, confidence is what it says."""

    def draw(axes: Axes) -> None:
        filled = [(rows, confidence / rows, right / rows) for rows, confidence, right in evaluation.bins if rows]
        most = max(rows for rows, _, _ in filled)
        axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.9, linestyle=(0, (2, 3)), alpha=0.6)
        axes.plot([confidence for _, confidence, _ in filled], [right for _, _, right in filled], color=_SECOND, linewidth=1.2, alpha=0.7)
        sizes = [12 + 70 * rows / most for rows, _, _ in filled]
        axes.scatter([confidence for _, confidence, _ in filled], [right for _, _, right in filled], s=sizes, color=_SECOND, zorder=3)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("confidence")
        axes.set_ylabel("share that is right")
        axes.set_aspect("equal")

    return _svg(draw, (2.6, 2.5))


def _short(text: str) -> str:
    shown = " ".join(text.split()) or "(empty)"
    return shown if len(shown) <= _LONGEST_LABEL else f"{shown[: _LONGEST_LABEL - 1]}…"


def _svg(draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    style: dict[str, Any] = {**_STYLE, "svg.hashsalt": f"plot-{next(_numbers)}"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' id="[a-z]+(?:\.[a-z]+)?_\d+"', "", text)
    text = re.sub(r'<svg ([^>]*?)width="[\d.]+pt" height="[\d.]+pt"', r"<svg \1", text, count=1).replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    text = text.replace("xlink:href", "href")
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return re.sub(r"font: ([\d.]+px) [^;\"]+", r"font-size: \1; font-family: inherit", text)
