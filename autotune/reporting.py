"""``autotune report``: gathers a study's records for the report; takes no lock and changes no record."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

import autotune
from autotune.brief import Brief
from autotune.choosing import Judge
from autotune.confirmation import latest_folder, read_confirmation
from autotune.report.facts import Confirmed, Facts
from autotune.rig import now_text
from autotune.sameness import changed_since
from autotune.search.region import Region
from autotune.standing import baseline_of
from autotune.study.atomic import make_private_folder
from autotune.study.lock import holder
from autotune.study.output import write_output
from autotune.study.record import Records, read_record
from autotune.values import LaunchPlan

PAGE_MODE = 0o644


def gather(brief: Brief, page: Path | None = None) -> Facts:
    """What the study has on record; links to logs are relative to ``page``. Raises InputError for a damaged record."""
    folder, study = brief.folder, brief.study
    records = Records(folder)
    results = records.results()
    confirmation = read_confirmation(folder)
    base = baseline_of(results)
    chosen = Judge.of(brief).chosen(results, confirmation)
    region = read_record(folder.bounds, Region)
    manifest = records.manifest()
    place = (page or default_page(brief)).absolute().parent
    version = f"{study.engine.kind} {brief.version}".strip()
    return Facts(
        study=study.name,
        description=study.description,
        objective=study.objective,
        workload=study.workload,
        engine=version,
        model=Path(study.model.path or study.model.config).name,
        gpu=str(manifest.fingerprint.get("found.gpu") or "") if manifest else "",
        made_at=now_text()[:16].replace("T", " ") + " UTC",
        autotune_version=autotune.__version__,
        results=tuple(results),
        bounds=region.bounds if region else (),
        baseline=base.number if base else None,
        chosen=chosen.number if chosen else None,
        command=_command(records.plan(chosen.number)) if chosen else "",
        confirmed=_confirmed(brief),
        running=holder(folder.lock) is not None,
        changed=changed_since(brief),
        logs={
            r.number: Path(os.path.relpath(log, place)).as_posix()
            for r in results
            if (log := records.trial(r.number).log).exists()
        },
    )


def default_page(brief: Brief) -> Path:
    return brief.folder.report / "index.html"


def write_page(path: Path, text: str) -> Path:
    """Write a page or a table, its folder made where it is missing. Raises NightStopped."""
    make_private_folder(path.absolute().parent)
    write_output(path, text.encode(), PAGE_MODE)
    return path


def _command(plan: LaunchPlan | None) -> str:
    if plan is None:
        return ""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in plan.env.items()), shlex.join(plan.argv)])


def _confirmed(brief: Brief) -> Confirmed | None:
    found, folder = read_confirmation(brief.folder), latest_folder(brief.folder)
    if found is None or folder is None:
        return None
    return Confirmed(
        sentence=found.sentence,
        judgement=found.judgement if found.headline else None,
        arms=tuple(arm.config for arm in found.plan.arms),
        starts=found.starts,
        trials=tuple(Records(folder).results()),
        limits=found.limits,
        dropped=found.dropped,
    )


def as_json(facts: Facts) -> str:
    """Everything that the report is made from, and the verdict."""
    from autotune.report import facts as known
    from autotune.report.headline import headline
    from autotune.report.remarks import remarks
    from autotune.report.times import where_time_went
    from autotune.report.tradeoff import tradeoff

    derived = {
        "headline": headline(facts),
        "importance": [str(one) for one in known.what_matters(facts)],
        "as_good": known.as_good(facts),
        "clamps": known.clamps(facts),
        "time_s": where_time_went(facts),
        "drift": facts.drift,
        "ranked_scores": {r.number: facts.score(r.number) for r in facts.measured},
        "tradeoff": tradeoff(facts),
        "remarks": remarks(facts),
    }
    return msgspec.json.encode({**derived, "facts": facts}).decode()
