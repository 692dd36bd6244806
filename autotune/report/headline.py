"""The first thing to read: what the night found, and how much of it can be believed. Pure."""

from __future__ import annotations

from collections import Counter

from autotune.report.facts import Facts, state
from autotune.values import Value
from autotune.verdict.objective import gain
from autotune.verdict.schedule import BASELINE


class Headline(Value, frozen=True, kw_only=True):
    """``tone`` is good, bad or plain."""

    title: str
    detail: str
    tone: str


def headline(facts: Facts) -> Headline:
    """The verdict: confirmed where it is, else as searched and said to be so."""
    judgement = facts.confirmed.judgement if facts.confirmed else None
    if judgement is None:
        return _searched(facts)
    best = judgement.headline
    defaults = sum(start.arm == BASELINE for start in facts.confirmed.starts) if facts.confirmed else 0
    against = f"{best.starts} against {defaults} of the defaults"
    inside = f"{against}, noise of one start {100 * judgement.noise:.1f} %"
    span = f"{100 * best.low:.1f} to {100 * best.high:.1f} %"
    match best.kind:
        case "gain":
            title, tone = f"Reliable gain of {100 * best.gain:.1f} %", "good"
        case "worse":
            title, tone = f"The finalist is worse by {-100 * best.gain:.1f} %: keep the defaults", "bad"
        case _:
            title, tone = "No reliable difference from the defaults", "plain"
    return Headline(
        title=title, detail=f"95 % interval {span}, confirmed on fresh server starts ({inside}).", tone=tone
    )


def _searched(facts: Facts) -> Headline:
    base, best = facts.score(facts.baseline), facts.score(facts.chosen)
    if base is not None and best is not None and facts.chosen != facts.baseline:
        relative = 100 * gain(best, base, facts.objective.metric)
        detail = "The best of many noisy values flatters itself. `autotune confirm` measures it against the defaults."
        if facts.confirmed is not None:
            detail = f"The confirmation has no verdict: {facts.confirmed.sentence}."
        return Headline(title=f"Not confirmed: {relative:+.1f} % as searched", detail=detail, tone="plain")
    if base is not None:
        detail = f"{len(facts.results)} trials; none is believed to be better than the server's defaults."
        return Headline(title="Nothing better than the defaults was found", detail=detail, tone="plain")
    if best is not None:
        detail = "There is nothing to compare the best configuration with: the defaults gave no measurement."
        return Headline(title="No baseline", detail=detail, tone="bad")
    return Headline(title="Nothing was measured", detail=_what_failed(facts), tone="bad")


def _what_failed(facts: Facts) -> str:
    kinds = Counter(state(r) for r in facts.results)
    told = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"What became of the trials: {told}." if told else "No trial is settled yet."
