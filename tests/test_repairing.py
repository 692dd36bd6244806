"""``autotune repair``: whatever file is damaged, the study goes on with all that is sound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import optuna
import pytest

from autotune.brief import read_brief
from autotune.cli.text import repaired_text
from autotune.errors import InputError
from autotune.night import open_night
from autotune.repairing import repair
from autotune.sameness import resolve
from autotune.search.outcomes import trial_state
from autotune.server.cancel import Waiting
from autotune.server.stop import StopReport
from autotune.study.record import write_record
from autotune.values import Diagnosis, Infeasible, Interrupted, Measured
from tests.nights import Night, put, records, result, score

OOM = Infeasible(diagnosis=Diagnosis(kind="oom_runtime", action="prune"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Three settled trials, bounds, and a storage that agrees."""
    path = Night().write(tmp_path)
    put(path, 0, {}, score(1000.0))
    with open_night(read_brief(path), lambda _: None, Waiting()) as night:
        region = night.fix_region(score(1000.0).effective)
        night.searcher.tell(result(path, 0), region)
    put(path, 1, {"max_running_requests": 128, "cuda_graph_max_bs": 128}, score(3000.0))
    put(path, 2, {"max_running_requests": 160, "cuda_graph_max_bs": 160}, OOM)
    with open_night(read_brief(path), lambda _: None, Waiting()):
        pass
    return path


def agrees(path: Path) -> bool:
    """The storage holds the records, each told as it should be."""
    found = records(path)
    mirror = optuna.load_study(study_name="short", storage=f"sqlite:///{found.folder.database}")
    told = {trial.number: trial.state for trial in mirror.get_trials()}
    return told == {r.number: trial_state(r) for r in found.results()}


def opens(path: Path) -> bool:
    """A night can be opened on it."""
    with open_night(resolve(read_brief(path)), lambda _: None, Waiting()) as night:
        return night.region() is not None


@pytest.mark.parametrize("data", [b"garbage" * 999, b"", None], ids=["garbage", "empty", "deleted"])
def test_a_storage_that_is_lost_is_written_again(study: Path, data: bytes | None) -> None:
    """Every settled trial is in it; a corrupt file is kept aside."""
    database = records(study).folder.database
    database.unlink()
    if data is not None:
        database.write_bytes(data)
    done = repair(read_brief(study))
    assert done.settled == 3
    assert done.set_aside == (("study.db.damaged",) if data else ())
    assert agrees(study)
    assert opens(study)


def test_a_truncated_result_is_set_aside_and_its_trial_runs_again(study: Path) -> None:
    """The other trials stay as they are, byte for byte."""
    found = records(study)
    path, other = found.trial(1).result, found.trial(2).result.read_bytes()
    path.write_bytes(path.read_bytes()[:200])
    done = repair(read_brief(study))
    assert done.set_aside == ("trials/0001/result.json.damaged",)
    assert (done.settled, done.interrupted) == (2, 1)
    assert isinstance(result(study, 1).outcome, Interrupted)
    assert found.trial(2).result.read_bytes() == other
    assert agrees(study)
    assert opens(study)


@pytest.mark.parametrize("text", ["{torn", "{}", "[1]"])
def test_lost_bounds_follow_from_the_baseline_again(study: Path, text: str) -> None:
    """The same bounds as before, also when the file is sound JSON of another shape."""
    path = records(study).folder.bounds
    before = path.read_bytes()
    path.write_text(text)
    assert repair(read_brief(study)).set_aside == ("bounds.json.damaged",)
    assert path.read_bytes() == before
    assert agrees(study)


@pytest.mark.parametrize("name", ["manifest.json", "machine.json", "trials/0001/plan.json", "trials/0001/config.json"])
@pytest.mark.parametrize("text", ["{torn", '{"a": 1}'])
def test_any_other_record_is_set_aside(study: Path, name: str, text: str) -> None:
    """Whichever it is, a night can be opened afterwards and the scores are kept."""
    (records(study).folder.root / name).write_text(text)
    done = repair(read_brief(study))
    assert done.set_aside == (f"{name}.damaged",)
    assert done.settled == 3
    assert opens(study)
    assert isinstance(result(study, 1).outcome, Measured)


@pytest.mark.parametrize("name", ["plan.json", "confirmation.json"])
def test_a_damaged_confirmation_is_set_aside(study: Path, name: str) -> None:
    """The search stands; the confirmation can be made anew."""
    folder = records(study).folder.root / "confirm"
    folder.mkdir()
    (folder / name).write_text("{}")
    assert repair(read_brief(study)).set_aside == (f"confirm/{name}.damaged",)
    assert opens(study)


