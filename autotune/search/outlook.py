"""What the search believes of a study, without asking for another trial: whom to recommend, and whether to go on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.distributions import BaseDistribution

from autotune.search.gp.belief import Belief, Parts, Question, believe
from autotune.search.gp.chart import Chart, hints_of
from autotune.search.gp.observations import observe
from autotune.search.gp.sampler import ALL_PARTS, choose
from autotune.search.region import Region
from autotune.search.samplers import OWN, Knowledge, seed_for
from autotune.search.suggest import Strategy, borrowed, fresh_trials, model_study
from autotune.study.transfer import Trust
from autotune.values import TrialResult, Value


class Outlook(Value, frozen=True, kw_only=True):
    """``number`` is the trial whose configuration is believed to be the best, ``value`` its posterior mean in the
    objective's unit and ``relative_stderr`` its error; ``gain`` what one more start is expected to add, relative;
    ``noise`` the relative deviation between equal starts.
    """

    number: int
    value: float
    relative_stderr: float
    gain: float
    noise: float


class Ranked(Value, frozen=True, kw_only=True):
    """A configuration by its first trial, with its posterior mean in the objective's unit and that one's error."""

    number: int
    value: float
    relative_stderr: float


def recommended(
    history: Sequence[TrialResult], region: Region, strategy: Strategy, *, parts: Parts = ALL_PARTS
) -> int | None:
    """The number of the trial with the best posterior mean, None when nothing was measured within the limits."""
    belief, numbers = belief_of(history, region, strategy, parts)
    best = belief.best() if belief and belief.groups else None
    return None if belief is None or best is None else numbers[belief.groups[best].trials[0]]


def ranking(history: Sequence[TrialResult], region: Region, strategy: Strategy) -> list[Ranked]:
    """The configurations that may be recommended, the best first."""
    belief, numbers = belief_of(history, region, strategy, ALL_PARTS)
    if belief is None or not belief.groups:
        return []
    means, deviations = belief.means(), belief.deviations()
    return [
        Ranked(
            number=numbers[belief.groups[i].trials[0]],
            value=math.exp(belief.question.sign * float(means[i])),
            relative_stderr=float(deviations[i]),
        )
        for i in sorted(belief.eligible(), key=lambda i: -means[i])
    ]


def outlook(history: Sequence[TrialResult], region: Region, strategy: Strategy) -> Outlook | None:
    """None before anything was measured within the limits."""
    belief, numbers = belief_of(history, region, strategy, ALL_PARTS)
    best = belief.best() if belief and belief.groups else None
    if belief is None or best is None:
        return None
    chance = np.random.default_rng(seed_for(strategy.seed, fresh_trials(history)))
    mean = float(belief.means()[best])
    return Outlook(
        number=numbers[belief.groups[best].trials[0]],
        value=math.exp(belief.question.sign * mean),
        relative_stderr=float(belief.deviations()[best]),
        gain=choose(belief, chance, repeats=True).gain,
        noise=belief.noise(),
    )


def trust(history: Sequence[TrialResult], region: Region, strategy: Strategy) -> Trust | None:
    """How likely it is that the study that was taken over tells something of this one, from what was measured here.

    None where nothing was taken over, nothing is measured yet, the sampler does not borrow, or one's own trials tell
    more by now.
    """
    if strategy.transfer is None or strategy.sampler != OWN:
        return None
    belief, _ = belief_of(history, region, strategy, ALL_PARTS)
    if belief is None or not belief.groups or not belief.borrows():
        return None
    name, weight, trials = strategy.transfer.source, belief.borrowing(), len(belief.seen.fresh)
    sentence = (
        f"what was taken over from {name} no longer counts: with it, the {trials} configurations measured here are "
        "far less likely than without"
        if weight == 0
        else f"what was taken over from {name} counts {weight:.0%} after {trials} measured configurations"
    )
    return Trust(source=name, weight=weight, trials=trials, dropped=weight == 0, sentence=sentence)


def why_enough(seen: Outlook | None, least_gain: float) -> str | None:
    """The reason to stop searching, None to go on: one more start is expected to gain less than it is worth.

    ``least_gain`` is the relative gain for which the user would pay another restart, for example 0.002.
    """
    if seen is None or seen.gain >= least_gain:
        return None
    return (
        f"another start is expected to gain {seen.gain:.2%}, less than the {least_gain:.2%} that it has to be worth "
        f"(noise between starts {seen.noise:.1%})"
    )


def belief_of(
    history: Sequence[TrialResult], region: Region, strategy: Strategy, parts: Parts = ALL_PARTS
) -> tuple[Belief | None, list[int]]:
    """The posterior over a study, and the records' numbers of its model's trials; None where nothing is searched."""
    model, numbers = model_study(history, region, strategy, Knowledge())
    space: dict[str, BaseDistribution] = {axis.name: axis.distribution() for axis in region.axes()}
    space = {name: distribution for name, distribution in space.items() if not distribution.single()}
    if not space:
        return None, numbers
    chart, sign = Chart.of(space, hints_of(region)), 1.0 if strategy.direction == "maximize" else -1.0
    left = borrowed(history, region, strategy)
    question = Question(
        chart=chart,
        sign=sign,
        request_tokens=strategy.request_tokens,
        parts=parts,
        borrowed=left.seen(chart, sign),
        alike=left.alike,
    )
    seen = observe(model.get_trials(deepcopy=False), question.chart, question.sign)
    return believe(question, seen), numbers
