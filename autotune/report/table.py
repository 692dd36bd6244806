"""Every trial as a row: for the page, for CSV, for other people's notebooks."""

from __future__ import annotations

import pandas as pd

from autotune.report.facts import Facts, reason, state
from autotune.values import Measured, TrialResult
from autotune.verdict.noise import predict_stderr

FIGURES = ("output_throughput_tok_s", "request_throughput_req_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "e2e_p99_s")


def trials(facts: Facts) -> pd.DataFrame:
    """One row per settled trial; a figure that a trial does not have is missing.

    ``score`` is what the trial is ranked by, ``measured_score`` what was measured, which differs where the machine
    drifted.
    ``asked_*`` is what was asked, ``runs_*`` what the server reported; ``stderr`` includes the restart noise.
    """
    return pd.DataFrame([_row(facts, ranked, raw) for ranked, raw in zip(facts.ranked, facts.results, strict=True)])


def _row(facts: Facts, result: TrialResult, raw: TrialResult) -> dict[str, object]:
    outcome = result.outcome
    score = outcome.score if isinstance(outcome, Measured) else None
    effective = getattr(outcome, "effective", None)
    in_force = effective.values if effective else {}
    steady = outcome.measurement.steady if isinstance(outcome, Measured) else {}
    names = facts.names()
    return {
        "trial": result.number,
        "state": state(result),
        "score": score.value if score else None,
        "stderr": predict_stderr(facts.noise, score) if score else None,
        "measured_score": raw.outcome.score.value if isinstance(raw.outcome, Measured) else None,
        **{f"asked_{name}": result.config.params.get(name) for name in names},
        **{f"runs_{name}": in_force.get(name) for name in names},
        **{name: steady.get(name) for name in FIGURES},
        "start_s": result.timings.start_s,
        "load_s": result.timings.load_s,
        "total_s": result.timings.total_s,
        "started_at": result.started_at,
        "repeat_of": result.repeat_of,
        "reason": reason(result),
    }


def as_csv(facts: Facts) -> str:
    return trials(facts).to_csv(index=False)
