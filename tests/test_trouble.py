"""From what was seen of a server to what becomes of its trial."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autotune import trouble
from autotune.errors import NightStopped, advised
from autotune.trouble import ENVIRONMENT, Retry, Trouble, diagnose_trouble, judge_trouble, read_log
from autotune.values import Diagnosis, Infeasible, Refused, Wrapper
from tests.nights import Night, put, rig, score

DEAD = Trouble(phase="startup", reason="exited with code 1", exit_code=1)


def judge(folder: Path, found: Diagnosis, seen: Trouble, monkeypatch: pytest.MonkeyPatch) -> object:
    """What becomes of a trial whose diagnosis is ``found``."""
    monkeypatch.setattr(trouble, "diagnose", lambda log, facts: found)
    return judge_trouble(rig(Night().write(folder)), seen, folder / "server.log", "")


def test_prune_is_infeasible_with_its_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parameters cannot do is settled at once, and the diagnosis is kept."""
    found = Diagnosis(kind="oom_kv", action="prune", evidence=("CUDA out of memory",), stage="kv_pool")
    assert judge(tmp_path, found, DEAD, monkeypatch) == Infeasible(diagnosis=found)


def test_stop_ends_the_night_with_kind_evidence_advice_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no parameters would help, a person is told what to do and where to look."""
    found = Diagnosis(kind="env_error", action="stop", evidence=("no such driver",), advice="install it")
    with pytest.raises(NightStopped, match=r"env_error: no such driver; install it \(log: .*server\.log\)"):
        judge(tmp_path, found, DEAD, monkeypatch)


@pytest.mark.parametrize(("kind", "attempts"), [("hang", 2), ("kernel_error", 2), ("crash_other", 2), ("nccl", 3)])
def test_retry_is_bounded_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, attempts: int) -> None:
    """A second hang is an answer; a crash by chance gets a third attempt."""
    again = judge(tmp_path, Diagnosis(kind=kind, action="retry"), DEAD, monkeypatch)
    assert isinstance(again, Retry)
    assert (again.kind, again.attempts) == (kind, attempts)


def test_discard_is_refused_after_a_second_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that failed is no score and says nothing final about the parameters."""
    seen = Trouble(phase="load", reason="9 of 9 requests failed", alive=True, failing=True)
    again = judge(tmp_path, Diagnosis(kind="bench_failed", action="discard"), seen, monkeypatch)
    assert isinstance(again, Retry)
    assert again.attempts == 2
    refused = again.give_up()
    assert isinstance(refused, Refused)
    assert refused.findings[0].message == seen.reason


@pytest.mark.parametrize("action", ["score", "score_flag", "wait"])
@pytest.mark.parametrize(
    ("seen", "kind", "decided"),
    [
        (DEAD, "crash_other", "retry"),
        (Trouble(phase="load", reason="no token for 60 s", alive=True, silent_s=60), "hang", "retry"),
        (Trouble(phase="startup", reason="not ready", alive=True, timed_out="cap"), "hang", "prune"),
        (Trouble(phase="load", reason="9 of 9 failed", alive=True, failing=True), "bench_failed", "discard"),
    ],
    ids=["dead", "silent", "cap", "failing"],
)
def test_a_failed_server_is_never_called_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, seen: Trouble, kind: str, decided: str
) -> None:
    """A log that finds nothing wrong does not overrule that the server died or did not serve."""
    found = msgspec.convert({"class": "ok", "action": action}, Diagnosis)
    monkeypatch.setattr(trouble, "diagnose", lambda log, facts: found)
    named = diagnose_trouble(rig(Night().write(tmp_path)), seen, "")
    assert (named.kind, named.action) == (kind, decided)
    assert named.evidence == (seen.reason,)


