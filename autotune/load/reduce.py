"""From raw records to one Measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotune.load import gates
from autotune.load.metrics import estimates, slo_limits, steady_figures, whole_figures
from autotune.load.records import FAILED, RawRun
from autotune.load.sample import find_window, from_raw
from autotune.study.file import Objective, Workload
from autotune.values import Finding, Measurement


def reduce(
    raw: RawRun,
    workload: Workload,
    objective: Objective,
    around: gates.Surroundings | None = None,
    limits: gates.GateLimits | None = None,
) -> Measurement:
    """Whole-run figures, the steady window with its uncertainty, and what the validity gates found.

    ``Measurement.refused`` is not empty when the load is no measurement. Without a steady window ``steady`` is empty.
    """
    sample, slo = from_raw(raw), slo_limits(objective.constraints)
    window = find_window(sample, workload)
    around = around or gates.Surroundings()
    seen = gates.Seen(
        raw=raw,
        sample=sample,
        window=window,
        workload=workload,
        around=around,
        limits=limits or gates.GateLimits(),
    )
    steady = steady_figures(sample, window, slo) if window else {}
    return Measurement(
        whole=whole_figures(raw, sample, slo),
        steady=steady,
        estimates=estimates(sample, window, slo) if window else {},
        requests_completed=int(raw.ok.sum()),
        requests_failed=int((raw.requests["state"] == FAILED).sum()),
        warmup_s=window.start if window else raw.meta.duration_s,
        window_s=window.length_s if window else 0.0,
        duration_s=raw.meta.duration_s,
        findings=(*_no_score(steady, objective), *gates.findings(seen)),
        gpu_free_share=around.gpu_free_share,
    )


def _no_score(steady: dict[str, float], objective: Objective) -> Iterator[Finding]:
    """Configurations are compared by ratios: of zero there is none."""
    value = steady.get(objective.metric)
    if value is not None and not 0 < value < math.inf:
        message = f"{objective.metric} is {value:g}: no request kept the limits, or nothing was served"
        yield Finding(gate="score", message=message, fatal=True, seen=value)
