"""All that a report is made from, and what is derived from it. Pure; no pandas, no plots."""

from __future__ import annotations

from functools import cached_property

import msgspec

from autotune.drifting import DriftRecord, Steadied, record_of, steadied
from autotune.space.inputs import Bound
from autotune.standing import state_of
from autotune.study.file import Objective, Workload
from autotune.values import Config, Infeasible, Interrupted, Measured, ParamValue, Refused, TrialResult, Value
from autotune.verdict.confirm import Judgement
from autotune.verdict.fit import Start
from autotune.verdict.importance import Importance, equal_within_noise, importance
from autotune.verdict.limits import LimitCheck
from autotune.verdict.noise import NoiseModel, Tried, group_trials
from autotune.verdict.objective import METRICS, Metric

MEMORY_KINDS = ("oom_weights", "oom_kv", "oom_graph", "oom_runtime", "oom_host")
FEW_TRIALS = 4


class Confirmed(Value, frozen=True, kw_only=True):
    """What the confirmation left. ``arms[0]`` is the baseline; ``trials`` are its own server starts.

    ``limits`` has the checks of the objective's limits by arm, ``dropped`` why an arm is out of the question.
    """

    sentence: str
    judgement: Judgement | None
    arms: tuple[Config, ...]
    starts: tuple[Start, ...]
    trials: tuple[TrialResult, ...] = ()
    limits: dict[str, tuple[LimitCheck, ...]] = {}
    dropped: dict[str, str] = {}


class Facts(Value, frozen=True, kw_only=True, dict=True):
    """One study. ``command`` starts the chosen configuration; ``logs`` maps trial numbers to links;
    ``changed`` says in what the study file, of which workload and objective are, differs from what was measured.

    ``results`` are the records as they are. Everything that compares trials uses ``ranked``, the same results as the
    choice of the best does: where the machine drifted, each score against the baseline of its time.
    """

    study: str
    description: str
    objective: Objective
    workload: Workload
    engine: str
    model: str
    gpu: str
    made_at: str
    autotune_version: str
    results: tuple[TrialResult, ...]
    bounds: tuple[Bound, ...] = ()
    baseline: int | None = None
    chosen: int | None = None
    command: str = ""
    confirmed: Confirmed | None = None
    running: bool = False
    changed: str = ""
    logs: dict[int, str] = {}

    @cached_property
    def seen(self) -> Steadied:
        """Results to rank by, the noise of one start, and what the baseline's starts say of the machine."""
        return steadied(self.results)

    @property
    def ranked(self) -> tuple[TrialResult, ...]:
        return self.seen.results

    @property
    def noise(self) -> NoiseModel:
        return self.seen.noise

    @property
    def drift(self) -> DriftRecord:
        """What ``drift.json`` holds, from the results as they are now."""
        return record_of(self.seen)

    @property
    def metric(self) -> Metric:
        return METRICS[self.objective.metric]

    @property
    def measured(self) -> tuple[TrialResult, ...]:
        """Trials with a score to rank by."""
        return tuple(r for r in self.ranked if isinstance(r.outcome, Measured))

    def trial(self, number: int | None) -> TrialResult | None:
        return next((r for r in self.ranked if r.number == number), None)

    def score(self, number: int | None) -> float | None:
        """The score that a trial is ranked by."""
        found = self.trial(number)
        return found.outcome.score.value if found and isinstance(found.outcome, Measured) else None

    def names(self) -> tuple[str, ...]:
        """The searched parameters, else all that any trial set."""
        if self.bounds:
            return tuple(bound.name for bound in self.bounds)
        return tuple(sorted({name for r in self.results for name in r.config.params}))

    def bound(self, name: str) -> Bound | None:
        return next((b for b in self.bounds if b.name == name), None)


def as_measured(facts: Facts) -> dict[int, float]:
    """Scores as they were measured, by trial, of the trials that are ranked by another one."""
    raw = {r.number: r.outcome.score.value for r in facts.results if isinstance(r.outcome, Measured)}
    return {n: value for n, value in raw.items() if value != facts.score(n)}


def state(result: TrialResult) -> str:
    """See ``standing.state_of``."""
    return state_of(result.outcome)


def reason(result: TrialResult) -> str:
    """Why a trial has no score, or what was remarked, in one sentence."""
    match result.outcome:
        case Measured(measurement=seen):
            return "; ".join(f.message for f in seen.findings)
        case Infeasible(diagnosis=found):
            return " ".join(filter(None, (f"at {found.stage}:" if found.stage else "", found.advice)))
        case Refused(findings=findings):
            return "; ".join(f.message for f in findings)
        case Interrupted(reason=why):
            return why


def asked_or_in_force(facts: Facts, result: TrialResult) -> dict[str, ParamValue]:
    """The searched parameters of a trial: as asked, else as the server reported them."""
    effective = getattr(result.outcome, "effective", None)
    in_force = effective.values if effective else {}
    both = {**in_force, **result.config.params}
    return {name: both[name] for name in facts.names() if name in both}


def tried(facts: Facts) -> list[Tried]:
    """Configurations with explicit values of the searched parameters, repeats joined."""
    explicit = [msgspec.structs.replace(r, config=Config(params=asked_or_in_force(facts, r))) for r in facts.measured]
    return group_trials(explicit)


def what_matters(facts: Facts) -> list[Importance]:
    """Per parameter; empty where nothing was measured."""
    groups = tried(facts)
    return importance(groups, facts.noise, facts.objective.metric) if groups else []


def as_good(facts: Facts) -> list[Tried]:
    """Settings that cannot be told from the best, the safer first."""
    groups = tried(facts)
    return equal_within_noise(groups, facts.noise, facts.objective.metric) if len(groups) > 1 else []


class Clamp(Value, frozen=True, kw_only=True):
    """A parameter that ran at another value than was asked."""

    trial: int
    parameter: str
    asked: ParamValue
    runs: ParamValue


def clamps(facts: Facts) -> list[Clamp]:
    return [
        Clamp(trial=r.number, parameter=name, asked=asked, runs=r.outcome.effective.values[name])
        for r in facts.measured
        if isinstance(r.outcome, Measured)
        for name, asked in r.config.params.items()
        if name in r.outcome.effective.values and r.outcome.effective.values[name] != asked
    ]


def main_parameters(facts: Facts) -> tuple[str, str] | None:
    """The two numeric parameters with the largest effects, else the first two that vary."""
    varying = [name for name in facts.names() if len(set(_numbers(facts, name))) > 1]
    ranked = [found.parameter for found in what_matters(facts) if found.parameter in varying]
    order = [*ranked, *(name for name in varying if name not in ranked)]
    return (order[0], order[1]) if len(order) > 1 else None


def number_of(facts: Facts, result: TrialResult, name: str) -> float | None:
    """The value of a numeric parameter in a trial, None for others."""
    value = asked_or_in_force(facts, result).get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _numbers(facts: Facts, name: str) -> list[float]:
    return [value for r in facts.results if (value := number_of(facts, r, name)) is not None]


def ran_out_of_memory(result: TrialResult) -> bool:
    return isinstance(result.outcome, Infeasible) and result.outcome.diagnosis.kind in MEMORY_KINDS
