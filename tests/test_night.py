"""Opening a night: which folder, which study, and what an earlier tuner left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.errors import InputError, StudyLocked
from autotune.events import Event, Note
from autotune.night import clean_up, open_night
from autotune.sameness import resolve, study_id, write_manifest
from autotune.server.cancel import Waiting
from autotune.server.process import ServerIdentity
from autotune.server.proctable import MARK_NAME, boot_id, read_row
from autotune.server.stop import StopReport
from autotune.standing import version_told
from autotune.study.record import Records, write_record
from autotune.values import Interrupted, TrialResult
from tests.nights import Night, put, records, score


def change(path: Path, old: str, new: str) -> None:
    """Edit a study file."""
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study that has begun."""
    path = Night().write(tmp_path)
    put(path, 0, {}, score(1000.0))
    return path


def name_of(path: Path, *, force: bool = False) -> str:
    """Under which name a command works on the study file."""
    return resolve(read_brief(path), force=force).study.name


def test_the_same_study_goes_on(study: Path) -> None:
    """Budget, timeouts, seed and the order of the keys may change."""
    change(study, "trials = 3", "trials = 30")
    change(study, "seed = 1", "seed = 2")
    assert name_of(study) == "short"


def test_a_changed_study_is_refused_with_the_difference(study: Path) -> None:
    """The key with its old and its new value, and what to do."""
    change(study, "output_tokens = 8", "output_tokens = 16")
    with pytest.raises(InputError, match=r"workload\.output_tokens: 8 -> 16\. .*--force"):
        name_of(study)


def test_force_begins_anew_and_later_commands_find_it(study: Path) -> None:
    """The changed study lives under name-2; the first form of the file still finds the first folder."""
    change(study, "output_tokens = 8", "output_tokens = 16")
    forced = resolve(read_brief(study), force=True)
    assert forced.folder.root == study.parent / "short-2"
    forced.folder.create()
    write_manifest(forced)
    assert name_of(study) == name_of(study, force=True) == "short-2"
    change(study, "output_tokens = 16", "output_tokens = 8")
    assert name_of(study) == "short"
    change(study, "output_tokens = 8", "output_tokens = 24")
    with pytest.raises(InputError):
        name_of(study)
    assert name_of(study, force=True) == "short-3"


def test_another_base_command_is_another_study(study: Path) -> None:
    """A flag more in the base command changes every measurement."""
    change(study, '"--sim-noise", "0"', '"--sim-noise", "0", "--schedule-policy", "lpm"')
    with pytest.raises(InputError, match=r"engine\.command"):
        name_of(study)


