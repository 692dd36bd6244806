"""Writes the configuration to believe in as something that can be started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from autotune.brief import Brief
from autotune.choosing import Judge
from autotune.confirmation import Confirmation, read_confirmation
from autotune.drifting import steadied
from autotune.engines.argv import value_of
from autotune.errors import InputError, NightStopped
from autotune.export import render
from autotune.export.bundle import ExportBundle, Provenance
from autotune.export.container import gpus_of
from autotune.promising import promise_of
from autotune.sameness import changes, in_words, of_the_load
from autotune.standing import baseline_of, score_of
from autotune.study.atomic import write_atomic
from autotune.study.file import Workload
from autotune.study.output import check_output, write_output
from autotune.study.record import Records
from autotune.values import Config, LaunchPlan, Measured, TrialResult
from autotune.wrappers import place

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


def export_best(brief: Brief, output: Path | None = None, fmt: str = "bash", image: str = "") -> Path | None:
    """Write the best configuration to ``output``, by default into the study's folder; None without a measured trial.

    ``image`` is what containers run. Raises InputError where ``output`` cannot be written.
    """
    bundle = best_bundle(brief, image)
    if bundle is None:
        return None
    path = output or brief.folder.launch_script.with_suffix(SUFFIXES.get(fmt, ".sh"))
    if output is not None:
        check_output(output, brief.path, brief.folder)
    elif path.is_dir() and not path.is_symlink():
        raise InputError(f"{path}: a folder is in the place of this file; move it away, or give --output")
    # A night that writes its own script follows no link and waits for no pipe.
    write = write_atomic if output is None else write_output
    try:
        write(path, render(fmt, bundle).encode(), EXECUTABLE if fmt == "bash" else READABLE)
    except NightStopped as error:
        raise InputError(str(error)) from error
    return path


def best_bundle(brief: Brief, image: str = "") -> ExportBundle | None:
    """All that an export says of the configuration to believe in; None without a measured trial."""
    records = Records(brief.folder)
    results = records.results()
    confirmation = read_confirmation(brief.folder)
    best = Judge.of(brief).chosen(results, confirmation)
    if best is None:
        return None
    plan = records.plan(best.number)
    if plan is None:
        raise InputError(f"{records.trial(best.number).plan}: the plan of the best trial is missing; `autotune repair`")
    gpu, changed = _gpu(brief), changes(brief)
    return ExportBundle(
        plan=plan,
        baseline=_baseline_then(changed, records, results) or _baseline_beside(brief, plan),
        provenance=_as_measured(
            msgspec.structs.replace(
                provenance(brief, best, confirmation, results),
                promise=_promise(best, results, brief, confirmation),
                baseline=_promise(baseline_of(results), results, brief, confirmation),
            ),
            changed,
        ),
        gpus=gpus_of(plan.argv) if gpu else 0,
        image=image,
        folder=_folder(plan),
        mounts=_mounts(brief, plan),
        start_limit_s=brief.study.timeouts.start_s,
    )


def _baseline_beside(brief: Brief, plan: LaunchPlan) -> LaunchPlan:
    """The configuration before tuning, at the same address: going back must not move the service."""
    where = msgspec.structs.replace(place(brief.study.engine, plan.port), host=plan.host)
    return brief.engine.launch_plan(brief.study.engine, brief.study.model, [], where)


def _baseline_then(changed: Sequence[str], records: Records, results: Sequence[TrialResult]) -> LaunchPlan | None:
    """The baseline as it was measured, where the study file would start another one by now."""
    base = baseline_of(results)
    if base is None or not any(line.startswith(("engine.", "model.")) for line in changed):
        return None
    return records.plan(base.number)


def _as_measured(told: Provenance, changed: Sequence[str]) -> Provenance:
    """Without the lines that the study file would tell otherwise than it was measured; with what has changed."""
    replace = msgspec.structs.replace
    told = replace(told, changed=in_words(changed))
    if any(line.startswith(("engine.command", "model.path", "model.config")) for line in changed):
        told = replace(told, model="")
    if any(line.startswith("objective.") for line in changed):
        told = replace(told, score="", ranked="")
    if of_the_load(changed):
        note = f"{told.changed}; what was promised then is left out"
        told = replace(told, workload="", promise="", baseline="", changed=note)
    return told


def _gpu(brief: Brief) -> str:
    manifest = Records(brief.folder).manifest()
    return str(manifest.fingerprint.get("found.gpu") or "") if manifest else ""


def _folder(plan: LaunchPlan) -> str:
    """Where the server was started, if its command line has a path that means something there alone."""
    relative = (word.rpartition("=")[2] for word in plan.argv)
    return str(Path.cwd()) if any("/" in word and word[0] != "/" and Path(word).exists() for word in relative) else ""


def _mounts(brief: Brief, plan: LaunchPlan) -> tuple[str, ...]:
    """The model's folder, where the server was given one."""
    named = (brief.study.model.path, value_of(plan.argv, "--model-path", "--model") or "", plan.model_name)
    return tuple(dict.fromkeys(path for path in named if path.startswith("/")))


def provenance(
    brief: Brief, best: TrialResult, confirmation: Confirmation | None, results: Sequence[TrialResult]
) -> Provenance:
    """Where the claim comes from, in sentences."""
    study = brief.study
    assert isinstance(best.outcome, Measured)
    score = best.outcome.score
    return Provenance(
        study=study.name,
        file=brief.path.name,
        date=best.finished_at,
        engine=f"{study.engine.kind} {best.outcome.effective.version or brief.version}".strip(),
        gpu=_gpu(brief),
        gpu_free=_free(best.outcome.measurement.gpu_free_share),
        model=study.model.path or study.model.config,
        workload=workload_text(study.workload),
        trial=str(best.number),
        parameters=_params(best.config),
        score=f"{study.objective.metric} {score.value:,.1f} +- {score.stderr:,.1f} within one start",
        ranked=_ranked(best, results),
        confirmed_gain=confirmation.sentence if confirmation else "",
    )


def _free(share: float | None) -> str:
    """How near to the edge of memory the configuration is."""
    return "" if share is None else f"{100 * share:.1f} % of a GPU was free at the fullest moment of that load"


def _ranked(best: TrialResult, results: Sequence[TrialResult]) -> str:
    """The score that counted when the configuration was chosen, where drift made it another one."""
    seen = steadied(results)
    value = next((score_of(r) for r in seen.results if r.number == best.number), None)
    if not seen.drift.drifting or value is None:
        return ""
    return f"{value:,.1f} as a ratio to the baseline of its time, since the machine drifted"


def _promise(
    result: TrialResult | None, results: Sequence[TrialResult], brief: Brief, confirmation: Confirmation | None
) -> str:
    found = promise_of(result, results, brief.study.objective, confirmation) if result else None
    return str(found) if found else ""


def workload_text(workload: Workload) -> str:
    """The load that the claim is for, in words."""
    return f"{workload.asked()}, {workload.paced()}"


def _params(config: Config) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.params.items()) or "server defaults"
