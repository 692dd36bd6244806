"""What tools for these servers do, said again in our own words: lists and walks, without a model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator

from autotune.search.region import Axis, Point
from autotune.values import Config, Infeasible, Measured, TrialResult
from benchmarks.search.study import Method, NoLive, Task, best_seen

LEVELS = (0.25, 0.5, 0.75, 1.0)
# vLLM's script begins at 0.98 and gives up below 0.90, in steps of 0.01.
WALK_FROM, WALK_TO, WALK_STEP = 0.98, 0.90, 0.01
STARTS_UP = ("load",)
# polyserve keeps the earlier value where another one is not 2 % better, and measures its best three again.
TIE, CONFIRMED = 0.02, 3

Steps = Generator[Point, TrialResult, None]


class Scripted(NoLive):
    """A method written as a generator that is sent the result of each point it yields."""

    def __init__(self, task: Task, script: Callable[[Task], Steps], choose: Callable[[list[TrialResult]], int]) -> None:
        self._task = task
        self._results: list[TrialResult] = []
        self._steps = script(task)
        self._choose = choose

    def ask(self) -> Config | None:
        try:
            point = next(self._steps) if len(self._results) == 1 else self._steps.send(self._results[-1])
        except StopIteration:
            return None
        return self._task.region.config(point)

    def tell(self, result: TrialResult) -> None:
        self._results.append(result)

    def recommend(self) -> int:
        return self._choose(self._results)


def grid(task: Task) -> Steps:
    """A full grid of about as many points as there are restarts, in random order."""
    axes = task.region.axes()
    per_axis = max(2, round((task.restarts - 1) ** (1 / len(axes))))
    ladders = [[axis.at(i / (per_axis - 1)) for i in range(per_axis)] for axis in axes]
    points = [dict(zip((a.name for a in axes), values, strict=True)) for values in itertools.product(*ladders)]
    random.Random(task.seed).shuffle(points)
    for point in points:  # noqa: UP028 - a list takes no answers
        yield point


def tiers(task: Task) -> Steps:
    """SGLang's auto_benchmark: the base, each listed value alone against the base, then the product of all lists.

    The list is made before anything is measured, as there.
    """
    axes = task.region.axes()
    for axis in axes:
        for value in _listed(axis):
            yield {axis.name: value}
    for values in itertools.product(*(_listed(axis) for axis in axes)):
        yield dict(zip((a.name for a in axes), values, strict=True))


def walk(task: Task) -> Steps:
    """vLLM's auto_tune: the largest memory fraction that starts at the largest limits, then a grid at that fraction.

    "Starts" is all it asks: a server that dies under load later is not noticed in the walk.
    """
    axes = {axis.name: axis for axis in task.region.axes()}
    memory = next((name for name in axes if name.startswith("mem_fraction")), None)
    others = [axis for name, axis in axes.items() if name != memory]
    largest: Point = {axis.name: axis.at(1.0) for axis in others}
    fixed: Point = {}
    if memory is not None:
        fraction = WALK_FROM
        while fraction >= WALK_TO - 1e-9:
            fixed = {memory: fraction}
            result = yield {**largest, **fixed}
            if _came_up(result):
                break
            fraction -= WALK_STEP
    for values in itertools.product(*(_listed(axis) for axis in others)):
        yield {**dict(zip((a.name for a in others), values, strict=True)), **fixed}


def staged(task: Task) -> Steps:
    """polyserve: one parameter after the other over a short list, the best of each kept; then the best three again."""
    best: Point = {}
    best_value = 0.0
    seen: list[tuple[float, Point]] = []
    for axis in sorted(task.region.axes(), key=_stage):
        chosen = best
        for value in _listed(axis):
            point = {**best, axis.name: value}
            result = yield point
            score = _score(result)
            seen.append((score, point))
            if score > best_value * (1 + TIE):
                best_value, chosen = score, point
        best = chosen
    for _, point in sorted(seen, key=lambda pair: -pair[0])[:CONFIRMED]:
        yield point


def _stage(axis: Axis) -> int:
    order = ("max_running", "chunked", "mem_fraction")
    return next((i for i, prefix in enumerate(order) if axis.name.startswith(prefix)), len(order))


def _listed(axis: Axis) -> list[bool | int | float | str]:
    """Four values over the range, as a user would list them; all of a short list."""
    return list(dict.fromkeys(axis.at(u) for u in LEVELS))


def _came_up(result: TrialResult) -> bool:
    match result.outcome:
        case Infeasible(diagnosis=diagnosis):
            return diagnosis.stage in STARTS_UP
        case _:
            return True


def _score(result: TrialResult) -> float:
    return result.outcome.score.value if isinstance(result.outcome, Measured) else 0.0


def last_word(results: list[TrialResult]) -> int:
    """The best by its latest measurement: a confirmed value replaces the first one."""
    latest: dict[str, TrialResult] = {}
    for result in results:
        if isinstance(result.outcome, Measured):
            latest[result.config.key()] = result
    return best_seen(list(latest.values()))


def _scripted(
    script: Callable[[Task], Steps], choose: Callable[[list[TrialResult]], int] = best_seen
) -> Callable[[Task], Method]:
    return lambda task: Scripted(task, script, choose)


STRATEGIES: dict[str, Callable[[Task], Method]] = {
    "grid": _scripted(grid),
    "SGLang auto_benchmark (tiers)": _scripted(tiers),
    "vLLM auto_tune (walk)": _scripted(walk),
    "polyserve (staged)": _scripted(staged, last_word),
}
