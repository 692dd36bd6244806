"""Several loads of one server start, each at its own concurrency: which of them answers the objective."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.study.file import Objective
from autotune.values import LevelFigures, Measurement, Value
from autotune.verdict.objective import binding_limits, figure, merit, metric_of, score, violations


class Level(Value, frozen=True, kw_only=True):
    """One load of a start."""

    concurrency: int
    measurement: Measurement

    def figures(self) -> LevelFigures:
        """As a point of the curve."""
        gates = tuple(finding.gate for finding in self.measurement.refused)
        return LevelFigures(concurrency=self.concurrency, steady=self.measurement.steady, refused=gates)


def answering_level(levels: Sequence[Level], objective: Objective, named: int) -> Level:
    """The load whose figure is the start's score: without limits the one at ``named``, else the best that holds them.

    Limits hold here with the confidence of one start; where no level holds them it is the one that is nearest.
    A level that was refused answers where it might have been chosen: then the start has no valid score.
    """
    if not binding_limits(objective):
        return next(level for level in levels if level.concurrency == named)
    valid = [level for level in levels if not level.measurement.refused]
    doubtful = [level for level in levels if level.measurement.refused and _possible(level, objective)]
    if doubtful or not valid:
        return (doubtful or levels)[0]
    holding = [level for level in valid if not violations(level.measurement, objective)]
    if holding:
        return max(holding, key=lambda level: merit(score(level.measurement, objective).value, objective.metric))
    return min(valid, key=lambda level: _excess(level, objective))


def _possible(level: Level, objective: Objective) -> bool:
    """Whether the level is not certainly beyond a limit, as far as an invalid measurement tells.

    A window in which no request ended has no latencies: it tells nothing of limits on them.
    """
    if any(name not in level.measurement.steady for name in binding_limits(objective)):
        return True
    return not any(violation.certain for violation in violations(level.measurement, objective))


def _excess(level: Level, objective: Objective) -> float:
    """By which share the worst limit is missed."""
    return max(
        (figure(level.measurement, name).value / limit - 1) * (1 if metric_of(name).direction == "minimise" else -1)
        for name, limit in binding_limits(objective).items()
    )
