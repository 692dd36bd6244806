"""The next parameters: a function of what was settled, the seed and the region, of nothing else.

The sampler works on a study in memory that is built from the records: what it proposes is the same
whether or not the tuner was restarted in between, and what it learns from is what was in force.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import optuna

from autotune.search.gp.belief import Parts
from autotune.search.gp.borrowed import NOTHING_BORROWED, Borrowed
from autotune.search.gp.sampler import ALL_PARTS, REPEAT_OF
from autotune.search.outcomes import Place, frozen_trial
from autotune.search.region import Axis, Direction, Point, Region
from autotune.search.samplers import Knowledge, make_sampler, seed_for
from autotune.search.transfer import bridge, first_config, in_force
from autotune.study.transfer import Transfer
from autotune.values import Config, Interrupted, TrialResult

# A sampler that proposes known configs this often in a row is moved to a neighbour.
ATTEMPTS = 6
EXHAUSTIVE_POINTS = 4096
NEIGHBOURS = 1024


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """How to search. ``limits`` maps metrics to largest values; ``request_tokens`` is what a request in flight holds
    on average (in + out/2; 0: unknown), from which the KV capacity bounds the batch. ``transfer`` is what was
    taken over from another study.
    """

    sampler: str = "autotune"
    seed: int = 0
    startup_trials: int = 4
    direction: Direction = "maximize"
    limits: Mapping[str, float] = {}
    request_tokens: float = 0.0
    transfer: Transfer | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What to start next. ``repeat_of`` is the trial of which it is one more start, chosen for what that tells."""

    config: Config
    repeat_of: int | None = None


def suggest(history: Sequence[TrialResult], region: Region, strategy: Strategy) -> Config | None:
    """A config that no settled trial has, None when the region has no other. Nothing is written."""
    proposal = propose(history, region, strategy, repeats=False)
    return proposal.config if proposal else None


def propose(
    history: Sequence[TrialResult],
    region: Region,
    strategy: Strategy,
    *,
    repeats: bool = True,
    parts: Parts = ALL_PARTS,
) -> Proposal | None:
    """Like ``suggest``, but a sampler that knows its value may ask for a repeat of a measured trial.

    The best of a study that was taken over comes first: it says at once what that is worth here.
    """
    axes = region.axes()
    seen = {result.config.key() for result in history if not isinstance(result.outcome, Interrupted)}
    first = first_config(strategy.transfer, region, history) if strategy.transfer else None
    if first is not None and first.key() not in seen:
        return Proposal(config=first)
    seed = seed_for(strategy.seed, fresh_trials(history))
    model, numbers = model_study(history, region, strategy, Knowledge(seed=seed, repeats=repeats, parts=parts))
    distributions = {axis.name: axis.distribution() for axis in axes}
    point: Point = {}
    for _ in range(ATTEMPTS):
        # Trials of the model that are left running make its sampler look elsewhere.
        asked = model.ask(distributions)
        again = model.get_trials(deepcopy=False)[asked.number].system_attrs.get(REPEAT_OF)
        if again is not None:
            original = next(result for result in history if result.number == numbers[again])
            return Proposal(config=original.config, repeat_of=original.number)
        point = {axis.name: axis.value(asked.params[axis.name]) for axis in axes}
        config = region.config(point)
        if config.key() not in seen:
            return Proposal(config=config)
    near = (region.config(neighbour) for neighbour in _neighbours(axes, point, random.Random(seed)))
    return next((Proposal(config=config) for config in near if config.key() not in seen), None)


def fresh_trials(history: Sequence[TrialResult]) -> int:
    """Trials that were not cut off and repeat no other: the ordinal of the next suggestion."""
    return sum(1 for r in history if not isinstance(r.outcome, Interrupted) and r.repeat_of is None)


def model_study(
    history: Sequence[TrialResult], region: Region, strategy: Strategy, known: Knowledge
) -> tuple[optuna.Study, list[int]]:
    """A study in memory of the trials whose place is known, and their numbers in the records."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known = msgspec.structs.replace(
        known,
        startup_trials=strategy.startup_trials,
        region=region,
        request_tokens=strategy.request_tokens,
        borrowed=borrowed(history, region, strategy),
    )
    model = optuna.create_study(direction=strategy.direction, sampler=make_sampler(strategy.sampler, known))
    numbers = []
    axes = region.axes()
    for result in history:
        place = encoded(region.point(in_force(result)), axes)
        if place is not None:
            model.add_trial(frozen_trial(result, place, strategy.limits))
            numbers.append(result.number)
    return model, numbers


def borrowed(history: Sequence[TrialResult], region: Region, strategy: Strategy) -> Borrowed:
    """What was taken over from another study, as trials of this region."""
    if strategy.transfer is None:
        return NOTHING_BORROWED
    axes = region.axes()
    way = bridge(strategy.transfer, region, history, strategy.request_tokens)
    placed = [(result, encoded(region.point(in_force(result)), axes)) for result in way.all_brought(strategy.transfer)]
    trials = tuple(frozen_trial(result, place, {}) for result, place in placed if place is not None)
    for number, trial in enumerate(trials):
        trial.number = number
    return Borrowed(trials=trials, alike=way.alike)


def encoded(point: Point, axes: Sequence[Axis]) -> Place | None:
    """``point`` in the sampler's terms, None when an axis is unknown: a sampler needs all of them."""
    params = {axis.name: axis.encode(point[axis.name]) for axis in axes if axis.name in point}
    known = {name: value for name, value in params.items() if value is not None}
    if len(known) < len(axes):
        return None
    return Place(known, {axis.name: axis.distribution() for axis in axes})


def _neighbours(axes: Sequence[Axis], point: Point, chance: random.Random) -> Iterator[Point]:
    """Points around ``point``: all of them by distance in a small region, else a cloud that grows."""
    home = [axis.unit(point[axis.name]) for axis in axes]
    if math.prod(axis.size() for axis in axes) <= EXHAUSTIVE_POINTS:
        ladders = [[i / max(1, round(axis.size()) - 1) for i in range(round(axis.size()))] for axis in axes]
        places = sorted(itertools.product(*ladders), key=lambda place: math.dist(place, home))
        yield from ({axis.name: axis.at(u) for axis, u in zip(axes, place, strict=True)} for place in places)
        return
    for number in range(NEIGHBOURS):
        reach = 0.01 * 1.007**number
        yield {axis.name: axis.at(u + chance.gauss(0, reach)) for axis, u in zip(axes, home, strict=True)}
