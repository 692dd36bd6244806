"""A small server for the tests of the sampler: the H200 table's formula over a region of four parameters."""

from __future__ import annotations

import math
import random

from autotune.search.region import Region
from autotune.search.suggest import Strategy, propose
from autotune.space.bounds import Bound
from autotune.space.files import load_space
from autotune.values import Config, Diagnosis, Effective, Infeasible, Measured, Outcome, ParamValue, TrialResult
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


def night(
    trials: int, strategy: Strategy = STRATEGY, region: Region = REGION, noise: float = 0.05
) -> list[TrialResult]:
    """The baseline and ``trials`` more."""
    history = [result(0, {}, run(Config(params={}), noise, f"{strategy.seed}|0"))]
    for number in range(1, trials + 1):
        found = propose(history, region, strategy)
        assert found is not None
        history.append(result(number, found.config.params, run(found.config, noise, f"{strategy.seed}|{number}")))
    return history
