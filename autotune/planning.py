"""``autotune plan``: what a night would do, without starting anything."""

from __future__ import annotations

import shlex

import msgspec

from autotune.brief import Brief, expected_kv
from autotune.budget import Standing, repeats_ahead
from autotune.caveats import objective_caveat, version_caveat
from autotune.export.bash import quote
from autotune.export.bundle import literal_env, words
from autotune.export.wrapped import service_name
from autotune.sameness import gpu_of
from autotune.space.plan import NightInputs, NightPlan, build_plan
from autotune.study.file import Budget, Workload
from autotune.study.record import Records
from autotune.study.rules import parse_duration
from autotune.values import LaunchPlan, Measured
from autotune.wrappers import place, wrapping

PLANNED_PORT = 30000
"""Stands in a planned command line for the fresh port that every start gets."""


def plan_night(brief: Brief) -> NightPlan:
    """The plan of a study, with measured times where an earlier night left some. Raises InputError."""
    study = brief.study
    devices = gpu_of(study).devices()
    kv = expected_kv(brief, devices[0].total_bytes if devices else 0)
    plan = _started(brief)
    starts_s, trials_s = _measured_times(brief)
    night = NightInputs(
        study=study.name,
        load=_all_loads(study.workload),
        trials=study.budget.trials,
        wall_clock_s=parse_duration(study.budget.wall_clock),
        command=plan.argv,
        command_line=" ".join([*_settings(plan), *(quote(word) for word in words(plan))]),
        notes=tuple(filter(None, (version_caveat(brief), objective_caveat(brief)))),
        confirm_starts=_further_starts(study.budget),
        weight_gb=brief.total_weight_gb(),
        start_s=_mean(starts_s),
        trial_s=_mean(trials_s),
    )
    return build_plan(brief.space, brief.bound_inputs(kv), night)


def _started(brief: Brief) -> LaunchPlan:
    """How the baseline is started: behind its wrapper, under an export's name, with no secret on the command line."""
    spec = brief.study.engine
    plan = brief.engine.launch_plan(spec, brief.study.model, [], place(spec, PLANNED_PORT))
    shown = tuple(f"{word.text}${{{word.secret}}}" if word.secret else word.text for word in words(plan))
    plan = msgspec.structs.replace(plan, argv=shown, env=literal_env(plan))
    there = wrapping(plan.wrapper)
    return there.served(plan, f"autotune-{service_name(brief.study.name)}") if there else plan


def _settings(plan: LaunchPlan) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in plan.env.items()]


def _all_loads(workload: Workload) -> Workload:
    """The times of all loads of one start, as if they were one."""
    count = len(workload.loads())
    times = {name: count * getattr(workload, name) for name in ("min_s", "max_s", "warmup_max_s")}
    return msgspec.structs.replace(workload, **times)


def _further_starts(budget: Budget) -> int:
    """Starts beside the trials: those of the confirmation, and the baseline's again and again."""
    confirming = 2 * budget.confirm_starts + 2 if budget.confirm_starts else 0
    begun = Standing(settled=1, spent_s=0.0, trial_s=None)
    return confirming + repeats_ahead(begun, budget.trials, budget.baseline_every)


def _measured_times(brief: Brief) -> tuple[list[float], list[float]]:
    if not brief.folder.exists:
        return [], []
    measured = [r for r in Records(brief.folder).results() if isinstance(r.outcome, Measured)]
    later = measured[1:] or measured
    return [r.timings.start_s for r in later], [r.timings.total_s for r in later]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
