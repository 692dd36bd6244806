"""The pictures of a search, each a function from facts to SVG; an empty text where there is nothing to draw."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy import stats

from autotune.report import facts as known
from autotune.report.canvas import (
    ACCENT,
    BAD,
    GOOD,
    MUTED,
    SECOND,
    SIZE,
    Canvas,
    fitted,
    numbers,
    padded,
    scale,
)
from autotune.report.facts import Facts
from autotune.report.surface import draw
from autotune.values import Infeasible, Measured
from autotune.verdict.noise import predict_stderr

WIDE = (8.6, 2.9)
REACH = 1.96
MOST_IN_A_ROW = 5
MANY_TRIALS = 60
NAMES_ALONG = 40
"""As many names fit beside each other."""
Spots = list[tuple[float, float, float]]
"""Place, score, and standard error of the score with the noise of starts."""


def history(facts: Facts) -> str:
    """Scores by trial with their uncertainty, the best so far, and a cross where a trial could not be served."""
    if not facts.results:
        return ""
    canvas = Canvas("history", WIDE)
    with canvas as axes:
        _scores(axes, facts)
        _failures(axes, facts)
        axes.set_xlabel("trial")
        axes.set_ylabel(metric_words(facts) if facts.measured else "")
        numbers(axes.yaxis)
        if not facts.measured:
            axes.set_yticks([])
        axes.set_xlim(-0.7, max(r.number for r in facts.results) + 0.7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        several_rows = len(axes.get_legend_handles_labels()[0]) > MOST_IN_A_ROW
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3 if several_rows else MOST_IN_A_ROW)
    return canvas.svg


def _scores(axes: Axes, facts: Facts) -> None:
    marks = [(r.number, r.outcome.score) for r in facts.measured if isinstance(r.outcome, Measured)]
    if not marks:
        return
    errors = [REACH * predict_stderr(facts.noise, score) for _, score in marks]
    x, y = [n for n, _ in marks], [s.value for _, s in marks]
    size = _size(len(marks))
    bars = axes.errorbar(x, y, errors, fmt="o", color=ACCENT, ms=size, label="measured, 95 % with restart noise")
    for line in bars[2]:
        line.set_alpha(0.45)
    if raw := known.as_measured(facts):
        axes.plot(
            list(raw), list(raw.values()), "o", mfc="none", mec=MUTED, ms=size, label="before drift was taken out"
        )
    best = np.maximum.accumulate(y) if facts.metric.direction == "maximise" else np.minimum.accumulate(y)
    axes.step(x, best, where="post", color=SECOND, lw=1.2, label="best seen")
    base = facts.score(facts.baseline)
    if base is not None:
        axes.axhline(base, color=MUTED, lw=1, ls="--", label="baseline")
    chosen = facts.score(facts.chosen)
    if chosen is not None and facts.chosen is not None:
        axes.plot([facts.chosen], [chosen], "o", mfc="none", mec=GOOD, mew=2, ms=11, label="chosen")


def _size(marks: int) -> float:
    """Of a mark, so that many of them stay apart."""
    return 5.0 if marks <= MANY_TRIALS else 3.0


def _failures(axes: Axes, facts: Facts) -> None:
    failed = [r for r in facts.results if not isinstance(r.outcome, Measured)]
    if not failed:
        return
    axes.margins(y=0.2)
    low = axes.get_ylim()[0] if facts.measured else 0.0
    axes.plot([r.number for r in failed], [low] * len(failed), "x", color=BAD, ms=7, mew=2, label="no score")
    room, last = len(facts.results) / NAMES_ALONG, -math.inf
    for result in failed:
        if result.number - last < room:
            continue
        spot, last = (result.number, low), result.number
        axes.annotate(
            known.state(result), spot, (0, 7), textcoords="offset points", ha="center", color=BAD, size=7.5, rotation=90
        )


def response(facts: Facts, name: str) -> str:
    """Score over one parameter as it was in force, with its uncertainty and the bounds of the search."""
    points = _points(facts, name)
    if len({x for x, _, _ in points}) < 2:
        return _choices(facts, name)
    bound = facts.bound(name)
    log = bool(bound and bound.log) and min(x for x, _, _ in points) > 0
    canvas = Canvas(f"response-{name}")
    with canvas as axes:
        _curve(axes, points, log)
        x = [at for at, _, _ in points]
        low, high = padded(min(y - REACH * e for _, y, e in points), max(y + REACH * e for _, y, e in points), False)
        axes.set_ylim(low, high)
        _bars(axes, points)
        failed = [known.number_of(facts, r, name) for r in facts.results if isinstance(r.outcome, Infeasible)]
        lost = [value for value in failed if value is not None]
        axes.plot(lost, [low + 0.03 * (high - low)] * len(lost), "x", color=BAD, ms=7, mew=2)
        edges = [e for e in (bound.low, bound.high) if e is not None] if bound else []
        for edge in edges:
            axes.axvline(edge, color=MUTED, lw=1.2, ls=":")
        scale(axes, "x", log)
        axes.set_xlim(*padded(min([*x, *lost, *edges]), max([*x, *lost, *edges]), log))
        axes.set_xlabel(name)
        axes.set_ylabel(metric_words(facts))
        numbers(axes.yaxis)
    return canvas.svg


def _bars(axes: Axes, points: Spots) -> None:
    """A point per trial with its 95 % bar."""
    x, y, errors = zip(*points, strict=True)
    size = _size(len(points))
    bars = axes.errorbar(x, y, [REACH * e for e in errors], fmt="o", color=ACCENT, ms=size, elinewidth=1)
    for line in bars[2]:
        line.set_alpha(0.35)


def _curve(axes: Axes, points: Spots, log: bool) -> None:
    x, y = np.array([a for a, _, _ in points]), np.array([b for _, b, _ in points])
    place = np.log(x) if log else x
    at = np.linspace(place.min(), place.max(), 60)
    fit = fitted(place, np.log(y), at)
    if fit is None:
        return
    mean, error = fit
    reach = error * float(stats.t.ppf(0.975, len(x) - 3 if len(np.unique(x)) > 2 else len(x) - 2))
    shown = np.exp(at) if log else at
    axes.fill_between(shown, np.exp(mean - reach), np.exp(mean + reach), color=ACCENT, alpha=0.16, lw=0)
    axes.plot(shown, np.exp(mean), color=ACCENT, lw=1.4)


def _choices(facts: Facts, name: str) -> str:
    """A column per value of a parameter whose values are words; its geometric mean is a bar."""
    values = {r.number: known.asked_or_in_force(facts, r).get(name) for r in facts.results}
    words = sorted({str(v) for v in values.values() if isinstance(v, str | bool)})
    if len(words) < 2:
        return ""
    canvas = Canvas(f"response-{name}")
    with canvas as axes:
        points = [
            (
                float(words.index(str(values[r.number]))),
                r.outcome.score.value,
                predict_stderr(facts.noise, r.outcome.score),
            )
            for r in facts.measured
            if isinstance(r.outcome, Measured) and str(values[r.number]) in words
        ]
        if not points:
            return ""
        _bars(axes, points)
        for column in {x for x, _, _ in points}:
            mean = np.exp(np.mean([np.log(y) for x, y, _ in points if x == column]))
            axes.plot([column - 0.2, column + 0.2], [mean, mean], color=ACCENT, lw=2)
        axes.set_xticks(range(len(words)), words)
        axes.set_xlim(-0.6, len(words) - 0.4)
        axes.set_xlabel(name)
        axes.set_ylabel(metric_words(facts))
        numbers(axes.yaxis)
    return canvas.svg


def contour(facts: Facts) -> str:
    """Score over the two main parameters, with the region where trials ran out of memory."""
    pair = known.main_parameters(facts)
    if pair is None:
        return ""
    spots = [(known.number_of(facts, r, pair[0]), known.number_of(facts, r, pair[1]), r) for r in facts.ranked]
    placed = [(x, y, r) for x, y, r in spots if x is not None and y is not None]
    scored = [(x, y, r.outcome.score.value) for x, y, r in placed if isinstance(r.outcome, Measured)]
    lost = [(x, y) for x, y, r in placed if known.ran_out_of_memory(r)]
    if len(scored) < known.FEW_TRIALS:
        return ""
    lowest = min(x for x, _, _ in placed), min(y for _, y, _ in placed)
    logs = [bool(b and b.log) and lowest[i] > 0 for i, b in enumerate(map(facts.bound, pair))]
    canvas = Canvas("contour")
    with canvas as axes:
        axes.grid(False)
        draw(axes, scored, lost, (logs[0], logs[1]))
        axes.set_xlabel(pair[0])
        axes.set_ylabel(pair[1])
        scale(axes, "x", logs[0])
        scale(axes, "y", logs[1])
        _bounds(axes, facts, pair)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return canvas.svg


def _bounds(axes: Axes, facts: Facts, pair: tuple[str, str]) -> None:
    """The bounds of the search, as far as the map reaches."""
    across, along = axes.get_xlim(), axes.get_ylim()
    for name, line in zip(pair, (axes.axvline, axes.axhline), strict=True):
        bound = facts.bound(name)
        for edge in (bound.low, bound.high) if bound else ():
            if edge is not None:
                line(edge, color=MUTED, lw=1.2, ls=":")
    axes.set_xlim(*across)
    axes.set_ylim(*along)


def importance(facts: Facts) -> str:
    """Difference between the best and the worst tried value of each parameter, with its interval."""
    found = [f for f in known.what_matters(facts) if math.isfinite(f.high)]
    if not found:
        return ""
    canvas = Canvas("importance", (SIZE[0], 0.9 + 0.45 * len(found)))
    with canvas as axes:
        top = max(100 * min(f.high, 20 * (f.effect + 0.05)) for f in found)
        for row, one in enumerate(reversed(found)):
            colour = GOOD if one.answer == "matters" else MUTED
            axes.plot([100 * one.low, 100 * one.high], [row, row], color=colour, lw=3, alpha=0.5, solid_capstyle="butt")
            axes.plot([100 * one.effect], [row], "o", color=colour, ms=7)
        axes.set_yticks(range(len(found)), [f.parameter for f in reversed(found)])
        axes.set_ylim(-0.6, len(found) - 0.4)
        axes.set_xlim(0, top * 1.05)
        axes.set_xlabel("effect in %, with 95 % interval")
        axes.grid(axis="y", visible=False)
    return canvas.svg


def _points(facts: Facts, name: str) -> Spots:
    found = [
        (known.number_of(facts, r, name), r.outcome.score) for r in facts.measured if isinstance(r.outcome, Measured)
    ]
    return sorted((x, s.value, predict_stderr(facts.noise, s)) for x, s in found if x is not None)


def metric_words(facts: Facts) -> str:
    """The objective with its unit, for an axis."""
    name = facts.objective.metric.removesuffix(f"_{facts.metric.unit.replace('/', '_')}").removesuffix("_tok_s")
    return f"{name.removesuffix('_s').removesuffix('_req').replace('_', ' ')}, {facts.metric.unit}"
