"""The project's own sampler on the path of the product: records in, a proposal out, for every start anew."""

from __future__ import annotations

from collections.abc import Callable

from autotune.search.gp.belief import Parts
from autotune.search.live import next_limit
from autotune.search.outlook import recommended
from autotune.search.suggest import Strategy, propose
from autotune.study.transfer import Transfer
from autotune.values import Config, Measured, TrialResult
from benchmarks.search.study import Method, Task, best_seen


class Ours:
    """``parts`` are left on; the recommendation is the best posterior mean, unless the noise is ignored. ``live``: a
    start is loaded at lowered limits too.
    """

    def __init__(self, task: Task, parts: Parts, *, live: bool = False, transfer: Transfer | None = None) -> None:
        self._task = task
        self._parts = parts
        self._live = live
        self._strategy = Strategy(
            sampler="autotune",
            seed=task.seed,
            request_tokens=task.request_tokens,
            limits=task.limits,
            transfer=transfer,
        )
        self._results: list[TrialResult] = []

    def ask(self) -> Config | None:
        found = propose(self._results, self._task.region, self._strategy, parts=self._parts)
        return found.config if found else None

    def ask_live(self, config: Config, measured: Measured) -> int | None:
        if not self._live:
            return None
        return next_limit(self._results, (config, measured), self._task.region, self._strategy, parts=self._parts)

    def tell(self, result: TrialResult) -> None:
        self._results.append(result)

    def recommend(self) -> int:
        if len(self._results) == 1 or not self._parts.noise:
            return best_seen(self._results)
        found = recommended(self._results, self._task.region, self._strategy, parts=self._parts)
        return best_seen(self._results) if found is None else found


def _ours(parts: Parts, *, live: bool = False) -> Callable[[Task], Method]:
    return lambda task: Ours(task, parts, live=live)


OURS: dict[str, Callable[[Task], Method]] = {"autotune": _ours(Parts())}
LIVE: dict[str, Callable[[Task], Method]] = {"autotune, live values": _ours(Parts(), live=True)}
WITHOUT: dict[str, Callable[[Task], Method]] = {
    "autotune without physics": _ours(Parts(physics=False)),
    "autotune without feasibility": _ours(Parts(feasibility=False)),
    "autotune without memory readings": _ours(Parts(readings=False)),
    "autotune without noise": _ours(Parts(noise=False)),
}