def test_a_start_beyond_the_cap_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another hour for the same parameters would not pay."""
    seen = Trouble(phase="startup", reason="not ready after 3600 s", alive=True, timed_out="cap")
    assert isinstance(judge(tmp_path, Diagnosis(kind="hang", action="retry"), seen, monkeypatch), Infeasible)


def test_a_server_that_refuses_to_answer_stops_the_night(tmp_path: Path) -> None:
    """A wrong key or route is a fault of the study, whatever the parameters."""
    seen = Trouble(phase="startup", reason="HTTP 401", alive=True, timed_out="refused")
    with pytest.raises(NightStopped, match=r"engine\.api_key_env"):
        judge_trouble(rig(Night().write(tmp_path)), seen, tmp_path / "server.log", "")


@pytest.mark.parametrize("kind", sorted(ENVIRONMENT))
def test_environment_faults_that_stay_stop_the_night(kind: str) -> None:
    """Kinds that say nothing about the parameters never become infeasible."""
    again = Retry(reason="it stays", kind=kind, diagnosis=Diagnosis(kind=kind, action="retry", advice="mend it"))
    with pytest.raises(NightStopped, match=f"{kind} after 3 attempts: it stays. mend it"):
        again.give_up()


def test_a_retry_without_a_diagnosis_stops_the_night() -> None:
    """A port that stays taken is nobody's parameter."""
    with pytest.raises(NightStopped, match="port_in_use after 3 attempts: port 30000 is taken"):
        Retry(reason="port 30000 is taken", kind="port_in_use").give_up()


def test_a_crash_that_stays_is_infeasible() -> None:
    """The third crash with the same parameters is an answer."""
    found = Diagnosis(kind="crash_other", action="retry")
    assert Retry(reason="again", kind="crash_other", diagnosis=found).give_up() == Infeasible(diagnosis=found)


def test_a_log_that_is_missing_or_binary_is_text_all_the_same(tmp_path: Path) -> None:
    """Reading a log never fails."""
    assert read_log(tmp_path / "none.log") == ""
    (tmp_path / "server.log").write_bytes(b"\xff\x00 out of memory")
    assert "out of memory" in read_log(tmp_path / "server.log")


ENDED = Trouble(phase="startup", reason="exited with code 0 before it was ready", exit_code=0)


def test_a_command_that_goes_into_the_background_ends_the_night_at_once(tmp_path: Path) -> None:
    """A baseline whose command ends with success will never be a server in the foreground: a retry is useless."""
    with pytest.raises(NightStopped, match=r"exit status 0\. .*into the background.*in the foreground"):
        judge_trouble(rig(Night().write(tmp_path)), ENDED, tmp_path / "server.log", "server started as daemon\n")


def test_after_a_measured_start_it_is_that_configuration_s(tmp_path: Path) -> None:
    """The command does serve: what ends with success now is tried again and left alone."""
    path = Night().write(tmp_path)
    put(path, 0, {}, score(1000.0))
    again = judge_trouble(rig(path), ENDED, tmp_path / "server.log", "")
    assert isinstance(again, Retry)
    assert again.attempts == 2
    assert isinstance(again.give_up(), Infeasible)


def test_the_last_words_have_the_cause_once(tmp_path: Path) -> None:
    """No kind twice, and no two marks in a row."""
    shared = rig(Night().write(tmp_path))
    engine = msgspec.structs.replace(shared.study.engine, wrapper=Wrapper(kind="docker", image="engine:1"))
    shared = msgspec.structs.replace(shared, study=msgspec.structs.replace(shared.study, engine=engine))
    seen = msgspec.structs.replace(DEAD, exit_code=125)
    again = judge_trouble(shared, seen, tmp_path / "server.log", "docker: Cannot connect. Is it running?.\n")
    assert isinstance(again, Retry)
    with pytest.raises(NightStopped, match=r"^env_error after 3 attempts: docker .*running\? See that docker"):
        again.give_up()


@pytest.mark.parametrize(
    ("reason", "advice", "line"),
    [
        ("no driver", "install it", "no driver; install it"),
        ("no driver", "Install it.", "no driver. Install it."),
        ("is it running?", "start it", "is it running? Start it"),
        ("no driver", "", "no driver"),
    ],
)
def test_reason_and_advice_are_one_line(reason: str, advice: str, line: str) -> None:
    """Whatever mark the reason ends with."""
    assert advised(reason, advice) == line
