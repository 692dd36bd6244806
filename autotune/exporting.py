"""Writes the configuration to believe in as something that can be started."""

from __future__ import annotations

from pathlib import Path

from autotune.brief import Brief
from autotune.confirmation import Confirmation, chosen_trial, read_confirmation
from autotune.engines.base import Where
from autotune.errors import InputError, NightStopped
from autotune.export import render
from autotune.export.bundle import ExportBundle, Provenance
from autotune.study.atomic import write_atomic
from autotune.study.manifest import Manifest
from autotune.study.record import Records, read_record
from autotune.values import Config, LaunchPlan, Measured, TrialResult

EXECUTABLE = 0o755
SUFFIXES = {
    "bash": ".sh",
    "systemd": ".service",
    "compose": ".compose.yaml",
    "kubernetes": ".kubernetes.yaml",
    "args": ".args",
    "json": ".json",
}
READABLE = 0o644


def export_best(brief: Brief, output: Path | None = None, fmt: str = "bash") -> Path | None:
    """Write the best configuration to ``output``, by default into the study's folder; None without a measured trial.

    Raises InputError where ``output`` cannot be written.
    """
    records = Records(brief.folder)
    results = records.results()
    confirmation = read_confirmation(brief.folder)
    best = chosen_trial(results, brief.study.objective, confirmation)
    if best is None:
        return None
    plan = records.plan(best.number)
    if plan is None:
        raise InputError(f"{records.trial(best.number).plan}: the plan of the best trial is missing; `autotune repair`")
    bundle = ExportBundle(
        plan=plan,
        baseline=_baseline_beside(brief, plan),
        provenance=provenance(brief, best, confirmation),
    )
    path = output or brief.folder.launch_script.with_suffix(SUFFIXES.get(fmt, ".sh"))
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    try:
        write_atomic(path, render(fmt, bundle).encode(), EXECUTABLE if fmt == "bash" else READABLE)
    except NightStopped as error:
        raise InputError(str(error)) from error
    return path


def _baseline_beside(brief: Brief, plan: LaunchPlan) -> LaunchPlan:
    """The configuration before tuning, at the same address: going back must not move the service."""
    where = Where(host=plan.host, port=plan.port)
    return brief.engine.launch_plan(brief.study.engine, brief.study.model, [], where)


def provenance(brief: Brief, best: TrialResult, confirmation: Confirmation | None) -> Provenance:
    """Where the claim comes from, in sentences."""
    study = brief.study
    assert isinstance(best.outcome, Measured)
    score = best.outcome.score
    manifest = read_record(brief.folder.manifest, Manifest)
    workload = study.workload
    load = f"{workload.concurrency} in flight" if workload.arrival == "closed" else f"{workload.request_rate:g} req/s"
    return Provenance(
        study=f"{study.name} ({brief.path.name})",
        date=best.finished_at,
        engine=f"{study.engine.kind} {best.outcome.effective.version or brief.version}".strip(),
        gpu=str(manifest.fingerprint.get("found.gpu") or "") if manifest else "",
        model=study.model.path or study.model.config,
        workload=f"{workload.input_tokens} tokens in, {workload.output_tokens} out, {load}",
        trial=str(best.number),
        parameters=_params(best.config),
        score=f"{study.objective.metric} {score.value:,.1f} +- {score.stderr:,.1f} within one start",
        confirmed_gain=confirmation.sentence if confirmation else "",
    )


def _params(config: Config) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.params.items()) or "server defaults"
