"""The samplers that a study file can name. Each is made anew for every suggestion, see ``seed_for``."""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Callable

import msgspec
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from autotune.errors import InputError
from autotune.search.gp.belief import Parts
from autotune.search.gp.borrowed import NOTHING_BORROWED, Borrowed
from autotune.search.gp.chart import hints_of
from autotune.search.gp.sampler import AutotuneSampler, Background
from autotune.search.region import Region


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """What a sampler is made from. ``region`` says what axes mean; ``request_tokens`` is what a request in flight
    holds on average (0: unknown); ``repeats`` allows it to start a known configuration again; ``borrowed`` is what
    another study left.
    """

    seed: int = 0
    startup_trials: int = 4
    region: Region | None = None
    request_tokens: float = 0.0
    repeats: bool = False
    parts: Parts = Parts()
    borrowed: Borrowed = NOTHING_BORROWED


OWN = "autotune"
"""The project's own sampler, the only one that has a belief."""

SamplerFactory = Callable[[Knowledge], BaseSampler]


def seed_for(seed: int, ordinal: int) -> int:
    """The seed of suggestion ``ordinal``: what it draws does not depend on whether the tuner was restarted."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{ordinal}".encode()).digest()[:4], "big")


def make_sampler(name: str, known: Knowledge) -> BaseSampler:
    """The sampler ``name``. Raises ``InputError`` for one that is unknown or cannot run here."""
    factory = SAMPLERS.get(name)
    if factory is None:
        raise InputError(f"search.sampler: {name!r} is not known; use one of {', '.join(SAMPLERS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return factory(known)


def _autotune(known: Knowledge) -> BaseSampler:
    hints = hints_of(known.region) if known.region else {}
    return AutotuneSampler(
        known.seed,
        hints,
        background=Background(request_tokens=known.request_tokens, borrowed=known.borrowed),
        repeats=known.repeats,
        parts=known.parts,
    )


def _tpe(known: Knowledge) -> BaseSampler:
    # Restarts are dear: leave chance early. Parameters move together, so they are modelled together.
    return TPESampler(seed=known.seed, multivariate=True, n_startup_trials=known.startup_trials, n_ei_candidates=64)


def _tpe_default(known: Knowledge) -> BaseSampler:
    return TPESampler(seed=known.seed)


def _random(known: Knowledge) -> BaseSampler:
    return RandomSampler(seed=known.seed)


def _gp(known: Knowledge) -> BaseSampler:
    if importlib.util.find_spec("torch") is None:
        raise InputError("search.sampler: 'gp' needs PyTorch; `pip install torch`, or choose 'autotune'")
    return GPSampler(seed=known.seed, n_startup_trials=known.startup_trials, deterministic_objective=False)


SAMPLERS: dict[str, SamplerFactory] = {
    OWN: _autotune,
    "tpe": _tpe,
    "tpe-default": _tpe_default,
    "random": _random,
    "gp": _gp,
}
