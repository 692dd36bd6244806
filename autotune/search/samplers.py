"""The samplers that a study file can name. Each is made anew for every suggestion, see ``seed_for``."""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Callable

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from autotune.errors import InputError

SamplerFactory = Callable[[int, int], BaseSampler]


def seed_for(seed: int, ordinal: int) -> int:
    """The seed of suggestion ``ordinal``: what it draws does not depend on whether the tuner was restarted."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{ordinal}".encode()).digest()[:4], "big")


def make_sampler(name: str, seed: int, startup_trials: int) -> BaseSampler:
    """The sampler ``name``. Raises ``InputError`` for one that is unknown or cannot run here."""
    factory = SAMPLERS.get(name)
    if factory is None:
        raise InputError(f"search.sampler: {name!r} is not known; use one of {', '.join(SAMPLERS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return factory(seed, startup_trials)


def _tpe(seed: int, startup_trials: int) -> BaseSampler:
    # Restarts are dear: leave chance early. Parameters move together, so they are modelled together.
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=startup_trials, n_ei_candidates=64)


def _tpe_default(seed: int, startup_trials: int) -> BaseSampler:
    return TPESampler(seed=seed)


def _random(seed: int, startup_trials: int) -> BaseSampler:
    return RandomSampler(seed=seed)


def _gp(seed: int, startup_trials: int) -> BaseSampler:
    if importlib.util.find_spec("torch") is None:
        raise InputError("search.sampler: 'gp' needs PyTorch; `pip install torch`, or choose 'tpe'")
    return GPSampler(seed=seed, n_startup_trials=startup_trials, deterministic_objective=False)


SAMPLERS: dict[str, SamplerFactory] = {"tpe": _tpe, "tpe-default": _tpe_default, "random": _random, "gp": _gp}
