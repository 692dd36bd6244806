"""Small spaces and results for the tests of the search."""

from __future__ import annotations

from pathlib import Path

from autotune.search import Region, Strategy
from autotune.space.bounds import Bound
from autotune.space.parameters import parse_space
from autotune.study.folder import StudyFolder
from autotune.study.record import Begun, Records
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
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

SPACE = parse_space(
    """
engine = "toy"
[parameters.limit]
kind = "int"
flags = [{ flag = "--limit" }]
low = 16
high = 4096
step = 8
log = true
[parameters.ceiling]
kind = "int"
flags = [{ flag = "--ceiling" }]
low = 1
high = 512
[parameters.fraction]
kind = "float"
flags = [{ flag = "--fraction" }]
low = 0.5
high = 0.95
step = 0.01
[parameters.policy]
kind = "choice"
flags = [{ flag = "--policy" }]
choices = ["lpm", "fcfs"]
[parameters.steps]
kind = "int"
flags = [{ flag = "--steps" }]
choices = [1, 2, 4, 8]
[parameters.overlap]
kind = "bool"
flags = [{ flag = "--overlap" }]
[[rules]]
kind = "follows"
parameter = "ceiling"
leader = "limit"
shares = [0.25, 0.5, 0.75, 1.0]
""",
    "toy.toml",
)
LIMIT = Bound(name="limit", kind="int", low=16, high=4096, step=8, log=True)
CEILING = Bound(name="ceiling", kind="int", low=1, high=512)
FRACTION = Bound(name="fraction", kind="float", low=0.5, high=0.95, step=0.01)
POLICY = Bound(name="policy", kind="choice", choices=("lpm", "fcfs"))
STEPS = Bound(name="steps", kind="int", choices=(1, 2, 4, 8))
OVERLAP = Bound(name="overlap", kind="bool", choices=(False, True))

WIDE = Region(space=SPACE, bounds=(LIMIT, CEILING, FRACTION, POLICY, STEPS, OVERLAP))
SMALL = Region(space=SPACE, bounds=(POLICY, STEPS))
DEFAULTS: dict[str, ParamValue] = {
    "limit": 256,
    "ceiling": 128,
    "fraction": 0.8,
    "policy": "lpm",
    "steps": 1,
    "overlap": True,
}
STRATEGY = Strategy(seed=5, startup_trials=2)
NOW = "2026-01-02T03:04:05+00:00"


def measured(score: float, effective: dict[str, ParamValue] | None = None, **steady: float) -> Measured:
    """A measurement with that score."""
    return Measured(
        score=Estimate(value=score, stderr=score / 100, batches=10),
        measurement=Measurement(
            whole={},
            steady={"output_throughput_tok_s": score, **steady},
            estimates={},
            requests_completed=100,
            requests_failed=0,
            warmup_s=1.0,
            window_s=10.0,
            duration_s=12.0,
        ),
        effective=Effective(source="server_info", values=effective or {}),
    )


def infeasible(kind: str = "oom_graph") -> Infeasible:
    """A failure of that kind."""
    return Infeasible(diagnosis=Diagnosis(kind=kind, action="prune", evidence=("CUDA out of memory",), stage="load"))


def refused() -> Refused:
    """A measurement that is not valid."""
    return Refused(findings=())


def interrupted() -> Interrupted:
    """A trial that was cut off."""
    return Interrupted(reason="the tuner was killed")


def result(number: int, params: dict[str, ParamValue], outcome: Outcome, repeat_of: int | None = None) -> TrialResult:
    """A settled trial."""
    return TrialResult(
        number=number,
        config=Config(params=params),
        outcome=outcome,
        timings=Timings(start_s=3.0, load_s=10.0, total_s=14.0),
        started_at=NOW,
        finished_at=NOW,
        repeat_of=repeat_of,
    )


def baseline(score: float = 100.0) -> TrialResult:
    """Trial 0, whose parameters only the server knows."""
    return result(0, {}, measured(score, DEFAULTS))


def judge(config: Config) -> Outcome:
    """A deterministic world: large limits run out of memory, one policy is refused sometimes."""
    limit = float(config.params.get("limit", 256))
    fraction = float(config.params.get("fraction", 0.8))
    if limit > 2000 and fraction > 0.85:
        return infeasible()
    if limit < 40:
        return refused()
    return measured(limit * (1 + fraction))


def records_in(folder: Path) -> Records:
    """Records in a fresh study folder."""
    study = StudyFolder(folder / "study")
    study.create()
    return Records(study)


def begun(number: int, params: dict[str, ParamValue]) -> Begun:
    """The first record of a trial."""
    return Begun(number=number, config=Config(params=params), started_at=NOW)
