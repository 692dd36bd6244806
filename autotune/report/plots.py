"""The pictures of a night, each a function from facts to SVG; an empty text where there is nothing to draw."""

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
    GRID,
    INK,
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
from autotune.values import Infeasible, Measured, TrialResult
from autotune.verdict.noise import predict_stderr

WIDE = (8.6, 2.9)
REACH = 1.96
PART_COLOURS = (SECOND, GRID, ACCENT, MUTED, BAD, INK, GOOD)


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
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5)
    return canvas.svg


def _scores(axes: Axes, facts: Facts) -> None:
    model = known.noise(facts)
    marks = [(r.number, r.outcome.score) for r in facts.measured if isinstance(r.outcome, Measured)]
    if not marks:
        return
    errors = [REACH * predict_stderr(model, score) for _, score in marks]
    x, y = [n for n, _ in marks], [s.value for _, s in marks]
    bars = axes.errorbar(x, y, errors, fmt="o", color=ACCENT, ms=5, label="measured, 95 % with restart noise")
    for line in bars[2]:
        line.set_alpha(0.45)
    best = np.maximum.accumulate(y) if facts.metric.direction == "maximise" else np.minimum.accumulate(y)
    axes.step(x, best, where="post", color=SECOND, lw=1.2, label="best seen")
    base = facts.score(facts.baseline)
    if base is not None:
        axes.axhline(base, color=MUTED, lw=1, ls="--", label="baseline")
    chosen = facts.score(facts.chosen)
    if chosen is not None and facts.chosen is not None:
        axes.plot([facts.chosen], [chosen], "o", mfc="none", mec=GOOD, mew=2, ms=11, label="chosen")


def _failures(axes: Axes, facts: Facts) -> None:
    failed = [r for r in facts.results if not isinstance(r.outcome, Measured)]
    if not failed:
        return
    axes.margins(y=0.2)
    low = axes.get_ylim()[0] if facts.measured else 0.0
    axes.plot([r.number for r in failed], [low] * len(failed), "x", color=BAD, ms=7, mew=2, label="no score")
    for result in failed:
        spot = (result.number, low)
        axes.annotate(
            known.state(result), spot, (0, 7), textcoords="offset points", ha="center", color=BAD, size=7.5, rotation=90
        )


def response(facts: Facts, name: str) -> str:
    """Score over one parameter as it was in force, a fitted curve with its band, and the bounds."""
    points = _points(facts, name)
    if not points or len({x for x, _ in points}) < 2:
        return ""
    bound = facts.bound(name)
    log = bool(bound and bound.log) and min(x for x, _ in points) > 0
    canvas = Canvas(f"response-{name}")
    with canvas as axes:
        _curve(axes, points, log)
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o", color=ACCENT, ms=5)
        failed = [_value(facts, r, name) for r in facts.results if isinstance(r.outcome, Infeasible)]
        lost = [value for value in failed if value is not None]
        low, high = padded(min(y), max(y), False, 0.15)
        axes.set_ylim(low, high)
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


def _curve(axes: Axes, points: list[tuple[float, float]], log: bool) -> None:
    x, y = np.array([a for a, _ in points]), np.array([b for _, b in points])
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


def contour(facts: Facts) -> str:
    """Score over the two main parameters, with the region where trials ran out of memory."""
    pair = known.main_parameters(facts)
    if pair is None:
        return ""
    spots = [(_value(facts, r, pair[0]), _value(facts, r, pair[1]), r) for r in facts.results]
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
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return canvas.svg


