"""Studies that never ran: facts with known answers."""

from __future__ import annotations

from autotune.report.facts import Confirmed, Facts
from autotune.space.inputs import Bound
from autotune.study.file import Objective, Workload
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Finding,
    Infeasible,
    Interrupted,
    Measured,
    Measurement,
    Outcome,
    ParamValue,
    Refused,
    Timings,
    TrialResult,
)
from autotune.verdict.confirm import judge
from autotune.verdict.fit import Start

BOUNDS = (
    Bound(name="limit", kind="int", low=64.0, high=1024.0, step=8.0, log=True, derivation="64 to 1,024."),
    Bound(name="fraction", kind="float", low=0.7, high=0.95, step=0.005, log=False, derivation="0.7 to 0.95."),
)


def measured(value: float, runs: dict[str, ParamValue] | None = None, findings: tuple[Finding, ...] = ()) -> Measured:
    """An outcome with this throughput; latency falls as throughput grows."""
    measurement = Measurement(
        whole={},
        steady={"output_throughput_tok_s": value, "tpot_p50_s": 20 / value, "e2e_p50_s": 2000 / value},
        estimates={},
        requests_completed=100,
        requests_failed=0,
        warmup_s=5.0,
        window_s=10.0,
        duration_s=16.0,
        findings=findings,
    )
    return Measured(
        score=Estimate(value=value, stderr=value / 100, batches=10),
        measurement=measurement,
        effective=Effective(source="server_info", values=runs or {}),
    )


def out_of_memory(kind: str = "oom_kv") -> Infeasible:
    return Infeasible(diagnosis=Diagnosis(kind=kind, action="prune", advice="lower it", stage="kv_pool"))


def trial(number: int, params: dict[str, ParamValue], outcome: Outcome) -> TrialResult:
    """A settled trial that began ``number`` half minutes into the night."""
    return TrialResult(
        number=number,
        config=Config(params=params),
        outcome=outcome,
        timings=Timings(prepare_s=1.0, start_s=10.0, load_s=20.0, stop_s=2.0, total_s=33.0),
        started_at=f"2026-11-29T20:{number // 2:02}:{30 * (number % 2):02}.000+00:00",
        finished_at=f"2026-11-29T20:{number // 2:02}:{30 * (number % 2) + 29:02}.000+00:00",
    )


def facts(*results: TrialResult, **fields: object) -> Facts:
    """Facts of these trials; the first trial without parameters is the baseline."""
    base = next((r.number for r in results if not r.config.params and isinstance(r.outcome, Measured)), None)
    scored = [r for r in results if isinstance(r.outcome, Measured)]
    best = max(scored, key=lambda r: r.outcome.score.value if isinstance(r.outcome, Measured) else 0.0, default=None)
    given: dict[str, object] = {
        "study": "<night> & co",
        "description": "made up",
        "objective": Objective(),
        "workload": Workload(concurrency=8),
        "engine": "sglang 0.5.14",
        "model": "model",
        "gpu": "GPU",
        "made_at": "today",
        "autotune_version": "0",
        "results": results,
        "bounds": BOUNDS,
        "baseline": base,
        "chosen": best.number if best else None,
        "command": "server --name '<b>'",
    }
    return Facts(**{**given, **fields})  # type: ignore[arg-type]


def whole_night() -> Facts:
    """A dozen trials of every kind, confirmed."""
    runs: dict[str, ParamValue] = {"limit": 96, "fraction": 0.8}
    results = [trial(0, {}, measured(1000.0, runs))]
    grid = ((128, 0.8), (256, 0.8), (512, 0.85), (512, 0.8), (768, 0.75), (256, 0.9), (64, 0.75))
    for limit, fraction in grid:
        asked: dict[str, ParamValue] = {"limit": limit, "fraction": fraction}
        clamped: dict[str, ParamValue] = {"limit": min(limit, 700), "fraction": fraction}
        results.append(trial(len(results), asked, measured(900.0 + min(limit, 512), clamped)))
    results.append(trial(8, {"limit": 1024, "fraction": 0.95}, out_of_memory()))
    results.append(trial(9, {"limit": 900, "fraction": 0.94}, out_of_memory("oom_graph")))
    busy = Finding(gate="host_load", message="others used the host", fatal=True)
    results.append(trial(10, {"limit": 300, "fraction": 0.8}, Refused(findings=(busy,))))
    results.append(trial(11, {"limit": 320, "fraction": 0.8}, Interrupted(reason="cut off")))
    return facts(*results, confirmed=confirmed(1.4), logs={0: "../trials/0000/server.log"})


def confirmed(ratio: float) -> Confirmed:
    """Four starts a side that differ by this ratio."""
    starts = [Start(arm=0, block=i, value=1000.0 + 10 * i, stderr=5.0) for i in range(4)]
    starts += [Start(arm=1, block=i, value=ratio * (1000.0 + 10 * i), stderr=5.0) for i in range(4)]
    judgement = judge(starts, metric="output_throughput_tok_s")
    arms = (Config(params={}), Config(params={"limit": 512, "fraction": 0.85}))
    trials = tuple(trial(20 + i, {}, measured(start.value)) for i, start in enumerate(starts[:4]))
    return Confirmed(
        sentence=str(judgement.headline), judgement=judgement, arms=arms, starts=tuple(starts), trials=trials
    )
