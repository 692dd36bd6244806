"""Studies that never ran: facts with known answers."""

from __future__ import annotations

import msgspec

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
    LevelFigures,
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
from autotune.verdict.limits import LimitCheck

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


def drifting_night(**fields: object) -> Facts:
    """A machine that slows down from trial to trial; trial 13 is the best for its time, trial 1 by its figure."""
    ratios = {1: 1.3, 6: 1.2, 10: 1.25, 13: 1.4}
    results = []
    for number in range(17):
        ratio = ratios.get(number, 1.0)
        params: dict[str, ParamValue] = {"limit": 64 * number, "fraction": 0.8} if number in ratios else {}
        results.append(trial(number, params, measured(1000.0 * ratio * (1 - 0.02 * number))))
    return facts(*results, **fields)


def curved_night() -> Facts:
    """Starts that answered three concurrencies each, under a limit for the time per token."""

    def start(number: int, params: dict[str, ParamValue], speed: float) -> TrialResult:
        curve = tuple(
            LevelFigures(
                concurrency=level,
                steady={
                    "output_throughput_tok_s": speed * level / (1 + level / 100),
                    "tpot_p99_s": 0.02 + level / 4000,
                },
            )
            for level in (8, 32, 128)
        )
        heavy = measured(curve[-1].steady["output_throughput_tok_s"])
        figures = msgspec.structs.replace(heavy.measurement, steady=curve[-1].steady)
        return trial(number, params, msgspec.structs.replace(heavy, measurement=figures, curve=curve))

    results = [start(0, {}, 30.0)]
    results += [start(n, {"limit": 64 * n, "fraction": 0.7 + 0.02 * n}, 30.0 + 4 * n) for n in range(1, 6)]
    held = LimitCheck(metric="tpot_p99_s", value=0.04, bound=0.043, limit=0.05, holds=True)
    broken = LimitCheck(metric="tpot_p99_s", value=0.052, bound=0.055, limit=0.05, holds=False)
    limited = msgspec.structs.replace(
        confirmed(1.4), limits={"0": (held,), "1": (held,), "2": (broken,)}, dropped={"2": str(broken)}
    )
    return facts(*results, objective=Objective(constraints={"tpot_p99_s": 0.05}), confirmed=limited)


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
