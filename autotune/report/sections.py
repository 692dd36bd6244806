"""The page's parts about the search: history, parameters, what matters, values in force."""

from __future__ import annotations

import math
from html import escape

from autotune.report import facts as known
from autotune.report import plots
from autotune.report.facts import Facts
from autotune.report.html import figure, grid, plot, settings
from autotune.report.text import bound_text
from autotune.verdict.importance import Importance

MOST_EQUALS = 8


def history(facts: Facts) -> str:
    """Every trial in order."""
    return figure("history", plots.history(facts), "Every trial in order", wide=True) if facts.results else ""


def parameters(facts: Facts) -> str:
    """The map of the two main parameters, and the response of each."""
    responses = "".join(
        figure(f"response-{name}", plots.response(facts, name), name, bound_text(facts.bound(name)))
        for name in facts.names()
    )
    return _what_is_drawn(facts, responses) + grid(_contour(facts) + responses)


def _what_is_drawn(facts: Facts, responses: str) -> str:
    if not responses or not facts.measured:
        return ""
    return (
        '<p class="note">A point per trial with its 95 % bar, the other parameters as they were; the curve is a fit '
        "with its 95 % band. Dotted: the bounds of the search. Crosses: trials that could not be served.</p>"
    )


def _contour(facts: Facts) -> str:
    svg = plots.contour(facts)
    if not svg:
        return ""
    words = f"Colours: {plots.metric_words(facts)}, between trials that are near."
    caption = f"{words} Red: the nearest ran out of memory. Dotted: bounds of the search."
    return figure("contour", svg, "The two main parameters", caption)


def what_matters(facts: Facts) -> str:
    """Which parameters have an effect, and which settings are as good as the best."""
    return grid(_importance(facts) + _as_good(facts))


def _importance(facts: Facts) -> str:
    found = known.what_matters(facts)
    if not found:
        return ""
    items = "".join(f"<li>{escape(_answer(one))}</li>" for one in found)
    drawn = plot("importance", plots.importance(facts), "Importance")
    return f"<figure><h3>Which parameters matter</h3>{drawn}<ul>{items}</ul></figure>"


def _answer(one: Importance) -> str:
    if math.isinf(one.high):
        return f"{one.parameter}: cannot tell, too few trials"
    low, high = 100 * one.low, 100 * one.high
    best = f", best at {one.best}" if one.best is not None else ""
    reach = f"{low:.0f} to {high:.0f} %" if one.high < 10 else f"{low:.0f} to more than 1,000 %"
    return f"{one.parameter}: {one.answer} (effect {100 * one.effect:.0f} %, 95 % interval {reach}{best})"


def _as_good(facts: Facts) -> str:
    close = known.as_good(facts)
    if not close:
        return ""
    items = "".join(
        f"<li>{settings(t.params)} <span>(trial {', '.join(map(str, t.trials))})</span></li>"
        for t in close[:MOST_EQUALS]
    )
    more = f"<p>and {len(close) - MOST_EQUALS} more</p>" if len(close) > MOST_EQUALS else ""
    return (
        f"<figure><h3>As good, within the noise</h3><p>Not told apart from the best; the safer ones (more memory left) "
        f"come first.</p><ol>{items}</ol>{more}</figure>"
    )


def clamps(facts: Facts) -> str:
    """Values that the server ran at instead of the ones it was asked for."""
    found = known.clamps(facts)
    if not facts.measured:
        return ""
    if not found:
        return "<p>Every parameter ran at the value that was asked, as far as the server tells.</p>"
    items = "".join(
        f"<li>trial {c.trial}: {escape(c.parameter)} asked {_said(c.asked)}, runs {_said(c.runs)}</li>" for c in found
    )
    return f'<ul class="columns">{items}</ul>'


def _said(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))
