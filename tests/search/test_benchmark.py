"""The benchmark of searches: every method runs, and the figures are those of its curve."""

from __future__ import annotations

import pytest

from benchmarks.search.methods import ABLATIONS, METHODS
from benchmarks.search.score import line
from benchmarks.search.settings import table
from benchmarks.search.study import Curve, Task, run_study

TABLE = table()


@pytest.mark.parametrize("name", [*METHODS, *ABLATIONS])
def test_every_method_runs_on_the_table(name: str) -> None:
    """Five starts, a regret after each, and the first is the default's 25 %."""
    task = Task(region=TABLE.region, seed=1, restarts=5, request_tokens=TABLE.request_tokens)
    curve = run_study({**METHODS, **ABLATIONS}[name], TABLE, 23_249.0, 0.05, task)
    assert len(curve.regret) == 5
    assert curve.regret[0] == pytest.approx(0.254, abs=0.001)
    assert all(regret > -1e-3 for regret in curve.regret)


def test_the_figures_of_a_line() -> None:
    """Medians of the first start within 3 %, and the share of starts that were lost."""
    good = Curve(regret=(0.2, 0.02, 0.01, *(0.0,) * 17), clock_s=(100.0,) * 20, lost=(False,) * 20)
    late = Curve(regret=(0.2, 0.2, 0.2, 0.02, *(0.0,) * 16), clock_s=(100.0,) * 20, lost=(True,) * 20)
    found = line("x", [good, good, late])
    assert (found.starts, found.studies) == (2, 3)
    assert found.lost == pytest.approx(1 / 3)
    assert found.within[0] == 1.0
