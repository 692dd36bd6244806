"""One trial: every way in which a start can go, and real ones on the simulated server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune import trial
from autotune.errors import NightStopped
from autotune.events import Event, Note, PhaseEntered
from autotune.rig import Rig
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.clock import FakeClock
from autotune.server.ports import is_free
from autotune.server.proctable import marked, read_table
from autotune.server.readiness import Blocked, Cancelled, Died, StartOutcome, TimedOut
from autotune.server.serve import ServeOptions
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Infeasible, Interrupted, LaunchPlan, Measured, Outcome, Refused
from tests.nights import Night, rig

pytestmark = pytest.mark.timeout(300)

BASELINE = Ticket(number=0, config=Config(params={}), role="baseline")


class Starts:
    """Stands in for ``running``: servers that go the given ways, one after the other; the last way repeats."""

    def __init__(self, *ways: StartOutcome, log: str = "") -> None:
        self.ways = list(ways)
        self.ports: list[int] = []
        self._log = log

    @contextmanager
    def __call__(self, plan: LaunchPlan, options: ServeOptions, probe: Any, seams: Any) -> Iterator[SimpleNamespace]:
        self.ports.append(plan.port)
        options.log_path.write_text(self._log)
        way = self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]
        yield SimpleNamespace(start=way, process=None, teardown=None, plan=plan, log_path=options.log_path)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Starts], tuple[Outcome, list[str]]]:
    """Run a trial whose servers start as told; its outcome and the notes."""

    def run(starts: Starts) -> tuple[Outcome, list[str]]:
        monkeypatch.setattr(trial, "running", starts)
        heard: list[Event] = []
        shared = rig(Night().write(tmp_path), heard.append, Waiting(clock=FakeClock()))
        shared.records.trial(0).root.mkdir(exist_ok=True)
        result = run_trial(shared, BASELINE)
        return result.outcome, [event.text for event in heard if isinstance(event, Note)]

    return run


Go = Callable[[Starts], tuple[Outcome, list[str]]]
OOM = (
    "Load weight end. elapsed=1.00 s, type=X, avail mem=15.50 GB, mem usage=8.00 GB.\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
)


def test_a_death_without_a_cause_is_tried_twice(go: Go) -> None:
    """Each attempt gets a fresh port; then the parameters count as infeasible."""
    starts = Starts(Died(exit_code=1, seconds=2.0))
    outcome, notes = go(starts)
    assert isinstance(outcome, Infeasible)
    assert outcome.diagnosis.kind == "crash_other"
    assert len(starts.ports) == 2
    assert len(notes) == 1
    assert all("trying again" in note for note in notes)


def test_out_of_memory_is_never_tried_again(go: Go) -> None:
    """The log proves it: one start is enough."""
    starts = Starts(Died(exit_code=-9, seconds=2.0), log=OOM)
    outcome, notes = go(starts)
    assert isinstance(outcome, Infeasible)
    assert outcome.diagnosis.kind.startswith("oom_")
    assert (len(starts.ports), notes) == (1, [])


def test_a_silent_start_is_tried_twice(go: Go) -> None:
    """A second hang of the same parameters is an answer."""
    starts = Starts(TimedOut(kind="silence", reason="no sign of life for 600 s", seconds=600.0))
    outcome, _ = go(starts)
    assert isinstance(outcome, Infeasible)
    assert (outcome.diagnosis.kind, len(starts.ports)) == ("hang", 2)


def test_a_start_that_takes_too_long_is_pruned_at_once(go: Go) -> None:
    """The hard cap is not spent twice."""
    starts = Starts(TimedOut(kind="cap", reason="not ready after 3600 s", seconds=3600.0))
    outcome, _ = go(starts)
    assert isinstance(outcome, Infeasible)
    assert len(starts.ports) == 1


def test_a_wish_to_end_during_the_start_interrupts(go: Go) -> None:
    """An interrupted trial says nothing about its parameters."""
    assert go(Starts(Cancelled(reason="SIGTERM", seconds=1.0)))[0] == Interrupted(reason="SIGTERM")


def test_a_taken_port_is_tried_on_others_and_then_stops_the_night(go: Go) -> None:
    """A foreign listener is never adopted, and never a property of the parameters."""
    starts = Starts(Blocked(kind="port_in_use", reason="port is taken by somebody"))
    with pytest.raises(NightStopped, match="port_in_use after 3 attempts"):
        go(starts)
    assert len(starts.ports) == 3


def test_gpu_memory_of_others_stops_the_night(go: Go) -> None:
    """Whoever holds it is named, and is not touched."""
    with pytest.raises(NightStopped, match=r"python \(pid 7\).*autotune never does"):
        go(Starts(Blocked(kind="gpu_busy", reason="GPU memory is above its baseline: python (pid 7)")))


def test_a_passing_fault_costs_one_retry(go: Go) -> None:
    """After a crash by chance the next start decides."""
    starts = Starts(Died(exit_code=1, seconds=2.0), Cancelled(reason="enough", seconds=1.0))
    outcome, notes = go(starts)
    assert outcome == Interrupted(reason="enough")
    assert len(notes) == 1


def test_a_wish_to_end_ends_the_pause_before_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a back-off that has become pointless."""
    monkeypatch.setattr(trial, "running", starts := Starts(Died(exit_code=1, seconds=2.0)))
    cancel = CancelFlag()

    def hear(event: Event) -> None:
        if isinstance(event, Note):
            cancel.cancel("enough")

    shared = rig(Night().write(tmp_path), hear, Waiting(clock=FakeClock(), cancel=cancel))
    shared.records.trial(0).root.mkdir()
    assert run_trial(shared, BASELINE).outcome == Interrupted(reason="enough")
    assert len(starts.ports) == 1