def test_a_cut_trial_is_settled_and_handed_out_again(study: Path) -> None:
    """It becomes Interrupted, is announced, and its parameters come first."""
    params = {"max_running_requests": 64, "cuda_graph_max_bs": 64}
    put(study, 1, dict(params), None)
    heard: list[Event] = []
    with open_night(read_brief(study), heard.append, Waiting()) as night:
        night.fix_region(score(1000.0).effective)
        region = night.region()
        assert region is not None
        suggestion = night.searcher.ask(region)
    assert any(isinstance(event, Note) and "trial 1 was cut off" in event.text for event in heard)
    cut = records(study).result(1)
    assert cut is not None
    assert isinstance(cut.outcome, Interrupted)
    assert suggestion is not None
    assert (suggestion.number, suggestion.config.params, suggestion.rerun_of) == (2, params, 1)


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    """A process that carries a mark, in a session of its own."""
    argv = [sys.executable, "-S", "-c", "print(1, flush=True); import time; time.sleep(600)"]
    process = subprocess.Popen(
        argv, env={**os.environ, MARK_NAME: mark}, start_new_session=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_the_orphans_of_this_study_are_stopped_and_no_others(study: Path) -> None:
    """A server that a dead tuner left is ended, recorded or not; a neighbour's with a similar mark lives."""
    brief = read_brief(study)
    own = study_id(brief.folder, write_manifest(brief))
    put(study, 1, {}, None)
    recorded, fresh, foreign = sleeper("recorded/1/abc"), sleeper(f"{own}/2/def"), sleeper(f"{own}0/2/def")
    identity = ServerIdentity(pid=recorded.pid, start_ticks=0, mark="recorded/1/abc", port=1, boot_id=boot_id())
    write_record(records(study).trial(1).identity, identity)
    try:
        with open_night(brief, lambda _: None, Waiting()):
            pass
        assert recorded.wait(timeout=30) < 0
        assert fresh.wait(timeout=30) < 0
        time.sleep(0.1)
        assert foreign.poll() is None
    finally:
        for process in (recorded, fresh, foreign):
            process.kill()
            process.communicate()


def test_the_server_of_a_tuner_that_lives_is_spared(study: Path) -> None:
    """A copy of a study's folder names the servers of the original's night; once that tuner is dead they are ended."""
    put(study, 1, {}, None)
    server, tuner = sleeper("original/1/abc"), sleeper("tuner")
    row = read_row(tuner.pid)
    assert row is not None
    identity = ServerIdentity(
        pid=server.pid,
        start_ticks=0,
        mark="original/1/abc",
        port=1,
        boot_id=boot_id(),
        tuner_pid=row.pid,
        tuner_start_ticks=row.start_ticks,
    )
    path = records(study).trial(1).identity
    heard: list[Event] = []
    write_record(path, identity)
    brief, manifest = read_brief(study), write_manifest(read_brief(study))
    try:
        clean_up(brief, manifest, heard.append, Waiting())
        assert server.poll() is None
        assert [e.text for e in heard if isinstance(e, Note)] == [
            f"the server of trial 1 (pid {server.pid}) is left alone: its tuner (pid {tuner.pid}) still runs; "
            "this folder seems to be a copy"
        ]
        write_record(path, msgspec.structs.replace(identity, tuner_start_ticks=row.start_ticks - 1))
        clean_up(brief, manifest, heard.append, Waiting())
        assert server.wait(timeout=30) < 0
    finally:
        for process in (server, tuner):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("ended", "told"), [((1, 0), "stopped 1 process that"), ((2, 1), "stopped 2 processes that"), ((0, 0), "")]
)
def test_what_was_stopped_is_counted(
    ended: tuple[int, int], told: str, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process is one."""
    report = StopReport(terminated=ended[0], killed=ended[1], seconds=0.0)
    monkeypatch.setattr("autotune.night.reap_everywhere", lambda *_: report)
    heard: list[Event] = []
    with open_night(read_brief(study), heard.append, Waiting()):
        pass
    notes = [event.text for event in heard if isinstance(event, Note) and event.text.startswith("stopped")]
    assert [note.startswith(told) for note in notes] == [True] * bool(told)


def test_a_version_that_only_the_baseline_tells_costs_no_reading_of_all_records(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan and every diagnosis asks for it."""
    for number in (1, 2):
        put(study, number, {"max_running_requests": 64 * number}, score(1000.0))
    read: list[int] = []
    usual, told = Records.result, version_told(records(study).results())

    def counted(self: Records, number: int) -> TrialResult | None:
        read.append(number)
        return usual(self, number)

    with open_night(read_brief(study), lambda _: None, Waiting()) as night:
        rig = msgspec.structs.replace(night.rig, version="")
        monkeypatch.setattr(Records, "result", counted)
        assert rig.known_version == told
        assert read == [0]


def test_a_runtime_that_cannot_be_asked_is_no_news_before_the_first_trial(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be left of a study without a trial; of one that has some, it must be said."""
    report = StopReport(terminated=0, killed=0, seconds=0.0, survivors=("what cannot be asked for",))
    monkeypatch.setattr("autotune.night.reap_everywhere", lambda *_: report)
    (tmp_path / "fresh").mkdir()
    fresh = Night().write(tmp_path / "fresh")
    for path, wanted in ((fresh, 0), (study, 1)):
        heard: list[Event] = []
        with open_night(read_brief(path), heard.append, Waiting()):
            pass
        assert sum("cannot be asked for" in event.text for event in heard if isinstance(event, Note)) == wanted


def test_two_nights_do_not_open_one_study(study: Path) -> None:
    """The second is refused before it touches anything."""
    brief = read_brief(study)
    with (
        open_night(brief, lambda _: None, Waiting()),
        pytest.raises(StudyLocked),
        open_night(brief, lambda _: None, Waiting()),
    ):
        pytest.fail("opened twice")


def test_bounds_are_fixed_once(study: Path) -> None:
    """A later server that reports another capacity does not move the bounds of the study."""
    with open_night(read_brief(study), lambda _: None, Waiting()) as night:
        first = night.fix_region(score(1.0).effective)
        second = night.fix_region(msgspec.structs.replace(score(1.0).effective, kv_tokens=99))
    assert first == second


def test_events_go_to_the_file_and_are_a_sign_of_life(study: Path) -> None:
    """events.jsonl and the heartbeat are there after a night has said something."""
    put(study, 1, {}, None)
    with open_night(read_brief(study), lambda _: None, Waiting()) as night:
        folder = night.folder
    assert "cut off" in folder.events.read_text()
    assert folder.heartbeat.exists()
    assert folder.heartbeat.stat().st_mode & 0o077 == 0
