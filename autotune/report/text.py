"""The report in words: spans, bounds, and the summary for a terminal. Pure."""

from __future__ import annotations

from collections import Counter

from autotune.report import facts as known
from autotune.report.facts import Confirmed, Facts
from autotune.report.headline import headline
from autotune.report.remarks import remarks, spans
from autotune.report.times import baselines, where_time_went
from autotune.space.inputs import Bound
from autotune.values import ParamValue
from autotune.verdict.objective import metric_of
from autotune.verdict.schedule import BASELINE


def seconds(value: float) -> str:
    """42 s, 3 min or 2.1 h."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def bound_text(bound: Bound | None) -> str:
    """The range with its derivation."""
    if bound is None:
        return ""
    if bound.low is None or bound.high is None:
        return f"Searched: {bound.derivation}"
    return f"Searched from {bound.low:,g} to {bound.high:,g}: {bound.derivation}"


def params_line(params: dict[str, ParamValue]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items()) or "server defaults"


def arm_name(arm: str) -> str:
    """A side of the confirmation by its number."""
    return "defaults" if arm == str(BASELINE) else f"finalist {arm}"


def limit_lines(done: Confirmed) -> list[tuple[str, ...]]:
    """Side, limit, mean over its starts, the same with confidence, and whether it is held."""
    return [
        (
            arm_name(arm),
            f"{check.metric} {check.limit:.4g} {metric_of(check.metric).unit}",
            f"{check.value:.4g}",
            f"{check.bound:.4g}",
            "yes" if check.holds else "no",
        )
        for arm, checks in sorted(done.limits.items())
        for check in checks
    ]


def summary(facts: Facts) -> str:
    """For a terminal: the verdict, the command, what matters, where the time went."""
    head = headline(facts)
    lines = [facts.study, *([facts.changed] if facts.changed else []), "", head.title, f"  {head.detail}"]
    for name, number in (("defaults", facts.baseline), ("chosen", facts.chosen)):
        value, trial = facts.score(number), facts.trial(number)
        if value is not None and trial is not None:
            told = f"{value:,.1f}" if value > 10 else f"{value:.4g}"
            lines.append(f"  {name:<9}{told} {facts.metric.unit}  trial {number}: {params_line(trial.config.params)}")
    if facts.command:
        lines += ["", "Command", f"  {facts.command}"]
    blocks = (
        _limits(facts),
        _trials(facts),
        _matters(facts),
        _equal(facts),
        _clamped(facts),
        _remarks(facts),
        _time(facts),
    )
    return "\n".join([*lines, *(line for block in blocks if block for line in ("", *block))])


def _limits(facts: Facts) -> list[str]:
    lines = limit_lines(facts.confirmed) if facts.confirmed else []
    told = [
        f"  {side}: {limit}: {mean} ({sure} with confidence), held: {held}" for side, limit, mean, sure, held in lines
    ]
    return ["Limits, over the confirmation's starts", *told] if told else []


def _trials(facts: Facts) -> list[str]:
    kinds = Counter(known.state(r) for r in facts.results)
    return ["Trials", "  " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())] if kinds else []


def _matters(facts: Facts) -> list[str]:
    found = known.what_matters(facts)
    return ["What matters", *(f"  {one}" for one in found)] if found else []


def _equal(facts: Facts) -> list[str]:
    close = known.as_good(facts)
    if not close:
        return []
    shown = [f"  {params_line(t.params)} (trial {', '.join(map(str, t.trials))})" for t in close[:5]]
    return ["As good within the noise, the safer first", *shown]


def _clamped(facts: Facts) -> list[str]:
    found = known.clamps(facts)
    return (
        ["Asked and in force", *(f"  trial {c.trial}: {c.parameter} asked {c.asked}, runs {c.runs}" for c in found)]
        if found
        else []
    )


def _named(names: tuple[str, ...]) -> str:
    return f"{'trial' if len(names) == 1 else 'trials'} {spans(names)}"


def _remarks(facts: Facts) -> list[str]:
    found = remarks(facts)
    return ["Failures and remarks", *(f"  {r.about} ({_named(r.trials)}): {r.text}" for r in found)] if found else []


def _time(facts: Facts) -> list[str]:
    parts = {name: value for name, value in where_time_went(facts).items() if value > 0}
    if not parts:
        return []
    told = [f"  {name} {seconds(value)}" for name, value in parts.items()]
    return ["Where the night went", *told, *([f"  {facts.drift.sentence}"] if baselines(facts) else [])]
