"""One self-contained HTML page: the verdict first, then the pictures, then every trial."""

from __future__ import annotations

import math
from html import escape
from importlib import resources

from autotune.report import facts as known
from autotune.report import plots
from autotune.report.facts import Facts
from autotune.report.rows import settings, table
from autotune.report.text import bound_text, seconds
from autotune.verdict.importance import Importance

SMALL = 0.5


def page(facts: Facts) -> str:
    """The whole page; it loads nothing."""
    body = "\n".join([_verdict(facts), *_sections(facts), _footer(facts)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(facts.study)} - autotune</title><style>{_file('page.css')}</style></head>\n"
        f"<body><main>\n{body}\n</main><script>{_file('page.js')}</script></body></html>\n"
    )


def _file(name: str) -> str:
    return resources.files("autotune.report").joinpath(name).read_text(encoding="utf-8")


def _verdict(facts: Facts) -> str:
    head = known.headline(facts)
    base, best = facts.score(facts.baseline), facts.score(facts.chosen)
    unit = facts.metric.unit
    tiles = [
        ("defaults, in the search", base),
        ("chosen, in the search" if facts.chosen != facts.baseline else "", best),
    ]
    told = "".join(
        f'<div class="tile"><b>{value:,.{0 if abs(value) > 100 else 3}f}</b> {escape(unit)}<span>{name}</span></div>'
        for name, value in tiles
        if value is not None and name
    )
    count = f"{len(facts.measured)} of {len(facts.results)}"
    tiles_more = f'<div class="tile"><b>{count}</b> trials<span>gave a score</span></div>'
    live = '<p class="note">The night is still running: this page shows what is settled so far.</p>'
    return (
        f'<header class="verdict {head.tone}"><p class="study">{escape(facts.study)}</p>'
        f"<h1>{escape(head.title)}</h1><p>{escape(head.detail)}</p>{live if facts.running else ''}"
        f'<div class="tiles">{told}{tiles_more}</div>{_command(facts)}</header>'
    )


def _command(facts: Facts) -> str:
    if not facts.command:
        return ""
    chosen = facts.trial(facts.chosen)
    named = ""
    if chosen is not None:
        what = settings(chosen.config.params) if chosen.config.params else "the server's defaults"
        named = f"<p>Trial {chosen.number}: {what}</p>"
    return (
        f'{named}<div class="command"><button type="button" id="copy">Copy</button>'
        f'<pre id="command">{escape(facts.command)}</pre></div>'
    )


def _sections(facts: Facts) -> list[str]:
    responses = "".join(
        _figure(f"response-{name}", plots.response(facts, name), name, bound_text(facts.bound(name)))
        for name in facts.names()
    )
    return [
        _section("History", _history(facts)),
        _section("Parameters", _grid(_contour(facts) + responses), _what_is_drawn(facts, responses)),
        _section("What matters", _grid(_importance(facts) + _as_good(facts))),
        _section("Throughput and latency", _grid(_tradeoff(facts) + _confirmation(facts))),
        _section("The night", _grid(_night(facts) + _drift(facts))),
        _section("Asked and in force", _clamps(facts)),
        _section("All trials", table(facts)),
    ]


def _section(title: str, body: str, note: str = "") -> str:
    return f"<section><h2>{title}</h2>{note}{body}</section>" if body else ""


def _grid(body: str) -> str:
    return f'<div class="grid">{body}</div>' if body else ""


def _figure(name: str, svg: str, title: str, caption: str = "", wide: bool = False) -> str:
    """A picture with its caption; the caption alone where there is nothing to draw."""
    if not svg and not caption:
        return ""
    drawn = f'<div class="plot" role="img" aria-label="{escape(title)}" data-plot="{escape(name)}">{svg}</div>'
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    extra = ' class="wide"' if wide else ""
    return f"<figure{extra}><h3>{escape(title)}</h3>{drawn if svg else ''}{text}</figure>"


def _history(facts: Facts) -> str:
    return _figure("history", plots.history(facts), "Every trial in order", wide=True) if facts.results else ""


def _contour(facts: Facts) -> str:
    svg = plots.contour(facts)
    if not svg:
        return ""
    caption = f"Colours: {plots.metric_words(facts)}, interpolated between trials. Red: the nearest ran out of memory."
    return _figure("contour", svg, "The two main parameters", caption)


def _what_is_drawn(facts: Facts, responses: str) -> str:
    if not responses or not facts.measured:
        return ""
    return (
        '<p class="note">A point per trial, the other parameters as they were; the curve is a fit with its 95 % band. '
        "Dotted: the bounds of the search. Crosses: trials that could not be served.</p>"
    )


def _importance(facts: Facts) -> str:
    found = known.what_matters(facts)
    if not found:
        return ""
    items = "".join(f"<li>{escape(_answer(one))}</li>" for one in found)
    svg = plots.importance(facts)
    drawn = f'<div class="plot" role="img" aria-label="Importance" data-plot="importance">{svg}</div>' if svg else ""
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
        f"<li>{settings(t.params)} <span>(trial {', '.join(map(str, t.trials))})</span></li>" for t in close[:8]
    )
    more = f"<p>and {len(close) - 8} more</p>" if len(close) > 8 else ""
    return (
        f"<figure><h3>As good, within the noise</h3><p>Not told apart from the best; the safer ones (more memory left) "
        f"come first.</p><ol>{items}</ol>{more}</figure>"
    )


def _tradeoff(facts: Facts) -> str:
    return _figure("tradeoff", plots.tradeoff(facts), "Throughput against latency") if known.tradeoff(facts) else ""


def _confirmation(facts: Facts) -> str:
    done = facts.confirmed
    if done is None:
        return ""
    return _figure(
        "confirmation", plots.confirmation(facts), "Confirmation on fresh starts", f"Verdict: {done.sentence}."
    )


def _night(facts: Facts) -> str:
    parts = known.where_time_went(facts)
    total = sum(parts.values())
    told = ", ".join(f"{name} {seconds(value)}" for name, value in parts.items() if value > SMALL)
    return (
        _figure("night", plots.night(facts), "Where the night went", f"{seconds(total)} in all: {told}.")
        if total
        else ""
    )


def _drift(facts: Facts) -> str:
    starts = known.baselines(facts)
    if not starts:
        return ""
    text = str(known.drift(facts, starts)).capitalize()
    return _figure("drift", plots.drift(facts), "Did the machine change?", f"{text}.")


def _clamps(facts: Facts) -> str:
    found = known.clamps(facts)
    if not facts.measured:
        return ""
    if not found:
        return "<p>Every parameter ran at the value that was asked, as far as the server tells.</p>"
    items = "".join(
        f"<li>trial {c.trial}: {escape(c.parameter)} asked {_figure_text(c.asked)}, runs {_figure_text(c.runs)}</li>"
        for c in found
    )
    return f'<ul class="columns">{items}</ul>'


def _figure_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))


def _footer(facts: Facts) -> str:
    load = facts.workload
    how = f"{load.concurrency} in flight" if load.arrival == "closed" else f"{load.request_rate:g} requests per second"
    words = (
        facts.description,
        f"{facts.engine}, {facts.model or 'model not named'}" + (f", {facts.gpu}" if facts.gpu else ""),
        f"{load.input_tokens} tokens in, {load.output_tokens} out, {how}",
        f"autotune {facts.autotune_version}, {facts.made_at}",
    )
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in words if line) + "</footer>"
