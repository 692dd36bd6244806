"""What a study does not say, or asks in a way that tells little: what is assumed, and which key to write."""

from __future__ import annotations

from autotune.brief import Brief
from autotune.engines.inspect import PACKAGES
from autotune.standing import version_told
from autotune.study.record import Records
from autotune.verdict.objective import tells_the_arrivals


def version_caveat(brief: Brief) -> str:
    """What is assumed since the engine's version is not known; empty where it is, or nothing depends on it."""
    engine, installed = brief.study.engine, brief.installed
    if brief.version or installed.location or engine.kind not in PACKAGES:
        return ""
    if brief.folder.exists and version_told(Records(brief.folder).results()):
        return ""
    asked = [brief.space.get(name) for name in brief.facts]
    assumed = ["the newest spelling of its flags"] if any(len(p.flags) > 1 for p in asked) else []
    if names := [p.name for p in asked if p.read_by]:
        assumed.append(f"that it reads {', '.join(names)}")
    if not assumed:
        return ""
    return (
        f"the version of {engine.kind} is not known ({installed.reason}); assumed until the first start tells it: "
        f"{' and '.join(assumed)}; write engine.version"
    )


def objective_caveat(brief: Brief) -> str:
    """That the arrivals, not the settings, decide what is optimised; empty where they do not."""
    study = brief.study
    return tells_the_arrivals(study.workload, study.objective.metric)
