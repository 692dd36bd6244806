"""One simulated study: search on noisy trials, choice of finalists, confirmation on fresh starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from autotune.verdict.confirm import Judgement, Rules, judge
from autotune.verdict.fit import Start
from autotune.verdict.noise import NoiseModel, Tried, estimate_noise
from autotune.verdict.recommend import finalists
from autotune.verdict.schedule import BASELINE, plan_schedule

METRIC = "output_throughput_tok_s"
BASE_TOK_S = 18_000.0
WITHIN = 0.005
BASELINE_EVERY = 4
SLOW = 0.2


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. ``gains`` are the true relative gains of the configurations over the baseline.

    ``noise`` is the relative deviation between starts. Drift multiplies every value by (1 + drift) in the
    course of the study: steadily over all starts, by one step in the middle of the confirmation (cold: after
    its first start), or as a random walk whose end has that deviation. ``slow_share`` of the starts are
    ``SLOW`` slower for no reason.
    """

    gains: tuple[float, ...]
    noise: float
    drift: float = 0.0
    shape: Literal["line", "step", "cold", "walk"] = "line"
    slow_share: float = 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the study is done. ``search`` False: the single configuration goes straight to confirmation."""

    finalists: int = 1
    blocks: int = 5
    more_baseline: bool = True
    search: bool = False
    looks: tuple[int, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the study said. ``truth`` is the true gain of the configuration in the headline."""

    claimed: bool
    covered: bool
    truth: float
    starts: int


class Machine:
    """Gives out measurements, one server start each, in virtual time."""

    def __init__(self, world: World, rng: np.random.Generator, starts: int, middle: int) -> None:
        self.world, self.rng, self.done = world, rng, 0
        self.level = _drift(world, rng, starts, middle)

    def start(self, gain: float) -> tuple[float, float]:
        """Value and within-start standard error of the next start of a configuration with that true gain."""
        log = np.log1p(gain) + self.level[min(self.done, len(self.level) - 1)]
        log += self.rng.normal(0.0, self.world.noise) + self.rng.normal(0.0, WITHIN)
        log += np.log1p(-SLOW) * (self.rng.random() < self.world.slow_share)
        self.done += 1
        value = BASE_TOK_S * float(np.exp(log))
        return value, value * WITHIN


def _drift(world: World, rng: np.random.Generator, starts: int, middle: int) -> np.ndarray:
    size = np.log1p(world.drift)
    if world.shape in ("step", "cold"):
        return np.where(np.arange(starts) < middle, 0.0, size)
    if world.shape == "walk":
        return np.cumsum(rng.normal(0.0, size / np.sqrt(starts), starts))
    return np.linspace(0.0, size, starts)


def run_study(world: World, plan: Plan, seed: int) -> Answer:
    """The whole study, by the functions that the product uses."""
    rng = np.random.default_rng(seed)
    searched = len(world.gains) + 1 + len(world.gains) // BASELINE_EVERY if plan.search else 0
    confirm = (plan.finalists + 1) * plan.blocks + 2 * plan.more_baseline
    machine = Machine(world, rng, searched + confirm, searched + (1 if world.shape == "cold" else confirm // 2))
    chosen, noise = _search(world, plan, machine) if plan.search else (tuple(range(plan.finalists)), None)
    gains = (0.0, *(world.gains[i] for i in chosen))
    judgement, starts = _confirm(gains, plan, machine, noise, seed)
    head = judgement.headline
    truth = gains[head.arm]
    return Answer(
        claimed=judgement.winner != BASELINE,
        covered=head.low <= truth <= head.high,
        truth=truth,
        starts=starts,
    )


def _search(world: World, plan: Plan, machine: Machine) -> tuple[tuple[int, ...], NoiseModel]:
    """Every configuration once, the baseline first and again every few trials; the finalists by posterior."""
    baseline = [machine.start(0.0)]
    trials = []
    for i, gain in enumerate(world.gains):
        trials.append(Tried(params={"i": i}, values=(seen := machine.start(gain))[:1], stderrs=seen[1:]))
        if (i + 1) % BASELINE_EVERY == 0:
            baseline.append(machine.start(0.0))
    base = Tried(params={}, values=tuple(v for v, _ in baseline), stderrs=tuple(e for _, e in baseline))
    noise = estimate_noise([base, *trials])
    best = finalists([base, *trials], plan.finalists, noise, METRIC)
    return tuple(r.index - 1 for r in best), noise


def _confirm(
    gains: Sequence[float], plan: Plan, machine: Machine, noise: NoiseModel | None, seed: int
) -> tuple[Judgement, int]:
    """Runs the schedule; with looks, stops at the first look that decides for a gain or a loss."""
    schedule = plan_schedule(finalists=len(gains) - 1, blocks=plan.blocks, seed=seed, more_baseline=plan.more_baseline)
    rules = Rules(looks=plan.looks, planned=plan.blocks)
    starts: list[Start] = []
    for n, slot in enumerate(schedule.slots):
        value, stderr = machine.start(gains[slot.arm])
        starts.append(Start(arm=slot.arm, block=slot.block, value=value, stderr=stderr))
        after = schedule.slots[n + 1 : n + 2]
        ended = not after or after[0].block != slot.block
        if ended and slot.block + 1 in plan.looks and slot.block + 1 < plan.blocks:
            early = judge(starts, metric=METRIC, noise=noise, rules=rules)
            if early.headline.kind != "no difference":
                return early, len(starts)
    return judge(starts, metric=METRIC, noise=noise, rules=rules), len(starts)