def test_repairing_what_is_sound_changes_nothing(study: Path) -> None:
    """Twice is as good as once."""
    before = {p: p.read_bytes() for p in records(study).folder.root.rglob("*.json")}
    assert repair(read_brief(study)).set_aside == ()
    assert repair(read_brief(study)).set_aside == ()
    assert {p: p.read_bytes() for p in records(study).folder.root.rglob("*.json")} == before
    assert agrees(study)


def test_nothing_to_repair(tmp_path: Path) -> None:
    """A study that never ran is told so, and no folder is made."""
    with pytest.raises(InputError, match="nothing to repair"):
        repair(read_brief(Night().write(tmp_path)))
    assert not (tmp_path / "short").exists()


def test_a_storage_that_knows_more_than_the_records_is_rebuilt(study: Path) -> None:
    """``tune`` refuses it and names this command; afterwards it opens."""
    found = records(study)
    for path in (found.trial(2).result, found.trial(2).config):
        path.unlink()
    with pytest.raises(InputError, match="autotune repair"):
        opens(study)
    repair(read_brief(study))
    assert opens(study)


def change(path: Path) -> None:
    """Edit the workload of a study file."""
    path.write_text(path.read_text().replace("output_tokens = 8", "output_tokens = 16"))


@pytest.mark.parametrize("text", ["{torn", None], ids=["damaged", "deleted"])
def test_a_lost_manifest_comes_back_from_the_trials(study: Path, text: str | None) -> None:
    """Byte for byte, so that the marks of processes and a transfer from this study still fit."""
    path = records(study).folder.manifest
    before = path.read_bytes()
    path.unlink() if text is None else path.write_text(text)
    repair(read_brief(study))
    assert path.read_bytes() == before
    path.unlink()
    assert opens(study)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{torn", None], ids=["damaged", "deleted"])
def test_a_lost_manifest_does_not_mix_two_workloads(study: Path, text: str | None) -> None:
    """The file was edited meanwhile: repair and tune name the key, before and after the manifest is back."""
    path = records(study).folder.manifest
    path.unlink() if text is None else path.write_text(text)
    change(study)
    for _ in range(2):
        with pytest.raises(InputError, match=r"workload\.output_tokens: 8 -> 16"):
            repair(read_brief(study))
    with pytest.raises(InputError, match=r"workload\.output_tokens: 8 -> 16"):
        opens(study)
    assert resolve(read_brief(study), force=True).study.name == "short-2"


def test_a_repair_that_refuses_says_what_it_renamed_and_renames_no_more(study: Path) -> None:
    """Of a study that has changed only the manifest is set aside."""
    found = records(study)
    found.folder.manifest.write_text("{torn")
    found.trial(1).plan.write_text("{torn")
    change(study)
    with pytest.raises(InputError, match=r"output_tokens: 8 -> 16.*Set aside until then: manifest\.json\.damaged$"):
        repair(read_brief(study))
    assert found.trial(1).plan.read_text() == "{torn"
    with pytest.raises(InputError, match=r"`autotune tune \S+study\.toml --force`") as told:
        repair(read_brief(study))
    assert "Set aside" not in str(told.value)


def test_what_becomes_of_servers_is_said(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were stopped, and those that were left alone."""
    report = StopReport(terminated=2, killed=0, seconds=0.0, survivors=("pid 7",))
    monkeypatch.setattr("autotune.night.reap_everywhere", lambda *_: report)
    done = repair(read_brief(study))
    assert done.notes == ("stopped 2 processes that an earlier tuner had left", "could not stop pid 7")
    assert "note: could not stop pid 7" in repaired_text(done)


@pytest.mark.parametrize("text", ["{torn", None], ids=["damaged", "deleted"])
def test_a_manifest_that_nothing_tells_of_is_not_guessed(study: Path, text: str | None) -> None:
    """Trials of older versions keep none: only a person knows, and can begin anew."""
    found = records(study)
    for number in found.numbers():
        begun = found.begun(number)
        assert begun is not None
        write_record(found.trial(number).config, msgspec.structs.replace(begun, manifest=None))
    path = found.folder.manifest
    path.unlink() if text is None else path.write_text(text)
    for _ in range(2):
        left = r" \(manifest\.json\.damaged is what is left of it\)" if text else ""
        with pytest.raises(InputError, match=rf"manifest\.json is gone.*Put it back{left} to go on.*tune \S+ --force"):
            repair(read_brief(study))
    with pytest.raises(InputError, match=r"manifest\.json is gone"):
        opens(study)
    assert not path.exists()
    assert resolve(read_brief(study), force=True).study.name == "short-2"
    assert resolve(read_brief(study), reading=True).study.name == "short"
