"""Short ways to write the values that the verdict package works on."""

from __future__ import annotations

import numpy as np

from autotune.values import Estimate, Measurement, ParamValue
from autotune.verdict.fit import Start
from autotune.verdict.noise import Tried
from autotune.verdict.schedule import plan_schedule

THROUGHPUT = "output_throughput_tok_s"


def tried(*values: float, error: float = 0.0, **params: ParamValue) -> Tried:
    """A configuration started once per value; ``error`` is the relative error within a start."""
    return Tried(params=params, values=values, stderrs=tuple(v * error for v in values))


def measurement(steady: dict[str, float], **estimates: Estimate) -> Measurement:
    """A measurement with these figures and nothing to complain about."""
    return Measurement(
        whole=steady,
        steady=steady,
        estimates=estimates,
        requests_completed=1000,
        requests_failed=0,
        warmup_s=5.0,
        window_s=30.0,
        duration_s=40.0,
    )


def confirmation(gains: tuple[float, ...], noise: float, rng: np.random.Generator, blocks: int = 5) -> list[Start]:
    """The starts of a confirmation of finalists with these true gains."""
    schedule = plan_schedule(finalists=len(gains), blocks=blocks, seed=int(rng.integers(1 << 30)))
    true = (1000.0, *(1000.0 * (1 + g) for g in gains))
    return [
        Start(arm=s.arm, block=s.block, value=true[s.arm] * float(np.exp(noise * rng.standard_normal())))
        for s in schedule.slots
    ]
