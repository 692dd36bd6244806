"""How Optuna is told what became of a trial.

Measured is COMPLETE, or PRUNED with its value so far when it was stopped early. Infeasible is PRUNED with a
violated constraint, which is how a sampler learns where not to go: of a FAIL it learns nothing. Refused and
interrupted trials say nothing about their parameters and are FAIL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.values import (
    Infeasible,
    Interrupted,
    Measured,
    Measurement,
    ParamValue,
    Refused,
    TrialResult,
)
from autotune.verdict.objective import metric_of

FEASIBLE = "feasible"
NOT_BEGUN = "not_begun"
LIVE = "live"
GPU_FREE = "gpu_free_share"
EVIDENCE_LINES = 8
EVIDENCE_CHARACTERS = 300


class Place(msgspec.Struct, frozen=True):
    """Where a trial lies: its parameters and what each was drawn from, as Optuna wants them."""

    params: dict[str, ParamValue] = {}
    distributions: dict[str, BaseDistribution] = {}


def frozen_trial(result: TrialResult, place: Place, limits: Mapping[str, float]) -> FrozenTrial:
    """The finished Optuna trial of ``result``. ``limits`` are the objective's constraints, metric to limit."""
    outcome = result.outcome
    value = outcome.score.value if isinstance(outcome, Measured) else None
    state = trial_state(result)
    trial = create_trial(
        state=state,
        value=value if state is TrialState.COMPLETE else None,
        params=dict(place.params),
        distributions=dict(place.distributions),
        user_attrs=user_attrs(result) | _live_attrs(result, limits),
        intermediate_values=_intermediate(outcome) if isinstance(outcome, Measured) else None,
        constraints=_constraints(result, limits),
    )
    trial.datetime_start = _local_time(result.started_at) or trial.datetime_start
    trial.datetime_complete = _local_time(result.finished_at) or trial.datetime_complete
    return trial


def _intermediate(measured: Measured) -> dict[int, float]:
    """The score as the load went on, by its place in the course; the last one is the score itself."""
    values = [*(value for _, value in measured.course), measured.score.value]
    return dict(enumerate(values)) if measured.course or measured.stopped_early else {}


def running_trial(attrs: Mapping[str, Any], place: Place) -> FrozenTrial:
    """A trial that has begun."""
    return create_trial(
        state=TrialState.RUNNING,
        params=dict(place.params),
        distributions=dict(place.distributions),
        user_attrs=dict(attrs),
    )


def missing_trial() -> FrozenTrial:
    """Stands for a number that never became a trial, so that later numbers agree with the records."""
    return create_trial(state=TrialState.FAIL, user_attrs={"kind": NOT_BEGUN})


def trial_state(result: TrialResult) -> TrialState:
    match result.outcome:
        case Measured(stopped_early=False):
            return TrialState.COMPLETE
        case Measured() | Infeasible():
            return TrialState.PRUNED
        case Refused() | Interrupted():
            return TrialState.FAIL


def kind_of(result: TrialResult) -> str:
    """``measured``, ``refused``, ``interrupted``, or the kind of failure such as ``oom_graph``."""
    match result.outcome:
        case Measured():
            return "measured"
        case Infeasible(diagnosis=diagnosis):
            return diagnosis.kind
        case Refused():
            return "refused"
        case Interrupted():
            return "interrupted"


def user_attrs(result: TrialResult) -> dict[str, Any]:
    """What a reader of the storage sees of a trial."""
    attrs: dict[str, Any] = {
        "kind": kind_of(result),
        "config": dict(result.config.params),
        "config_key": result.config.key(),
        "timings": msgspec.to_builtins(result.timings),
    }
    if result.repeat_of is not None:
        attrs["repeat_of"] = result.repeat_of
    return attrs | _outcome_attrs(result)


def _outcome_attrs(result: TrialResult) -> dict[str, Any]:
    match result.outcome:
        case Measured() as measured:
            return {
                "score_stderr": measured.score.stderr,
                "stopped_early": measured.stopped_early,
                "effective": msgspec.to_builtins(measured.effective),
                **_figures(measured.measurement),
            }
        case Infeasible(diagnosis=diagnosis):
            return {
                "stage": diagnosis.stage or "",
                "advice": diagnosis.advice,
                "evidence": [line[:EVIDENCE_CHARACTERS] for line in diagnosis.evidence[:EVIDENCE_LINES]],
            }
        case Refused(findings=findings, measurement=measurement):
            seen = _figures(measurement) if measurement else {}
            return {"findings": [finding.message[:EVIDENCE_CHARACTERS] for finding in findings], **seen}
        case Interrupted(reason=reason):
            return {"reason": reason}


def _figures(measurement: Measurement) -> dict[str, Any]:
    free = {} if measurement.gpu_free_share is None else {GPU_FREE: measurement.gpu_free_share}
    return {
        **measurement.steady,
        **free,
        "requests_completed": measurement.requests_completed,
        "requests_failed": measurement.requests_failed,
        "window_s": measurement.window_s,
    }


def _constraints(result: TrialResult, limits: Mapping[str, float]) -> dict[str, float] | None:
    """Positive where violated. A limit counts as the share by which it is missed, an infeasible trial as 1."""
    match result.outcome:
        case Infeasible():
            return {FEASIBLE: 1.0, **dict.fromkeys(limits, 1.0)}
        case Measured(measurement=measurement):
            excess = {name: _excess(measurement.steady, name, limit) for name, limit in limits.items()}
            return {FEASIBLE: -1.0, **excess}
        case _:
            return None


def _live_attrs(result: TrialResult, limits: Mapping[str, float]) -> dict[str, Any]:
    """Loads of the same start at lower running limits. What a gate refused says nothing of that limit."""
    if not isinstance(result.outcome, Measured):
        return {}
    loads = [
        {
            "limit": load.limit,
            "score": load.score.value,
            "score_stderr": load.score.stderr,
            **({"excess": max(_excess(load.steady, name, limit) for name, limit in limits.items())} if limits else {}),
        }
        for load in result.outcome.live
        if not load.refused and math.isfinite(load.score.value)
    ]
    return {LIVE: loads} if loads else {}


def _excess(steady: Mapping[str, float], name: str, limit: float) -> float:
    seen = steady.get(name)
    if seen is None:
        return 0.0
    return (seen - limit) / limit * (1.0 if metric_of(name).direction == "minimise" else -1.0)


def _local_time(text: str) -> datetime | None:
    """Optuna keeps local times without a zone."""
    try:
        return datetime.fromisoformat(text).astimezone().replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
