"""What a night tells its trials while they run: which ones lose, which limits to try; and when a search is done."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from autotune import guiding
from autotune.guiding import guide_of
from autotune.search.outlook import Outlook
from autotune.standing import incumbent_of
from autotune.study.file import Objective
from autotune.trial import Ticket
from autotune.tune import tune
from autotune.values import Config, Estimate, LiveFigures, Measured
from tests.nights import Night, put, score

from .played import TRIAL_S, Stage

TICKET = Ticket(number=3, config=Config(params={"max_running_requests": 96, "cuda_graph_max_bs": 96}))


def at(value: float, batches: int = 12) -> Estimate:
    """A figure so far."""
    return Estimate(value=value, stderr=0.005 * value, batches=batches)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A night with a baseline and two configurations, whose starts differ by little."""
    path = Night(trials=5, live="auto", sampler="autotune", stream=True).write(tmp_path)
    put(path, 0, {}, score(1000.0))
    for number, limit in ((1, 64), (2, 128)):
        put(path, number, {"max_running_requests": limit, "cuda_graph_max_bs": limit}, score(1500.0))
    stage = Stage(path, monkeypatch)
    with stage.night() as night:
        night.fix_region(score(1.0).effective)
    return stage


def change(study: Path, key: str, value: str) -> None:
    """Set a key of [search]."""
    study.write_text(study.read_text() + f"{key} = {value}\n")


def test_only_a_certain_loser_is_ended(stage: Stage) -> None:
    """Far below the best it is, in words; near it, above it, or with few batches it goes on."""
    with stage.night() as night:
        loses = guide_of(night, TICKET).loses
        assert "stopped early: -60.0 %" in str(loses(at(600.0)))
        for going in (at(1400.0), at(2500.0), at(600.0, batches=2), at(0.0)):
            assert loses(going) is None


@pytest.mark.parametrize(
    "ticket",
    [
        Ticket(number=3, config=Config(params={}), role="repeat", repeat_of=0),
        msgspec.structs.replace(TICKET, role="repeat", repeat_of=1),
    ],
)
def test_repeats_run_to_their_end(stage: Stage, ticket: Ticket) -> None:
    """The baseline and further starts of a configuration are there for their figure, whatever it is."""
    with stage.night() as night:
        assert guide_of(night, ticket).loses(at(10.0)) is None


def test_nothing_is_ended_where_nobody_wants_it(stage: Stage) -> None:
    """search.early_stop = 0."""
    change(stage.study, "early_stop", "0")
    with stage.night() as night:
        assert guide_of(night, TICKET).loses(at(10.0)) is None


def test_the_incumbent_is_the_mean_of_its_starts(stage: Stage) -> None:
    """Two starts of one configuration are one figure with a smaller error."""
    put(stage.study, 3, {"max_running_requests": 64, "cuda_graph_max_bs": 64}, score(1560.0))
    with stage.night() as night:
        found = incumbent_of(night.records.results(), Objective())
    assert found is not None
    assert found.starts == 2
    assert found.figure.value == pytest.approx((1500 * 1560) ** 0.5)
    assert found.figure.stderr == pytest.approx(0.01 * 1530 / 2**0.5, rel=0.01)


def measured(*limits: int) -> Measured:
    """A start at 160 with loads at these live limits."""
    outcome = score(1500.0)
    live = tuple(LiveFigures(limit=n, score=outcome.score, steady={}, load_s=3.0) for n in limits)
    effective = msgspec.structs.replace(outcome.effective, running_limit=160)
    return msgspec.structs.replace(outcome, live=live, effective=effective)


def test_live_limits_end_with_their_number_and_with_the_time(stage: Stage) -> None:
    """At most search.live_loads a start, none where one more load does not fit into what is left, none when off."""
    change(stage.study, "live_loads", "1")
    with stage.night() as night:
        night.searcher.ask_live = lambda *_: 80  # type: ignore[method-assign]
        guide = guide_of(night, TICKET)
        assert guide.next_limit(measured()) == 80
        assert guide.next_limit(measured(80)) is None
        night.rig.waiting.clock.sleep(1800 - 2)
        assert guide.next_limit(measured()) is None
        guide.no_live("it refused")
        assert guide_of(night, TICKET).next_limit(measured()) is None
    assert sum("it refused; from here on every running limit takes a start" in note for note in stage.notes) == 1


def test_one_more_start_of_the_baseline_is_measured_and_no_more(stage: Stage) -> None:
    """No live limits: it is what everything is compared with."""
    with stage.night() as night:
        night.searcher.ask_live = lambda *_: 80  # type: ignore[method-assign]
        guide = guide_of(night, Ticket(number=3, config=Config(params={}), role="repeat", repeat_of=0))
        assert guide.next_limit(measured()) is None


@pytest.mark.parametrize(("gain", "asked"), [(0.0001, 0), (0.5, 2)])
def test_a_search_that_has_found_enough_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, gain: float, asked: int
) -> None:
    """In words, with its time left to a longer confirmation; one that may gain goes on to its last trial."""
    text = stage.study.read_text().replace("confirm_starts = 0", "confirm_starts = 2")
    stage.study.write_text(text.replace('wall_clock = "30m"', 'wall_clock = "300m"'))
    outlook = Outlook(number=1, value=1500.0, relative_stderr=0.01, gain=gain, noise=0.05)
    monkeypatch.setattr("autotune.choosing.outlook", lambda *_: outlook)
    with stage.night() as night:
        ended = tune(night)
    assert len(stage.asked_of("search")) == asked
    assert ("another start is expected to gain 0.01%" in ended.reason) == (asked == 0)
    confirming = stage.asked_of("confirm")
    assert len(confirming) == (2 * 4 if asked == 0 else 2 * 2) + 2
    assert TRIAL_S * len(confirming) < 300 * 60


def test_other_samplers_and_early_searches_go_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop rule is of the sampler's own belief, and not before that has taken over."""
    outlook = Outlook(number=1, value=1500.0, relative_stderr=0.01, gain=0.0, noise=0.05)
    monkeypatch.setattr("autotune.choosing.outlook", lambda *_: outlook)
    with stage.night() as night:
        results = night.records.results()
        assert guiding.why_enough(night, results) is not None
        assert guiding.why_enough(night, results[:2]) is None
    stage.study.write_text(re.sub('sampler = "autotune"', 'sampler = "tpe"', stage.study.read_text()))
    with stage.night() as night:
        assert guiding.why_enough(night, results) is None


def test_one_start_alone_does_not_say_enough(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gain has to be small before the last start and after it."""
    outlook = Outlook(number=1, value=1500.0, relative_stderr=0.01, gain=0.0, noise=0.05)
    gains = iter([0.0, 0.3, 0.3, 0.0, 0.0, 0.0])
    monkeypatch.setattr("autotune.choosing.outlook", lambda *_: msgspec.structs.replace(outlook, gain=next(gains)))
    with stage.night() as night:
        results = night.records.results()
        found = [guiding.why_enough(night, results) is not None for _ in range(3)]
    assert found == [False, False, True]
