"""The page's parts about loads, the confirmation and the night itself."""

from __future__ import annotations

from html import escape

from autotune.report import night_plots as plots
from autotune.report.facts import Confirmed, Facts
from autotune.report.html import figure, grid, plot, rows, sentence
from autotune.report.remarks import remarks as remarks_of
from autotune.report.remarks import spans
from autotune.report.text import arm_name, limit_lines, seconds
from autotune.report.times import baselines, where_time_went
from autotune.report.tradeoff import tradeoff

SMALL_S = 0.5


def loads(facts: Facts) -> str:
    """Throughput against latency, and the confirmation's starts with the limits."""
    return grid(_tradeoff(facts) + _confirmation(facts))


def _tradeoff(facts: Facts) -> str:
    found = tradeoff(facts)
    if found is None:
        return ""
    curves = "A curve per start, a point per load. " if found.curves() else ""
    drifted = "These are figures as measured, before drift was taken out." if facts.drift.corrected else ""
    caption = f"{curves}Front: what no other load beats in both, named by trial. {drifted}".strip()
    return figure("tradeoff", plots.tradeoff(facts), "Throughput against latency", caption)


def _confirmation(facts: Facts) -> str:
    done = facts.confirmed
    if done is None:
        return ""
    drawn = plot("confirmation", plots.confirmation(facts), "Confirmation on fresh starts")
    said = f"<figcaption>Verdict: {escape(done.sentence)}.</figcaption>"
    return f"<figure><h3>Confirmation on fresh starts</h3>{drawn}{said}{_limits(done)}</figure>"


def _limits(done: Confirmed) -> str:
    """Every limit of the study by side, over all its starts, and who fell away."""
    lines = limit_lines(done)
    dropped = "".join(f"<li>{escape(arm_name(arm))}: {escape(why)}</li>" for arm, why in done.dropped.items())
    table = rows(("side", "limit", "mean", "with confidence", "held"), ([escape(c) for c in row] for row in lines))
    return (table if lines else "") + (f"<p>Dropped:</p><ul>{dropped}</ul>" if dropped else "")


def night(facts: Facts) -> str:
    """Where the time went, and whether the machine changed meanwhile."""
    return grid(_times(facts) + _drift(facts))


def _times(facts: Facts) -> str:
    parts = where_time_went(facts)
    total = sum(parts.values())
    told = ", ".join(f"{name} {seconds(value)}" for name, value in parts.items() if value > SMALL_S)
    caption = f"{seconds(total)} in all: {told}."
    return figure("night", plots.night(facts), "Where the night went", caption) if total else ""


def _drift(facts: Facts) -> str:
    if not baselines(facts):
        return ""
    text = f"Starts of the defaults, as measured. {sentence(facts.drift.sentence)}"
    return figure("drift", plots.drift(facts), "Did the machine change?", text)


def remarks(facts: Facts) -> str:
    """What failed and what the gates saw, once each, with the trials and a line that proves it."""
    found = remarks_of(facts)
    lines = (
        (
            f'<b class="{"bad" if one.fatal else "plain"}">{escape(one.about)}</b>',
            escape(spans(one.trials)),
            escape(one.text) + (f"<br><code>{escape(one.evidence)}</code>" if one.evidence else ""),
        )
        for one in found
    )
    return f'<div class="remarks">{rows(("what", "trials", "in the first of them"), lines)}</div>' if found else ""
