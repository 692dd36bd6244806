"""Where the night's time went, and how its defaults did from hour to hour. Pure."""

from __future__ import annotations

from datetime import datetime

from autotune.report.facts import Facts
from autotune.values import Infeasible, Measured, TrialResult, Value

TIME_PARTS = (
    "start",
    "warm-up",
    "measure",
    "live limits",
    "stop",
    "lost to failures",
    "refused or cut off",
    "confirmation",
)


class BaselineSeen(Value, frozen=True, kw_only=True):
    """A measured start of the defaults: seconds since the first trial, and its score as measured."""

    at_s: float
    score: float
    confirming: bool = False


def where_time_went(facts: Facts) -> dict[str, float]:
    """Seconds per part of the night; the whole time of a trial without a score is lost."""
    parts = dict.fromkeys(TIME_PARTS, 0.0)
    for result in facts.results:
        times = result.timings
        if isinstance(result.outcome, Measured):
            seen = result.outcome.measurement
            warm = min(seen.warmup_s, times.load_s)
            parts["start"] += times.prepare_s + times.start_s
            parts["warm-up"] += warm
            live = min(sum(one.load_s for one in result.outcome.live), times.load_s - warm)
            parts["live limits"] += live
            parts["measure"] += times.load_s - warm - live
            parts["stop"] += times.stop_s
        else:
            lost = "lost to failures" if isinstance(result.outcome, Infeasible) else "refused or cut off"
            parts[lost] += times.total_s
    if facts.confirmed:
        parts["confirmation"] = sum(r.timings.total_s for r in facts.confirmed.trials)
    return parts


def baselines(facts: Facts) -> list[BaselineSeen]:
    """Every measured start of the defaults, in search and confirmation, in order of time."""
    confirming = facts.confirmed.trials if facts.confirmed else ()
    first = min((_when(r) for r in (*facts.results, *confirming)), default=0.0)
    found = [
        BaselineSeen(at_s=_when(r) - first, score=r.outcome.score.value, confirming=late)
        for results, late in ((facts.results, False), (confirming, True))
        for r in results
        if not r.config.params and isinstance(r.outcome, Measured)
    ]
    return sorted(found, key=lambda b: b.at_s)


def _when(result: TrialResult) -> float:
    try:
        return datetime.fromisoformat(result.started_at).timestamp()
    except ValueError:
        return 0.0
