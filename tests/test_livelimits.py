"""Loads of one start at smaller running limits, on the simulated server: their figures, and all that can go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from autotune import livelimits, loading
from autotune.brief import read_brief
from autotune.engines.plans import FixedLimit
from autotune.engines.sglang import SGLang
from autotune.errors import InputError
from autotune.events import Event, PhaseEntered
from autotune.guidance import Guide
from autotune.livelimits import TRIES, LiveSwitch, generating, without_effect
from autotune.load import records as raw_records
from autotune.load.driver import WorkerLost
from autotune.rig import Rig
from autotune.server.cancel import CancelFlag, Waiting
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Estimate, LiveFigures, Measured
from tests.nights import Night, left, rig
from tests.test_loading import write

pytestmark = pytest.mark.timeout(300)

STARTED = 40
LIMITS = (20, 4)
CONFIG = Config(params={"max_running_requests": STARTED, "cuda_graph_max_bs": STARTED})


def longer(study: Path) -> Path:
    """Replies that are long enough for all places to be full."""
    text = study.read_text()
    assert "output_tokens = 8" in text
    study.write_text(text.replace("output_tokens = 8", "output_tokens = 32"))
    return study


class Guided:
    """Runs one trial with a list of limits; keeps what was heard."""

    def __init__(self, folder: Path, flags: tuple[str, ...] = (), limits: tuple[int, ...] = LIMITS) -> None:
        self.limits = list(limits)
        self.kept: list[Measured] = []
        self.never: list[str] = []
        self.setbacks: list[str] = []
        self.heard: list[Event] = []
        self.cancel = CancelFlag()
        self.study = longer(write(folder, Night(stream=True, flags=flags)))

    @property
    def guide(self) -> Guide:
        return Guide(
            next_limit=lambda measured: self.limits[n] if (n := len(measured.live)) < len(self.limits) else None,
            no_live=self.never.append,
            setback=self.setbacks.append,
        )

    def hear(self, event: Event) -> None:
        self.heard.append(event)

    def run(self) -> tuple[Measured, Rig]:
        shared = rig(self.study, self.hear, Waiting(cancel=self.cancel))
        shared.records.trial(1).root.mkdir()
        outcome = run_trial(shared, Ticket(number=1, config=CONFIG), self.guide).outcome
        assert isinstance(outcome, Measured), outcome
        return outcome, shared


def test_one_start_answers_for_smaller_limits(tmp_path: Path) -> None:
    """In force as told, slower as they must be, with prompts and raw records of their own; the score is the start's."""
    guided = Guided(tmp_path)
    outcome, shared = guided.run()
    assert [live.limit for live in outcome.live] == list(LIMITS)
    rates = [outcome.score.value, *(live.score.value for live in outcome.live)]
    assert rates[0] > 1.3 * rates[2], rates
    assert outcome.score.value == pytest.approx(outcome.measurement.steady["output_throughput_tok_s"], rel=0.25)
    assert all(live.steady["output_throughput_tok_s"] > 0 and live.load_s > 0 for live in outcome.live)
    trial = shared.records.trial(1)
    for limit in LIMITS:
        raw = raw_records.load(trial.live(limit) / "raw-0.npz")
        # A prompt that was sent before would have come out of the server's prefix cache.
        assert float(np.sum(raw.requests["cached_tokens"])) == 0
    phases = [event.phase for event in guided.heard if isinstance(event, PhaseEntered)]
    assert phases.count("live") == len(LIMITS)
    assert (guided.never, guided.setbacks) == ([], [])
    assert left(guided.study) == []


