"""Optuna's samplers as their users run them: one study in memory, OOM told as PRUNED with a violated constraint."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler

from autotune.search.outcomes import Place, frozen_trial
from autotune.search.suggest import encoded
from autotune.search.transfer import in_force
from autotune.values import Config, Infeasible, Measured, TrialResult
from benchmarks.search.study import Method, NoLive, Task, best_seen

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", ExperimentalWarning)


class OptunaPeer(NoLive):
    """Any Optuna sampler on the axes of the region: the same shares, log scales and rounding as ours has."""

    def __init__(self, task: Task, sampler: BaseSampler) -> None:
        self._region = task.region
        self._axes = task.region.axes()
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._open: optuna.Trial | None = None
        self._results: list[TrialResult] = []

    def ask(self) -> Config | None:
        self._open = self._study.ask({axis.name: axis.distribution() for axis in self._axes})
        drawn = self._open.params
        return self._region.config({axis.name: axis.value(drawn[axis.name]) for axis in self._axes})

    def tell(self, result: TrialResult) -> None:
        self._results.append(result)
        if self._open is None:
            self._study.add_trial(frozen_trial(result, self._place(result), {}))
            return
        match result.outcome:
            case Measured(score=score):
                self._open.set_constraint("feasible", -1.0)
                self._study.tell(self._open, score.value)
            case Infeasible():
                self._open.set_constraint("feasible", 1.0)
                self._study.tell(self._open, state=optuna.trial.TrialState.PRUNED)

    def recommend(self) -> int:
        return best_seen(self._results)

    def _place(self, result: TrialResult) -> Place:
        place = encoded(self._region.point(in_force(result)), self._axes)
        return place or Place()


def _peer(make: Callable[[int], BaseSampler]) -> Callable[[Task], Method]:
    return lambda task: OptunaPeer(task, make(task.seed))


OPTUNA: dict[str, Callable[[Task], Method]] = {
    "random": _peer(lambda seed: RandomSampler(seed=seed)),
    "Optuna TPE, defaults": _peer(lambda seed: TPESampler(seed=seed)),
    "Optuna TPE, multivariate": _peer(lambda seed: TPESampler(seed=seed, multivariate=True, n_startup_trials=4)),
    "Optuna TPE, constant liar": _peer(lambda seed: TPESampler(seed=seed, multivariate=True, constant_liar=True)),
}
if importlib.util.find_spec("cmaes"):
    OPTUNA["Optuna CMA-ES"] = _peer(lambda seed: CmaEsSampler(seed=seed, warn_independent_sampling=False))
# Seconds per suggestion: run only where it is asked for by name.
SLOW: dict[str, Callable[[Task], Method]] = {}
if importlib.util.find_spec("torch"):
    SLOW["Optuna GPSampler"] = _peer(lambda seed: GPSampler(seed=seed, deterministic_objective=False))
