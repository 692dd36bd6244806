"""Where the night's time went, and how its defaults did from hour to hour. Pure."""

from __future__ import annotations

from autotune.report.facts import Facts
from autotune.spending import where_time_went as spending
from autotune.values import Measured, TrialResult, Value


class BaselineSeen(Value, frozen=True, kw_only=True):
    """A measured start of the defaults: seconds since the first trial, and its score as measured."""

    at_s: float
    score: float
    confirming: bool = False


def where_time_went(facts: Facts) -> dict[str, float]:
    """See ``spending.where_time_went``."""
    return spending(facts.results, facts.confirmed.trials if facts.confirmed else ())


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
    return result.began_s or 0.0