def test_times_are_told_apart(tmp_path: Path) -> None:
    """The trial's own load and the live ones each have their seconds; without live loads there are none."""
    guided = Guided(tmp_path, limits=(20,))
    shared = rig(guided.study)
    for number, guide in ((1, guided.guide), (2, Guide())):
        shared.records.trial(number).root.mkdir()
        times = run_trial(shared, Ticket(number=number, config=CONFIG), guide).timings
        assert times.load_s > 1.0
        assert (times.live_s > 1.0) == (number == 1)
        parts = times.prepare_s + times.start_s + times.load_s + times.live_s + times.stop_s
        assert parts == pytest.approx(times.total_s, abs=0.2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--sim-fault", "live_refused"), "refused a running limit of 20"),
        (("--sim-fault", "live_ignored"), "running limit of 20 is in force and"),
    ],
)
def test_a_server_that_does_not_take_it_is_found_out(tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    """A refusal and a limit without effect are said once; the trial's own result stands, without live values."""
    guided = Guided(tmp_path, flags)
    outcome, _ = guided.run()
    assert outcome.live == ()
    assert outcome.score.value > 0
    assert len(guided.never) == 1
    assert words in guided.never[0]


def test_a_server_that_dies_of_it_leaves_the_measurement(tmp_path: Path) -> None:
    """The start has a score all the same, and no second start is made for it."""
    guided = Guided(tmp_path, ("--sim-fault", "live_death=0.5"))
    outcome, shared = guided.run()
    assert outcome.live == ()
    assert outcome.score.value > 0
    assert len(guided.setbacks) == 1
    assert "limit of 20" in guided.setbacks[0]
    assert not (shared.records.trial(1).root / "server-2.log").exists()
    assert left(guided.study) == []


def test_a_lost_load_worker_leaves_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own fault in a live load costs that load alone."""
    guided = Guided(tmp_path)
    calls: Iterator[int] = iter(range(9))
    real = loading.load_once

    def lose(*arguments: object, **named: object) -> object:
        if next(calls) == 1:
            raise WorkerLost("load worker 0 died")
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(livelimits, "load_once", lose)
    outcome, _ = guided.run()
    assert [live.limit for live in outcome.live] == [LIMITS[0]]
    assert guided.setbacks == ["load worker 0 died"]


@pytest.mark.parametrize("at", [1, 2])
def test_a_wish_to_end_keeps_the_loads_that_are_done(tmp_path: Path, at: int) -> None:
    """Ctrl-C in a live load: the trial is measured, with the live values that were finished."""
    guided = Guided(tmp_path)

    def hear(event: Event) -> None:
        guided.heard.append(event)
        phases = [e.phase for e in guided.heard if isinstance(e, PhaseEntered)]
        if phases.count("live") == at:
            guided.cancel.cancel("enough")

    guided.hear = hear  # type: ignore[method-assign]
    outcome, _ = guided.run()
    assert [live.limit for live in outcome.live] == list(LIMITS[: at - 1])
    assert (guided.never, guided.setbacks) == ([], [])


def test_what_is_measured_is_on_disk_before_the_live_loads(tmp_path: Path) -> None:
    """The record grows with each load, and is gone once the trial is settled."""
    guided = Guided(tmp_path)
    seen: list[int] = []
    shared = rig(guided.study, lambda event: look(event))

    def look(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == "live":
            kept = shared.records.kept(1)
            assert kept is not None
            assert isinstance(kept.outcome, Measured)
            seen.append(len(kept.outcome.live))

    shared.records.trial(1).root.mkdir()
    result = run_trial(shared, Ticket(number=1, config=CONFIG), guided.guide)
    assert seen == [0, 1]
    shared.records.settle(result)
    assert shared.records.kept(1) is None


def test_a_limit_is_not_tried_twice(tmp_path: Path) -> None:
    """Whoever asks for the same limit again has had enough."""
    guided = Guided(tmp_path, limits=(20, 20, 20))
    outcome, _ = guided.run()
    assert [live.limit for live in outcome.live] == [20]


def test_a_limit_that_more_requests_exceed_is_not_in_force() -> None:
    """By the server's log or by the client's own count; what neither can tell is believed."""
    steady = {"request_throughput_req_s": 10.0, "e2e_mean_s": 5.0, "ttft_mean_s": 1.0}
    figure = Estimate(value=1.0, stderr=0.1, batches=9)
    live = LiveFigures(limit=32, score=figure, steady=steady, load_s=1.0)
    assert generating(steady) == 40.0
    assert without_effect(live, None) is None
    assert "answers 40 at once" in str(without_effect(msgspec.structs.replace(live, limit=20), None))
    log = "".join(f"Decode batch, #running-req: {n}, #token: 9\n" for n in (64, 64, 40, 64))
    assert "logs 64 at once" in str(without_effect(live, SGLang().running_logged(log)))
    assert without_effect(msgspec.structs.replace(live, limit=64), SGLang().running_logged(log)) is None
    assert without_effect(msgspec.structs.replace(live, steady={}), SGLang().running_logged("nothing")) is None


def test_setbacks_add_up() -> None:
    """One may be chance; so many are a reason to do without, and the first reason stays."""
    switch, reasons = LiveSwitch(), list[str | None]()
    for _ in range(TRIES):
        switch.count("it died")
        reasons.append(switch.reason)
    switch.give_up("another")
    assert reasons[:-1] == [None] * (TRIES - 1)
    assert "it died" in str(reasons[-1])
    assert switch.reason == reasons[-1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('sampler = "autotune"', 'sampler = "tpe"', "the sampler 'tpe' does not learn"),
        ('kind = "sglang"', 'kind = "vllm"', "the engine 'vllm' has no running limit"),
        ('["max_running_requests", "cuda_graph_max_bs"]', '["cuda_graph_max_bs"]', "max_running_requests is not"),
        ("concurrency = 160", "concurrency = 160\nlevels = [32, 160]", "workload.levels"),
        ("concurrency = 160", 'arrival = "open"\nrequest_rate = 5.0', "workload.concurrency"),
    ],
)
def test_a_study_that_cannot_is_refused_where_it_must(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Where it says "on" that is an error that names the key and what to write; "auto" does without."""
    path = Night(live="auto", sampler="autotune", parameters=("max_running_requests", "cuda_graph_max_bs")).write(
        tmp_path
    )
    text = path.read_text()
    assert old in text
    text = text.replace(old, new)
    if "vllm" in new:
        text = text.replace('["max_running_requests", "cuda_graph_max_bs"]', '["max_num_seqs"]')
    path.write_text(text)
    assert words in str(read_brief(path).why_no_live())
    path.write_text(text.replace('live = "auto"', 'live = "on"'))
    with pytest.raises(InputError, match=r'search\.live: "on" cannot be: .*write "auto" or "off"'):
        read_brief(path)


def test_engines_say_which_parameter_moves() -> None:
    """It is a name of their search space, or none."""
    assert SGLang.live_parameter == "max_running_requests"
    assert FixedLimit.live_parameter == ""
