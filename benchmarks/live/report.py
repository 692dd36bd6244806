"""The record of the benchmark, and its table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.spending import where_time_went
from autotune.values import Measured, ParamValue, TrialResult, Value

ARMS = ("live", "restarts")
MARGIN = 0.03


class Arm(Value, frozen=True, kw_only=True):
    """One night. ``worth[i]``: the recommendation after start i, over the best known; 0: not within the limits."""

    arm: str
    seed: int
    worth: tuple[float, ...]
    clock_s: tuple[float, ...]
    live_loads: int
    time_s: dict[str, float]

    @classmethod
    def of(cls, arm: str, seed: int, results: Sequence[TrialResult], worth: Sequence[float]) -> Arm:
        """From the settled trials of a night."""
        clock = [sum(r.timings.total_s for r in results[: n + 1]) for n in range(len(results))]
        lives = sum(len(r.outcome.live) for r in results if isinstance(r.outcome, Measured))
        parts = {name: round(seconds, 1) for name, seconds in where_time_went(results).items()}
        return cls(arm=arm, seed=seed, worth=tuple(worth), clock_s=tuple(clock), live_loads=lives, time_s=parts)

    def starts(self, margin: float) -> int | None:
        """Starts after which the recommendation is within the margin and stays there; None: never."""
        good = [value >= 1 - margin for value in self.worth]
        if not good or not good[-1]:
            return None
        return len(good) - next((n for n, one in enumerate(reversed(good)) if not one), len(good)) + 1


class Record(Value, frozen=True, kw_only=True):
    """``record.json``. ``noise`` is the relative deviation between equal starts, as all nights together show it."""

    study: str
    engine: str
    tpot_limit_s: float | None
    tpot_at: int
    best: dict[str, ParamValue]
    best_value: float
    noise: float
    load_average: float
    arms: tuple[Arm, ...]

    @property
    def margin(self) -> float:
        """3 %, or the noise of one start where that is more: what cannot be told apart counts as found."""
        return max(MARGIN, self.noise)


def table(record: Record) -> str:
    """The arms side by side."""
    lines = [
        f"Best known: {record.best_value:,.0f} tok/s at {record.best}; noise of a start {record.noise:.1%};"
        f" within {record.margin:.1%} counts.",
        "",
        "| arm | seed | starts | live loads | starts until within | seconds until then | worth after each start |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for arm in record.arms:
        starts = arm.starts(record.margin)
        clock = f"{arm.clock_s[starts - 1]:,.0f}" if starts else "–"
        worth = " · ".join(f"{value:.2f}" for value in arm.worth)
        cells = (arm.arm, arm.seed, len(arm.worth), arm.live_loads, starts or "never", clock, worth)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for name in ARMS:
        found = [arm.starts(record.margin) or len(arm.worth) + 1 for arm in record.arms if arm.arm == name]
        lines.append(f"\n{name}: median of starts {statistics.median(found):g}")
    return "\n".join(lines)