def tradeoff(facts: Facts) -> str:
    """Throughput against latency, and the settings that no other beats in both."""
    found = known.tradeoff(facts)
    if found is None:
        return ""
    canvas = Canvas("tradeoff")
    with canvas as axes:
        axes.plot(found.latency_s, found.throughput, "o", color=ACCENT, ms=5, label="trial")
        where = {n: (x, y) for n, x, y in zip(found.trials, found.latency_s, found.throughput, strict=True)}
        front = sorted(where[n] for n in found.front)
        axes.step(*zip(*front, strict=True), where="post", color=GOOD, lw=1.5, marker="o", label="Pareto front")
        for spot in dict.fromkeys(front):
            numbers_there = ", ".join(str(n) for n in found.front if where[n] == spot)
            axes.annotate(numbers_there, spot, (5, 5), textcoords="offset points", size=8)
        if facts.baseline in where:
            axes.plot(*where[facts.baseline], "s", mfc="none", mec=INK, ms=10, label="baseline")
        axes.set_xlabel(f"{found.latency.removesuffix('_s')} in s")
        axes.set_ylabel("output tok/s")
        numbers(axes.yaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return canvas.svg


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


def night(facts: Facts) -> str:
    """Where the time went, as one bar."""
    parts = {name: seconds for name, seconds in known.where_time_went(facts).items() if seconds > 0}
    total = sum(parts.values())
    if total <= 0:
        return ""
    colours = dict(zip(known.TIME_PARTS, PART_COLOURS, strict=True))
    canvas = Canvas("night", (SIZE[0], 0.75 + 0.36 * len(parts)))
    with canvas as axes:
        left = 0.0
        for row, (name, seconds) in enumerate(parts.items()):
            share = 100 * seconds / total
            axes.barh(-row, share, left=left, color=colours[name], height=0.7)
            axes.annotate(f"{share:.0f} %", (left + share, -row), (4, 0), textcoords="offset points", va="center")
            left += share
        axes.set_yticks([-row for row in range(len(parts))], list(parts))
        axes.set_xlim(0, 112)
        axes.set_xlabel("% of the time on servers")
        axes.grid(axis="y", visible=False)
    return canvas.svg


def drift(facts: Facts) -> str:
    """Every start of the defaults over the night."""
    starts = known.baselines(facts)
    if len(starts) < 2:
        return ""
    canvas = Canvas("drift")
    with canvas as axes:
        minutes, values = [t / 60 for t, _ in starts], [v for _, v in starts]
        mean = math.exp(sum(map(math.log, values)) / len(values))
        reach = REACH * known.noise(facts).total
        axes.axhspan(mean * math.exp(-reach), mean * math.exp(reach), color=GRID, alpha=0.5, lw=0, label="noise, 95 %")
        axes.plot(minutes, values, "o-", color=ACCENT, lw=1, ms=5, label="start of the defaults")
        axes.set_xlabel("minutes since the first trial")
        axes.set_ylabel(metric_words(facts))
        numbers(axes.yaxis)
        axes.margins(y=0.25)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return canvas.svg


def confirmation(facts: Facts) -> str:
    """The fresh starts of each side, in the order in which they ran."""
    done = facts.confirmed
    if done is None or not done.starts:
        return ""
    arms = sorted({s.arm for s in done.starts})
    canvas = Canvas("confirmation", (SIZE[0], 1.0 + 0.5 * len(arms)))
    with canvas as axes:
        for row, arm in enumerate(reversed(arms)):
            values = [s.value for s in done.starts if s.arm == arm]
            colour = MUTED if arm == 0 else GOOD
            axes.plot(values, [row] * len(values), "o", color=colour, ms=7, alpha=0.7)
            axes.plot([np.exp(np.mean(np.log(values)))], [row], "|", color=colour, ms=22, mew=2)
        axes.set_yticks(range(len(arms)), ["defaults" if a == 0 else f"finalist {a}" for a in reversed(arms)])
        axes.set_ylim(-0.6, len(arms) - 0.4)
        axes.margins(x=0.1)
        axes.set_xlabel(metric_words(facts))
        numbers(axes.xaxis)
        axes.grid(axis="y", visible=False)
    return canvas.svg


def _points(facts: Facts, name: str) -> list[tuple[float, float]]:
    found = [(_value(facts, r, name), r.outcome.score.value) for r in facts.measured if isinstance(r.outcome, Measured)]
    return sorted((x, y) for x, y in found if x is not None)


def _value(facts: Facts, result: TrialResult, name: str) -> float | None:
    value = known.asked_or_in_force(facts, result).get(name)
    return float(value) if isinstance(value, int | float) else None


def metric_words(facts: Facts) -> str:
    """The objective with its unit, for an axis."""
    name = facts.objective.metric.removesuffix(f"_{facts.metric.unit.replace('/', '_')}").removesuffix("_tok_s")
    return f"{name.removesuffix('_s').removesuffix('_req').replace('_', ' ')}, {facts.metric.unit}"
