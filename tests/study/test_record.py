"""Records on disk: written once, atomically, privately, and read back or refused with the remedy."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError, NightStopped
from autotune.study import atomic
from autotune.study.folder import StudyFolder, fresh_name
from autotune.study.manifest import Manifest
from autotune.study.record import Begun, Records, read_record, storable, write_record
from autotune.study.repair import set_aside_damaged_records
from autotune.values import (
    Config,
    Effective,
    Estimate,
    Interrupted,
    LaunchPlan,
    Measured,
    Measurement,
    Refused,
    Timings,
    TrialResult,
)

NOW = "2026-01-02T03:04:05+00:00"
PLAN = LaunchPlan(engine="sglang", argv=("python", "-m", "x"), host="127.0.0.1", port=1234)


def measurement(**steady: float) -> Measurement:
    """A measurement with these figures."""
    return Measurement(
        whole={"duration": 1.0},
        steady=steady,
        estimates={"output_throughput_tok_s": Estimate(value=1.0, stderr=float("nan"), batches=1)},
        requests_completed=1,
        requests_failed=0,
        warmup_s=0.0,
        window_s=1.0,
        duration_s=1.0,
    )


def settled(number: int, score: float = 5.0) -> TrialResult:
    """A measured trial."""
    outcome = Measured(
        score=Estimate(value=score, stderr=0.1, batches=3),
        measurement=measurement(output_throughput_tok_s=score),
        effective=Effective(source="server_info"),
    )
    return TrialResult(
        number=number,
        config=Config(params={"limit": number}),
        outcome=outcome,
        timings=Timings(),
        started_at=NOW,
        finished_at=NOW,
    )


def begun(number: int) -> Begun:
    """The first record of a trial."""
    return Begun(number=number, config=Config(params={"limit": number}), started_at=NOW)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Records of a fresh study."""
    folder = StudyFolder.beside(tmp_path / "night.toml", "night")
    folder.create()
    return Records(folder)


def test_a_trial_is_begun_planned_and_settled(records: Records) -> None:
    """Each step can be read back as it was written."""
    records.begin_trial(begun(0))
    records.write_plan(0, PLAN)
    stored = records.settle(settled(0))
    assert records.begun(0) == begun(0)
    assert records.plan(0) == PLAN
    assert records.results() == [stored]
    assert records.next_number() == 1
    assert records.interrupted() == []


def test_a_trial_without_a_result_was_interrupted(records: Records) -> None:
    """It is settled as such, under its own number and with its own config."""
    records.begin_trial(begun(0))
    records.settle(settled(0))
    records.begin_trial(begun(1))
    assert records.interrupted() == [begun(1)]
    (cut,) = records.settle_interrupted("kill -9", NOW)
    assert cut.outcome == Interrupted(reason="kill -9")
    assert cut.config == begun(1).config
    assert records.interrupted() == []
    assert [r.number for r in records.results()] == [0, 1]


def test_a_number_begins_and_settles_once(records: Records) -> None:
    """A second beginning is a mistake of the caller; a second result never replaces the first."""
    records.begin_trial(begun(0))
    with pytest.raises(ValueError, match="has begun before"):
        records.begin_trial(begun(0))
    first = records.settle(settled(0, score=5.0))
    assert records.settle(settled(0, score=6.0)) == first


def test_a_folder_without_a_config_leaves_its_number_free(records: Records) -> None:
    """Killed between the folder and the config, a trial never began."""
    records.trial(0).root.mkdir()
    (records.folder.trials / "notes").mkdir()
    assert records.numbers() == []
    records.begin_trial(begun(0))
    assert records.numbers() == [0]


def test_numbers_above_9999_keep_their_order(records: Records) -> None:
    """Folder names grow by a digit."""
    for number in (10_000, 9_999):
        records.begin_trial(begun(number))
    assert records.numbers() == [9_999, 10_000]


