"""Matplotlib drawings as inline SVG whose colours are the page's own, so that dark and light both fit."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Stand-ins of the drawing, replaced by the page's CSS variables. Small enough for a phone at 1:1.
INK, MUTED, GRID, PANEL = "#010101", "#020202", "#030303", "#040404"
ACCENT, GOOD, BAD, SECOND, THIRD = "#050505", "#060606", "#070707", "#080808", "#090909"
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PANEL: "panel",
    ACCENT: "accent",
    GOOD: "good",
    BAD: "bad",
    SECOND: "second",
    THIRD: "third",
}
SIZE = (4.7, 2.9)
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": INK,
    "axes.axisbelow": True,
    "text.parse_math": False,
}


class Canvas:
    """One drawing: ``with Canvas(name) as axes: ...``, then ``svg``."""

    def __init__(self, name: str, size: tuple[float, float] = SIZE) -> None:
        self.name = name
        self._size = size
        style: Any = {**STYLE, "svg.hashsalt": name}
        self._context = mpl.rc_context(style)
        self.svg = ""

    def __enter__(self) -> Axes:
        self._context.__enter__()
        self._figure = Figure(figsize=self._size, layout="constrained")
        return self._figure.add_subplot()

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            buffer = io.StringIO()
            self._figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            self.svg = _inline(buffer.getvalue())
        self._context.__exit__(*error)


def _inline(text: str) -> str:
    """Only the picture: no prologue, no metadata, no address of a schema, colours as variables."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = text.replace("xlink:href", "href")
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text.strip()


def numbers(axis: Any) -> None:
    """Plain numbers at the ticks: 12k, not 1.2e4."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """A number in few characters."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:.4g}"


def scale(axes: Axes, which: str, log: bool) -> None:
    """A log scale with readable ticks where asked, plain numbers on both."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
    numbers(axis)


def padded(low: float, high: float, log: bool, share: float = 0.06) -> tuple[float, float]:
    """The range with some room at both ends."""
    if log and low > 0:
        room = (high / low) ** share if high > low else 1.2
        return low / room, high * room
    room = (high - low) * share if high > low else abs(high) * 0.1 or 1.0
    return low - room, high + room


def fitted(x: Any, y: Any, at: Any) -> tuple[Any, Any] | None:
    """A parabola through noisy points with the standard error of its mean at ``at``; None with too few points."""
    degree = 2 if len(np.unique(x)) > 2 else 1
    spare = len(x) - degree - 1
    if len(np.unique(x)) < 2 or spare < 2:
        return None
    design, wanted = np.vander(x, degree + 1), np.vander(at, degree + 1)
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ y
    residual = y - design @ beta
    error = np.sqrt(np.einsum("ij,jk,ik->i", wanted, inverse, wanted) * float(residual @ residual) / spare)
    return wanted @ beta, error
