"""The baseline measured again and again during a search."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.drifting import DriftRecord
from autotune.overview import overview
from autotune.search import Region, Searcher, Suggestion
from autotune.standing import settled
from autotune.study.record import read_record
from autotune.trial import Ticket
from autotune.tune import tune
from autotune.values import Config, Infeasible, Outcome, ParamValue
from autotune.verdict.noise import group_trials
from tests.nights import OOM, Night, records, score

from .played import Killed, Stage, killed_at, linear

TRIALS = 7


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A night of seven trials that looks at its baseline after every second one."""
    return Stage(Night(trials=TRIALS, baseline_every=2).write(tmp_path), monkeypatch)


def test_the_baseline_is_started_again_and_takes_no_trial(stage: Stage) -> None:
    """After trials 2, 4 and 6, told as repeats of it; all seven trials are made besides."""
    with stage.night() as night:
        ended = tune(night)
        history = night.searcher.history
    assert stage.asked_of("repeat") == [3, 6]
    assert (ended.reason, ended.settled) == (f"all {TRIALS} trials are settled", TRIALS)
    assert [r.number for r in history if r.repeat_of == 0] == [3, 6]
    assert all(not r.config.params for r in history if r.repeat_of == 0)
    assert len(records(stage.study).results()) == TRIALS + 2
    with stage.night() as night:
        assert overview(night.brief).settled == TRIALS


def test_what_is_asked_does_not_depend_on_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in a repeat and again in a trial, the night asks for the same configurations in the same order."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = Stage(Night(trials=TRIALS, baseline_every=2).write(tmp_path / "whole"), monkeypatch)
    with whole.night() as night:
        tune(night)
    cut = Stage(Night(trials=TRIALS, baseline_every=2).write(tmp_path / "cut"), monkeypatch)
    for count in (4, 2, 99):
        cut.play = killed_at(linear, count)
        try:
            with cut.night() as night:
                tune(night)
        except Killed:
            continue
    found = [[(r.config, r.repeat_of is None) for r in settled(records(s.study).results())] for s in (whole, cut)]
    assert found[0] == found[1]
    assert len(records(cut.study).results()) == TRIALS + 4


def test_a_drift_is_said_written_down_and_allowed_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses half its speed: a warning, a record, and a best that is judged at its own time."""

    def slowing(ticket: Ticket, now_s: float) -> Outcome:
        gain = 1.4 if ticket.config.params else 1.0
        return score(1000.0 * gain * 0.93 ** (now_s / 100))

    stage = Stage(Night(trials=9, baseline_every=1).write(tmp_path), monkeypatch, slowing)
    with stage.night() as night:
        ended = tune(night)
        found = read_record(night.folder.drift, DriftRecord)
    assert found is not None
    assert found.corrected
    assert len(found.starts) == 8
    assert sum("drift: the baseline changed by -" in note for note in stage.notes) == 1
    assert ended.best_number not in (0, None)


def test_a_baseline_that_fails_later_does_not_end_the_night(stage: Stage) -> None:
    """It is tried again when it is due, not at once, and the first one stays the reference."""

    def fails_later(ticket: Ticket, now_s: float) -> Outcome:
        return OOM if ticket.role == "repeat" else linear(ticket, now_s)

    stage.play = fails_later
    with stage.night() as night:
        ended = tune(night)
    assert ended.settled == TRIALS
    assert stage.asked_of("repeat") == [3, 6]
    failed = [r for r in records(stage.study).results() if isinstance(r.outcome, Infeasible)]
    assert [r.number for r in failed] == [3, 6]


def test_a_repeat_that_the_search_wants_is_told_as_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written down as a repeat of its trial, counts as a trial, and is pooled with it."""
    params: dict[str, ParamValue] = {"max_running_requests": 64, "cuda_graph_max_bs": 64}

    def ask(searcher: Searcher, region: Region) -> Suggestion:
        number = searcher.next_number
        return Suggestion(number=number, config=Config(params=params), repeat_of=None if number == 1 else 1)

    monkeypatch.setattr(Searcher, "ask", ask)
    with stage.night() as night:
        ended = tune(night)
        history = night.searcher.history
    assert ended.settled == TRIALS
    assert stage.asked_of("repeat") == list(range(2, TRIALS + 2))
    assert [r.number for r in history if r.repeat_of == 1] == [2, 4, 5, 7, 8]
    [_, tried] = group_trials(records(stage.study).results())
    assert tried.trials == (1, 2, 4, 5, 7, 8)


def test_no_repeat_is_begun_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock holds four starts of 100 s: the repeat that was due is one of them, a fifth is not begun."""
    study = Night(trials=99, baseline_every=2).write(tmp_path)
    study.write_text(study.read_text().replace('wall_clock = "30m"', 'wall_clock = "450s"'))
    stage = Stage(study, monkeypatch)
    with stage.night() as night:
        ended = tune(night)
    assert ended.reason.startswith("50 s are left")
    assert [ticket.role for _, ticket in stage.asked] == ["baseline", "search", "search", "repeat"]