def clean(shared: Rig) -> bool:
    """Neither a process nor a listener is left of trial 0."""
    plan = shared.records.plan(0)
    assert plan is not None
    return not marked(read_table(), f"{shared.study_id}/", prefix=True) and is_free(plan.host, plan.port)


def real(folder: Path, night: Night, waiting: Waiting | None = None, say: Any = lambda _: None) -> tuple[Outcome, Rig]:
    """A trial on the simulated server."""
    shared = rig(night.write(folder), say, waiting)
    shared.records.trial(0).root.mkdir()
    return run_trial(shared, BASELINE).outcome, shared


def test_a_real_trial_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """Score, raw records, values in force and timings are there; port and processes are gone."""
    heard: list[Event] = []
    outcome, shared = real(tmp_path, Night(), say=heard.append)
    assert isinstance(outcome, Measured), outcome
    assert outcome.score.value > 0
    assert outcome.effective.source == "server_info"
    assert outcome.effective.running_limit == 24
    assert list(shared.records.trial(0).load.glob("raw-*.npz"))
    phases = list(dict.fromkeys(event.phase for event in heard if isinstance(event, PhaseEntered)))
    # A load this short may end before it is out of its warm-up.
    assert [p for p in phases if p not in ("warm-up", "load")] == ["prepare", "start", "read back", "stop"]
    assert clean(shared)


def test_a_real_out_of_memory_under_load_is_pruned(tmp_path: Path) -> None:
    """The kind and the line that proves it are kept."""
    outcome, shared = real(tmp_path, Night(flags=("--sim-fault", "oom_load")))
    assert isinstance(outcome, Infeasible), outcome
    assert (outcome.diagnosis.kind, outcome.diagnosis.stage) == ("oom_runtime", "load")
    assert any("out of memory" in line for line in outcome.diagnosis.evidence)
    assert clean(shared)


def test_a_real_hang_under_load_is_ended_in_bounded_time(tmp_path: Path) -> None:
    """A server that stays healthy and brings no token is stopped, tried once more, and dropped."""
    outcome, shared = real(tmp_path, Night(flags=("--sim-fault", "hang_load=0.2"), stall_s=1.0))
    assert isinstance(outcome, Infeasible), outcome
    assert (outcome.diagnosis.kind, outcome.diagnosis.stage) == ("hang", "load")
    assert clean(shared)


def test_a_real_load_whose_requests_fail_is_refused(tmp_path: Path) -> None:
    """Short outputs are failures; nothing is scored and nothing blamed on memory or hangs."""
    outcome, shared = real(tmp_path, Night(flags=("--sim-fault", "short_output")))
    assert isinstance(outcome, Refused), outcome
    assert outcome.findings[0].gate == "failed_requests"
    assert clean(shared)


def test_a_wish_to_end_during_a_load_interrupts_it(tmp_path: Path) -> None:
    """The server is stopped and the trial can run again."""
    cancel = CancelFlag()

    def hear(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == "warm-up":
            cancel.cancel("enough")

    outcome, shared = real(tmp_path, Night(), Waiting(cancel=cancel), hear)
    assert outcome == Interrupted(reason="enough")
    assert clean(shared)


def test_a_server_that_cannot_be_run_stops_the_night(tmp_path: Path) -> None:
    """A missing program is nobody's parameter; the message names the key."""
    study = Night().write(tmp_path)
    study.write_text(study.read_text().replace('"{python}", "-m"', '"no-such-program", "-m"'))
    shared = rig(study)
    shared.records.trial(0).root.mkdir()
    with pytest.raises(NightStopped, match=r"engine\.command"):
        run_trial(shared, BASELINE)


def test_attempts_that_meet_the_same_problem_say_it_once(go: Go) -> None:
    """A runtime that is down answers no stop either: one note of it is enough for all attempts."""

    class Deaf(Starts):
        @contextmanager
        def __call__(self, *given: Any) -> Iterator[SimpleNamespace]:
            with super().__call__(*given) as server:
                server.teardown = SimpleNamespace(problem=lambda: "what cannot be asked for")
                yield server

    starts = Deaf(Died(exit_code=1, seconds=2.0))
    _, notes = go(starts)
    assert len(starts.ports) == 2
    assert sum("what cannot be asked for" in note for note in notes) == 1
