"""One self-contained HTML page: the verdict first, then the pictures, then every trial."""

from __future__ import annotations

from html import escape
from importlib import resources

from autotune.report import night_sections as of_night
from autotune.report import sections as of_search
from autotune.report.facts import Facts
from autotune.report.headline import headline
from autotune.report.html import sentence, settings
from autotune.report.rows import table


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
    head = headline(facts)
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
    changed = f'<p class="note">{escape(sentence(facts.changed))}</p>' if facts.changed else ""
    drifted = f"<p>{escape(sentence(facts.drift.sentence))}</p>" if facts.drift.corrected else ""
    return (
        f'<header class="verdict {head.tone}"><p class="study">{escape(facts.study)}</p>'
        f"<h1>{escape(head.title)}</h1><p>{escape(head.detail)}</p>{drifted}{changed}{live if facts.running else ''}"
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
    return [
        _section("History", of_search.history(facts)),
        _section("Parameters", of_search.parameters(facts)),
        _section("What matters", of_search.what_matters(facts)),
        _section("Throughput and latency", of_night.loads(facts)),
        _section("The night", of_night.night(facts)),
        _section("Asked and in force", of_search.clamps(facts)),
        _section("Failures and remarks", of_night.remarks(facts)),
        _section("All trials", table(facts)),
    ]


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def _footer(facts: Facts) -> str:
    load = facts.workload
    words = (
        facts.description,
        f"{facts.engine}, {facts.model or 'model not named'}" + (f", {facts.gpu}" if facts.gpu else ""),
        f"{load.asked()}, {load.paced()}",
        f"autotune {facts.autotune_version}, {facts.made_at}",
    )
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in words if line) + "</footer>"
