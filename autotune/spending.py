"""Where a night's time went. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.values import Infeasible, Measured, TrialResult

TIME_PARTS = (
    "start",
    "warm-up",
    "measure",
    "live limits",
    "stop",
    "out of memory",
    "other failures",
    "refused or cut off",
    "confirmation",
)
OUT_OF_MEMORY = "oom_"


def where_time_went(results: Sequence[TrialResult], confirming: Sequence[TrialResult] = ()) -> dict[str, float]:
    """Seconds per part; the whole time of a trial without a score is lost to what became of it.

    ``confirming`` are the starts of the confirmation, which are not told apart.
    """
    parts = dict.fromkeys(TIME_PARTS, 0.0)
    for result in results:
        times = result.timings
        if isinstance(result.outcome, Measured):
            warm = min(result.outcome.measurement.warmup_s, times.load_s)
            parts["start"] += times.prepare_s + times.start_s
            parts["warm-up"] += warm
            parts["measure"] += times.load_s - warm
            parts["live limits"] += times.live_s
            parts["stop"] += times.stop_s
        else:
            parts[_lost_to(result)] += times.total_s
    parts["confirmation"] = sum(r.timings.total_s for r in confirming)
    return parts


def _lost_to(result: TrialResult) -> str:
    match result.outcome:
        case Infeasible(diagnosis=found):
            return "out of memory" if found.kind.startswith(OUT_OF_MEMORY) else "other failures"
        case _:
            return "refused or cut off"
