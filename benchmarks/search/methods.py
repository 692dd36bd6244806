"""Every search of the benchmark, by the name of its row."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.search.ours import LIVE, OURS, WITHOUT
from benchmarks.search.peers import OPTUNA, SLOW
from benchmarks.search.strategies import STRATEGIES
from benchmarks.search.study import Method, Task

METHODS: dict[str, Callable[[Task], Method]] = {**OURS, **LIVE, **OPTUNA, **STRATEGIES}
ABLATIONS: dict[str, Callable[[Task], Method]] = WITHOUT
ON_REQUEST: dict[str, Callable[[Task], Method]] = SLOW
