"""One study: a method against a surface, and what its recommendation was worth after every start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from autotune.search.region import Region
from autotune.study.file import SearchSpec
from autotune.values import Config, Infeasible, Measured, Timings, TrialResult
from benchmarks.search.surfaces import Start, Surface, Truth

BASELINE = Config(params={})
WHEN = "2026-01-01T00:00:00+00:00"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a method is told before it begins."""

    region: Region
    seed: int
    restarts: int
    request_tokens: float
    limits: Mapping[str, float] = {}


class Method(Protocol):
    """A search. Trial 0, the baseline, is told to it first."""

    def ask_live(self, config: Config, measured: Measured) -> int | None:
        """The limit of one more load of the server that is up; None: stop it."""
        ...

    def ask(self) -> Config | None:
        """The next configuration, None when it is done."""
        ...

    def tell(self, result: TrialResult) -> None: ...

    def recommend(self) -> int:
        """The number of the trial whose configuration it would serve."""
        ...


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """After start i: ``regret[i]`` of the recommended configuration by its true value, ``clock_s[i]``, ``lost[i]``."""

    regret: tuple[float, ...]
    clock_s: tuple[float, ...]
    lost: tuple[bool, ...]

    def against(self, times: float) -> Curve:
        """The same where the optimum is ``times`` as good as was assumed."""
        return msgspec.structs.replace(self, regret=tuple(1.0 - (1.0 - r) / times for r in self.regret))

    def first_within(self, margin: float) -> int | None:
        """Starts until the recommendation is first within ``margin``, None: never."""
        return next((i + 1 for i, regret in enumerate(self.regret) if regret <= margin), None)


class NoLive:
    """A method that stops a server after its load."""

    def ask_live(self, config: Config, measured: Measured) -> int | None:
        return None


def run_study(make: Callable[[Task], Method], surface: Surface, best: float, noise: float, task: Task) -> Curve:
    """The whole study. A method that ends early keeps its recommendation."""
    method = make(task)
    truths: list[Truth | None] = []
    regret: list[float] = []
    clock: list[float] = []
    lost: list[bool] = []
    config: Config | None = BASELINE
    while config is not None and len(truths) < task.restarts:
        number = len(truths)
        start = _loaded(method, surface, config, (noise, f"{task.seed}|{number}|{surface.name}"))
        truths.append(start.truth)
        clock.append((clock[-1] if clock else 0.0) + start.cost_s)
        lost.append(isinstance(start.outcome, Infeasible))
        times = Timings(start_s=start.start_s, load_s=start.load_s, total_s=start.cost_s)
        method.tell(
            TrialResult(
                number=number, config=config, outcome=start.outcome, timings=times, started_at=WHEN, finished_at=WHEN
            )
        )
        regret.append(regret_of(truths[method.recommend()], best))
        config = method.ask() if len(truths) < task.restarts else None
    regret += [regret[-1]] * (task.restarts - len(regret))
    return Curve(regret=tuple(regret), clock_s=tuple(clock), lost=tuple(lost))


def _loaded(method: Method, surface: Surface, config: Config, draw: tuple[float, str]) -> Start:
    """A start with its own load, and as many more at lowered limits as the method wants."""
    noise, seed = draw
    start = surface.start(config, noise, seed)
    measured = start.outcome
    if not isinstance(measured, Measured):
        return start
    while len(measured.live) < SearchSpec().live_loads and (limit := method.ask_live(config, measured)) is not None:
        load = surface.live(config, limit, noise, seed)
        measured = msgspec.structs.replace(measured, live=(*measured.live, load))
    load_s = start.load_s + sum(load.load_s for load in measured.live)
    return msgspec.structs.replace(start, outcome=measured, load_s=load_s)


def regret_of(truth: Truth | None, best: float) -> float:
    """By what share less it has than the best, or by what share it misses a limit where that is more."""
    return 1.0 if truth is None else max(1.0 - truth.tok_s / best, truth.excess)


def best_seen(results: list[TrialResult]) -> int:
    """The trial with the best measured value: what most tools recommend."""
    measured = [r for r in results if isinstance(r.outcome, Measured)]
    return max(measured, key=_score).number


def _score(result: TrialResult) -> float:
    assert isinstance(result.outcome, Measured)
    return result.outcome.score.value