def test_files_and_folders_are_private(records: Records) -> None:
    """Others on the machine cannot read them, and no temporary file is left."""
    records.begin_trial(begun(0))
    records.settle(settled(0))
    atomic.append_line(records.folder.events, b"{}")
    for path in [records.folder.root, *records.folder.root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert not path.name.endswith(".tmp")


def test_figures_that_are_not_finite_are_left_out(records: Records) -> None:
    """JSON cannot hold them; the record stays readable."""
    result = msgspec.structs.replace(
        settled(0), outcome=msgspec.structs.replace(settled(0).outcome, measurement=measurement(a=float("inf"), b=2.0))
    )
    stored = records.settle(result)
    assert isinstance(stored.outcome, Measured)
    assert stored.outcome.measurement.steady == {"b": 2.0}
    assert stored.outcome.measurement.estimates == {}
    assert records.result(0) == stored


def test_a_score_that_is_no_number_is_no_score(records: Records) -> None:
    """The trial is refused, with the reason."""
    stored = records.settle(settled(0, score=float("nan")))
    assert isinstance(stored.outcome, Refused)
    assert "not a number" in stored.outcome.findings[0].message
    assert records.result(0) == stored
    assert storable(stored) == stored


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_a_record_or_an_input_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """A damaged record never makes a traceback."""
    path = tmp_path_factory.getbasetemp() / "record.json"
    path.write_bytes(data)
    for shape in (TrialResult, Begun, LaunchPlan, Manifest):
        with pytest.raises(InputError, match="autotune repair"):
            read_record(path, shape)


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_a_record_with_a_changed_byte_is_a_record_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bit rot is noticed or harmless."""
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    write_record(path, storable(settled(3)))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = read_record(path, TrialResult)
    except InputError:
        return
    assert isinstance(found, TrialResult)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    """Permissions are not the trouble there, and are not blamed."""
    (tmp_path / "study").write_text("")
    with pytest.raises(InputError, match="move it away"):
        read_record(tmp_path / "study" / "manifest.json", dict[str, object])


def test_deeply_nested_json_is_an_input_error(tmp_path: Path) -> None:
    """The parser's limit is not ours to show."""
    path = tmp_path / "deep.json"
    path.write_bytes(b"[" * 1_000_000)
    with pytest.raises(InputError, match="damaged record"):
        read_record(path, dict[str, object])


def test_repair_sets_damaged_records_aside_and_keeps_the_rest(records: Records) -> None:
    """A trial with a damaged result is interrupted, one with a damaged config never began."""
    for number in range(3):
        records.begin_trial(begun(number))
    records.settle(settled(0))
    records.settle(settled(1))
    records.trial(1).result.write_bytes(b'{"number": 1')
    records.trial(2).config.write_bytes(b"")
    with pytest.raises(InputError, match=r"0001/result.json: damaged record .*`autotune repair`"):
        records.results()
    aside = set_aside_damaged_records(records)
    assert sorted(path.name for path in aside) == ["config.json.damaged", "result.json.damaged"]
    assert [r.number for r in records.results()] == [0]
    assert [b.number for b in records.interrupted()] == [1]
    assert set_aside_damaged_records(records) == []
    records.trial(1).result.write_bytes(b"again")
    assert [path.name for path in set_aside_damaged_records(records)] == ["result.json.damaged-2"]


def test_a_write_that_fails_keeps_the_old_file_and_stops_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is named with its remedy, and leaves no half a file."""
    path = tmp_path / "file"
    atomic.write_atomic(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(NightStopped, match="the disk is full: free some space"):
        atomic.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_the_place_of_the_folder_stops_the_night(tmp_path: Path) -> None:
    """It is not ours to remove."""
    (tmp_path / "night").write_text("mine")
    with pytest.raises(NightStopped, match="night"):
        StudyFolder(tmp_path / "night").create()
    assert (tmp_path / "night").read_text() == "mine"


def test_a_fresh_name_is_the_first_that_has_no_folder(tmp_path: Path) -> None:
    """--force counts up."""
    assert fresh_name(tmp_path, "night") == "night"
    (tmp_path / "night").mkdir()
    (tmp_path / "night-2").mkdir()
    assert fresh_name(tmp_path, "night") == "night-3"
