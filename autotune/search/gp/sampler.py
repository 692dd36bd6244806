"""The sampler ``autotune``: a function of the study's trials and the seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotune.search.gp.belief import Belief, Parts, Question, believe
from autotune.search.gp.borrowed import NOTHING_BORROWED, Borrowed
from autotune.search.gp.candidates import candidates, closer
from autotune.search.gp.chart import Chart, Hint
from autotune.search.gp.doubt import unseen_middle
from autotune.search.gp.observations import observe

Array = NDArray[np.float64]
REPEAT_OF = "autotune:repeat_of"
LOOKED_AT = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
# What a lost start costs, in relative gain: it teaches less than one that lives, and may hang a GPU.
LOST = 0.01
# Below this a gain is none.
NOTHING = 2e-4
# What a look between running limits that were tried is worth, relative: a formula does not know all servers.
LOOK = 0.005
# How much a doubtful chance to live weighs against throughput, where there is nothing to be gained.
CAUTION = 0.3
SECOND_LOOK = 4
ALL_PARTS = Parts()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to start next: a point in unit coordinates, ``gain`` expected, ``repeat_of`` a trial to start once more."""

    point: tuple[float, ...]
    gain: float
    repeat_of: int | None = None


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the axes: tokens that a request in flight holds (0: unknown), and another study's trials."""

    request_tokens: float = 0.0
    borrowed: Borrowed = NOTHING_BORROWED


NOTHING_KNOWN = Background()


class AutotuneSampler(BaseSampler):
    """Suggests the start with the largest expected gain.

    ``hints`` say what axes mean (``chart.hints_of``); without them it is a plain Bayesian optimiser. ``repeats``
    allows it to start a known configuration again where that is worth more than a new one: the trial then has the
    system attribute ``REPEAT_OF``. For one objective only.
    """

    def __init__(
        self,
        seed: int | None = None,
        hints: Mapping[str, Hint] | None = None,
        *,
        background: Background = NOTHING_KNOWN,
        repeats: bool = False,
        parts: Parts = ALL_PARTS,
    ) -> None:
        self._seed = seed
        self._hints = dict(hints or {})
        self._background = background
        self._repeats = repeats
        self._parts = parts
        self._random = RandomSampler(seed=seed)
        self._space = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All axes that every trial had; ranges of one value need no model."""
        space = self._space.calculate(study)
        return {name: distribution for name, distribution in space.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See ``choose``. Before anything was measured: nothing, and the axes are drawn at random."""
        self._refuse_many(study)
        if not search_space:
            return {}
        chart = Chart.of(search_space, self._hints)
        trials = [t for t in study.get_trials(deepcopy=False, states=LOOKED_AT) if t.number != trial.number]
        question = self.question(chart, study.direction)
        belief = believe(question, observe(trials, chart, question.sign))
        if not belief.groups:
            return {}
        choice = choose(belief, self._chance(len(trials)), repeats=self._repeats)
        if choice.repeat_of is not None:
            study._storage.set_trial_system_attr(trial._trial_id, REPEAT_OF, choice.repeat_of)
        return chart.params(choice.point)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random."""
        self._refuse_many(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def question(self, chart: Chart, direction: StudyDirection) -> Question:
        """What this sampler asks of a study."""
        sign = 1.0 if direction is StudyDirection.MAXIMIZE else -1.0
        known = self._background
        return Question(
            chart=chart,
            sign=sign,
            request_tokens=known.request_tokens,
            parts=self._parts,
            borrowed=known.borrowed.seen(chart, sign),
            alike=known.borrowed.alike,
        )

    def _chance(self, trials: int) -> np.random.Generator:
        return np.random.default_rng(None if self._seed is None else [self._seed, trials])

    def _refuse_many(self, study: Study) -> None:
        self._raise_error_if_multi_objective(study)


def choose(belief: Belief, chance: np.random.Generator, *, repeats: bool) -> Choice:
    """The start with the largest expected gain: a new point, or one that is known, once more."""
    chart = belief.chart
    points = _untried(belief, candidates(chart, belief.homes(), chance))
    if not len(points):
        return _any_point(belief, chance)
    rates = _rates(belief, points)
    promising = points[np.argsort(-rates, kind="stable")[:SECOND_LOOK]]
    nearer = _untried(belief, closer(chart, promising, chance))
    points = np.concatenate([points, nearer])
    rates = np.concatenate([rates, _rates(belief, nearer)])
    best = int(np.argmax(rates))
    new = Choice(point=tuple(points[best]), gain=float(rates[best]))
    middle = unseen_middle(belief) if new.gain < LOOK else None
    if middle is not None and len(_untried(belief, middle[None, :])):
        new = Choice(point=tuple(middle), gain=LOOK)
    again = _best_repeat(belief) if repeats else None
    if again is not None and again.gain > max(new.gain, NOTHING):
        return again
    return new if new.gain > NOTHING else _hopeful(belief, points, new.gain)


def _hopeful(belief: Belief, points: Array, gain: float) -> Choice:
    """Where no single start is expected to gain anything: the safe point that could be best with some luck."""
    mean, deviation = belief.forecast(points)
    luck = mean + 2 * deviation + np.log(np.maximum(belief.chances(points), 1e-9)) / CAUTION
    return Choice(point=tuple(points[int(np.argmax(luck))]), gain=max(gain, 0.0))


def _rates(belief: Belief, points: Array) -> Array:
    """Expected gain, less what a lost start costs."""
    if not len(points):
        return np.zeros(0)
    chances = belief.chances(points)
    return np.asarray(belief.worth(points) - LOST * (1 - chances))


def _best_repeat(belief: Belief) -> Choice | None:
    places, gains = belief.worth_repeating()
    if not places:
        return None
    best = int(np.argmax(gains))
    group = belief.groups[places[best]]
    return Choice(point=group.point, gain=float(gains[best]), repeat_of=group.trials[0])


def _untried(belief: Belief, points: Array) -> Array:
    seen = belief.seen
    known = {_key(p) for p in (*(g.point for g in seen.fresh), *(f.point for f in seen.failures), *seen.pending)}
    kept = [i for i, point in enumerate(points) if _key(point) not in known]
    return points[kept]


def _any_point(belief: Belief, chance: np.random.Generator) -> Choice:
    """Every point is known: whoever asks has to decide what to do with one that is."""
    points = candidates(belief.chart, belief.seen.points(), chance)
    return Choice(point=tuple(points[int(chance.integers(len(points)))]), gain=0.0)


def _key(point: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(float(u), 6) for u in point)
