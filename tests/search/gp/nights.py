"""A small server for the tests of the sampler: the H200 table's formula over a region of four parameters."""

from __future__ import annotations

import math
import random

import msgspec

from autotune.search.live import next_limit
from autotune.search.region import Region
from autotune.search.suggest import Strategy, propose
from autotune.space.bounds import Bound
from autotune.space.files import load_space
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    LiveFigures,
    Measured,
    Outcome,
    ParamValue,
    TrialResult,
)
from tests.search.worlds import measured, result

RUN = Bound(name="max_running_requests", kind="int", low=128, high=2048, step=8, log=True)
GRAPH = Bound(name="cuda_graph_max_bs", kind="int", low=8, high=2048, step=8, log=True)
MEMORY = Bound(name="mem_fraction_static", kind="float", low=0.8, high=0.985, step=0.005)
CHUNK = Bound(name="chunked_prefill_size", kind="int", low=1024, high=16384, step=512, log=True)
REGION = Region(space=load_space("sglang"), bounds=(RUN, GRAPH, MEMORY, CHUNK))
STRATEGY = Strategy(sampler="autotune", seed=3, request_tokens=192.0)
DEFAULTS: dict[str, ParamValue] = {
    "max_running_requests": 2048,
    "cuda_graph_max_bs": 256,
    "mem_fraction_static": 0.85,
    "chunked_prefill_size": 8192,
}


def truth(params: dict[str, ParamValue]) -> float | None:
    """Tokens per second, None where memory runs out."""
    full = {**DEFAULTS, **params}
    running, graph, fraction, chunk = (float(full[name]) for name in DEFAULTS)
    if 139.11 * (1 - fraction) < 7 + 0.0012 * graph + 0.0002 * chunk:
        return None
    return running / (0.016 + 0.0000352 * running + (0.03 if running > graph else 0.0))


def run(config: Config, noise: float, seed: str) -> Outcome:
    """One start."""
    value = truth(config.params)
    if value is None:
        return Infeasible(diagnosis=Diagnosis(kind="oom_runtime", action="prune", stage="load"))
    seen = value * math.exp(random.Random(seed).gauss(0, noise))
    found = measured(seen, {**DEFAULTS, **config.params})
    effective = Effective(source="server_info", kv_tokens=669_932, values={**DEFAULTS, **config.params})
    return Measured(score=found.score, measurement=found.measurement, effective=effective)


def loaded(config: Config, outcome: Outcome, history: list[TrialResult], strategy: Strategy, offset: float) -> Outcome:
    """The same start with up to three more loads at lower running limits, all of them off by ``offset``."""
    while isinstance(outcome, Measured) and len(outcome.live) < 3:
        limit = next_limit(history, (config, outcome), REGION, strategy)
        if limit is None:
            break
        own = truth(config.params)
        assert own is not None
        start = outcome.score.value / own
        outcome = msgspec.structs.replace(outcome, live=(*outcome.live, live(config, limit, start * (1 + offset))))
    return outcome


def live(config: Config, limit: int, factor: float = 1.0) -> LiveFigures:
    """A load of a start at a lower limit, off by ``factor``."""
    full = {**DEFAULTS, **config.params, "max_running_requests": limit}
    value = truth(full)
    assert value is not None
    score = Estimate(value=value * factor, stderr=value * factor / 100, batches=10)
    return LiveFigures(limit=limit, score=score, steady={"output_throughput_tok_s": score.value}, load_s=30.0)


def night(
    trials: int,
    strategy: Strategy = STRATEGY,
    region: Region = REGION,
    noise: float = 0.05,
    offset: float | None = None,
) -> list[TrialResult]:
    """The baseline and ``trials`` more; with an ``offset`` of loads at lower limits, with such loads."""
    history: list[TrialResult] = []
    for number in range(trials + 1):
        found = propose(history, region, strategy) if history else None
        config = found.config if found else Config(params={})
        outcome = run(config, noise, f"{strategy.seed}|{number}")
        if offset is not None:
            outcome = loaded(config, outcome, history, strategy, offset)
        history.append(result(number, config.params, outcome))
    return history
