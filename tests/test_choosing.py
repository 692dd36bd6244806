"""Which configuration to believe in: one answer for export, status, report and confirmation."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.choosing import Judge
from autotune.exporting import best_bundle
from autotune.overview import overview
from autotune.reporting import gather
from autotune.standing import best_of
from autotune.study.record import Records
from autotune.values import LiveFigures, Measured, ParamValue
from tests.nights import Night, put, score

from .played import Stage


def point(limit: int) -> dict[str, ParamValue]:
    """A configuration of the short study whose graphs reach its running limit."""
    return {"max_running_requests": limit, "cuda_graph_max_bs": limit}


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A night in which throughput grows with the limit, but for one lucky start of a small one."""
    path = Night(trials=1).write(tmp_path)
    values = {64: 1300.0, 72: 1330.0, 80: 1390.0, 88: 1800.0, 96: 1480.0, 104: 1520.0, 144: 1770.0, 152: 1790.0}
    put(path, 0, {}, score(1000.0))
    for number, (limit, value) in enumerate(values.items(), start=1):
        put(path, number, point(limit), score(value))
    stage = Stage(path, monkeypatch)
    with stage.night() as night:
        night.fix_region(score(1.0).effective)
    return stage


def test_everybody_believes_in_the_same_configuration(searched: Stage) -> None:
    """The neighbours of a lucky value speak against it; script, status, report and finalist are one."""
    brief = read_brief(searched.study)
    results = Records(brief.folder).results()
    judge = Judge.of(brief)
    best = judge.best(results)
    assert best is not None
    assert best.config.params["max_running_requests"] != 88
    direct = best_of(results, brief.study.objective)
    assert direct is not None
    assert direct.config.params["max_running_requests"] == 88
    assert overview(brief).best_number == best.number
    assert gather(brief).chosen == best.number
    bundle = best_bundle(brief)
    assert bundle is not None
    assert bundle.provenance.trial == str(best.number)
    assert judge.finalists(results, 1) == [best]
    assert len(judge.finalists(results, 3)) == 3


def test_the_baseline_stays_where_its_starts_say_so(searched: Stage) -> None:
    """What a belief has of neighbours does not make a configuration better than defaults that are better."""
    brief = read_brief(searched.study)
    results = Records(brief.folder).results()
    fast = msgspec.structs.replace(results[0], outcome=score(5000.0))
    best = Judge.of(brief).best([fast, *results[1:]])
    assert best is not None
    assert best.number == 0


def test_a_trial_that_was_ended_early_is_never_the_best(searched: Stage) -> None:
    """Whatever its value so far."""
    brief = read_brief(searched.study)
    results = Records(brief.folder).results()
    early = msgspec.structs.replace(score(9000.0), stopped_early=True)
    spoilt = [msgspec.structs.replace(r, outcome=early) if r.number == 8 else r for r in results]
    judge = Judge.of(brief)
    best = judge.best(spoilt)
    assert best is not None
    assert best.number != 8
    assert all(r.number != 8 for r in judge.finalists(spoilt, 20))


def test_a_live_value_is_never_the_best(searched: Stage) -> None:
    """A fast load at a live limit leaves the order of the trials to their own scores."""
    brief = read_brief(searched.study)
    results = Records(brief.folder).results()
    outcome = results[1].outcome
    assert isinstance(outcome, Measured)
    live = LiveFigures(limit=64, score=score(9000.0).score, steady={}, load_s=1.0)
    tempting = msgspec.structs.replace(outcome, live=(live,))
    best = Judge.of(brief).best([msgspec.structs.replace(results[1], outcome=tempting), *results[2:], results[0]])
    assert best is not None
    assert best.number != 1


def test_before_the_bounds_are_known_starts_alone_decide(tmp_path: Path) -> None:
    """The baseline is all there is."""
    path = Night().write(tmp_path)
    put(path, 0, {}, score(1000.0))
    brief = read_brief(path)
    best = Judge.of(brief).best(Records(brief.folder).results())
    assert best is not None
    assert best.number == 0
    assert Judge.of(brief).outlook(Records(brief.folder).results()) is None
    assert json.loads(msgspec.json.encode(overview(brief).time_s))["start"] == 0.0
