"""Commands, their JSON, their exit codes, and what they say of bad input."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.cli.text import ended_text, status_text
from autotune.events import NightEnded
from autotune.overview import overview
from autotune.study.lock import study_lock
from autotune.study.record import Begun
from autotune.values import Diagnosis, Infeasible, ParamValue
from tests.nights import Night, put, records, score

from .conftest import Run

BEST = {"max_running_requests": 128, "cuda_graph_max_bs": 128}
OOM = Infeasible(diagnosis=Diagnosis(kind="oom_runtime", action="prune", evidence=("CUDA out of memory",)))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a baseline, a better trial, one out of memory and one that was cut off."""
    path = Night(trials=6).write(tmp_path)
    put(path, 0, {}, score(1000.0))
    put(path, 1, dict(BEST), score(3000.0))
    put(path, 2, {"max_running_requests": 160, "cuda_graph_max_bs": 160}, OOM)
    put(path, 3, {"max_running_requests": 64, "cuda_graph_max_bs": 64}, None)
    return path


def test_status_json_has_what_a_script_wants(study: Path, run: Run) -> None:
    """Counts, scores, gain, the plan of the best and one line per trial."""
    code, out, _ = run("status", study, "--json")
    seen = json.loads(out)
    assert code == 0
    assert (seen["settled"], seen["trials"], seen["best_number"]) == (3, 6, 1)
    assert (seen["baseline"], seen["best"], seen["gain"]) == (1000.0, 3000.0, pytest.approx(2.0))
    assert seen["running"] is None
    assert [line["state"] for line in seen["lines"]] == ["measured", "measured", "oom_runtime", "cut off"]
    assert "--max-running-requests" in seen["plan"]["argv"]


def test_status_for_people_names_the_best(study: Path, run: Run) -> None:
    """Baseline, best with its trial, and the gain."""
    _, out, _ = run("status", study)
    assert "3 of 6 trials settled" in out
    assert "3,000.0 (trial 1), +200.0 % over the baseline" in out
    assert "cut off" in out
    assert "0.0s  max_running_requests=64" not in out


def test_status_while_a_night_holds_the_lock(study: Path, run: Run) -> None:
    """A trial without a result runs."""
    with study_lock(study.parent / "short" / "lock", "2026-01-01T00:00:00"):
        lines = json.loads(run("status", study, "--json").out)["lines"]
    assert lines[-1]["state"] == "running"


def test_status_names_the_starts_that_count_against_no_number(study: Path, run: Run) -> None:
    """Five numbered trials, three of them settled that count: the others are explained."""
    folder = records(study)
    again = folder.result(0)
    assert again is not None
    folder.begin_trial(Begun(number=4, config=again.config, started_at=again.started_at, repeat_of=0))
    folder.settle(msgspec.structs.replace(again, number=4, repeat_of=0))
    assert "3 of 6 trials settled beside 1 repeat of the baseline" in run("status", study).out


@pytest.mark.parametrize(
    ("best", "told"),
    [
        (dict(BEST), "not yet; run `autotune confirm 'my studies/short.toml'`"),
        ({}, "nothing to confirm, the server's defaults are the best that was measured"),
    ],
)
def test_the_last_words_say_what_is_left_to_do(best: dict[str, ParamValue], told: str, tmp_path: Path) -> None:
    """The whole command, or that there is nothing to compare the defaults with."""
    path = Night(trials=6).write(tmp_path)
    put(path, 0, {}, score(1000.0))
    put(path, 1, dict(BEST), score(3000.0 if best else 500.0))
    seen = overview(read_brief(path))
    assert told in ended_text(NightEnded(reason="done", settled=2), seen, Path("my studies/short.toml"))
    assert told.partition(";")[0] in status_text(seen)


def test_status_of_a_study_that_never_ran(tmp_path: Path, run: Run) -> None:
    """Nothing is there, and asking creates nothing."""
    path = Night().write(tmp_path)
    assert "0 of 3 trials settled" in run("status", path).out
    assert not (tmp_path / "short").exists()


def test_plan_json_has_bounds_command_and_times(tmp_path: Path, run: Run) -> None:
    """Everything that would happen, and nothing is started."""
    path = Night().write(tmp_path)
    code, out, _ = run("plan", path, "--json")
    made = json.loads(out)
    assert code == 0
    assert {bound["name"] for bound in made["bounds"]} == {"max_running_requests", "cuda_graph_max_bs"}
    assert all(bound["derivation"] for bound in made["bounds"])
    assert "autotune.sim" in made["command"]
    assert not (tmp_path / "short").exists()


def test_doctor_json_lists_checks(tmp_path: Path, run: Run) -> None:
    """Each check has a name, a verdict and a sentence; the exit code is the verdict of all."""
    path = Night(parameters=("max_running_requests", "num_continuous_decode_steps")).write(tmp_path)
    code, out, _ = run("doctor", path, "--json")
    checks = json.loads(out)["checks"]
    assert code == (0 if all(check["ok"] for check in checks) else 5)
    names = {check["name"] for check in checks}
    assert {"engine", "disk", "flag --max-running-requests", "flag --num-continuous-decode-steps"} <= names
    dead = next(c for c in checks if c["name"] == "flag --num-continuous-decode-steps")
    assert "since 0.3.6" in dead["text"] or "read" in dead["text"]


def test_doctor_says_that_a_secret_is_missing(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5: what was checked does not hold, and the remedy is named."""
    monkeypatch.delenv("SHORT_KEY", raising=False)
    path = Night().write(tmp_path)
    path.write_text(path.read_text().replace("[model]", 'api_key_env = "SHORT_KEY"\n[model]'))
    code, out, _ = run("doctor", path)
    assert code == 5
    assert "FIX  variable SHORT_KEY: not set: export it" in out


def test_export_writes_an_executable_script_with_the_measured_argv(study: Path, run: Run, tmp_path: Path) -> None:
    """The script is what was measured: bash reads back the words of plan.json."""
    target = tmp_path / "go.sh"
    code, out, _ = run("export", study, "--output", target)
    assert (code, out.strip()) == (0, str(target))
    assert os.access(target, os.X_OK)
    assert subprocess.run(["bash", "-n", target], check=False).returncode == 0
    echo = target.read_text().replace("exec -- ", "printf '%s\\0' ")
    words = subprocess.run(["bash", "-c", echo], check=True, capture_output=True).stdout.split(b"\0")[:-1]
    plan = records(study).plan(1)
    assert plan is not None
    assert [word.decode() for word in words] == list(plan.argv)


def test_export_of_nothing_is_an_input_error(tmp_path: Path, run: Run) -> None:
    """The remedy is the command that measures."""
    code, _, err = run("export", Night().write(tmp_path))
    assert code == 2
    assert "nothing is measured yet; run `autotune tune" in err


@pytest.mark.parametrize("target", ["", "none/go.sh"], ids=["folder", "no-folder"])
def test_export_to_where_nothing_can_be_written(study: Path, run: Run, tmp_path: Path, target: str) -> None:
    """One line that names the path."""
    code, _, err = run("export", study, "--output", tmp_path / target)
    assert code == 2
    assert str(tmp_path / target) in err


@pytest.mark.parametrize("options", [("export", "-o"), ("report", "--html"), ("report", "--csv")])
@pytest.mark.parametrize("name", ["study.toml", "short/manifest.json"])
def test_the_study_is_never_written_over(study: Path, run: Run, options: tuple[str, str], name: str) -> None:
    """Exit code 2, and the file is as it was."""
    command, option = options
    path = study.parent / name
    before = path.read_bytes()
    code, out, err = run(command, study, option, path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", [("status",), ("report",), ("watch", "--once"), ("export",), ("plan",)])
def test_a_study_whose_manifest_is_lost_is_still_there(study: Path, run: Run, command: tuple[str, ...]) -> None:
    """Its trials keep a copy: who looks at it sees the same, and nothing is written."""
    before = run(*command, study)
    manifest = study.parent / "short" / "manifest.json"
    manifest.unlink()
    code, out, err = run(*command, study)
    assert (code, len(out.splitlines()), err) == (before.code, len(before.out.splitlines()), before.err)
    assert code == 0
    assert not manifest.exists()


def test_a_file_that_was_edited_since_is_told(study: Path, run: Run) -> None:
    """``tune`` refuses; who looks at the results learns in one line that the file is no longer theirs."""
    said = "the study has changed since this was measured"
    for command in ("status", "report", "export", "watch"):
        assert said not in "".join(run(command, study)[1:])
    study.write_text(study.read_text().replace("output_tokens = 8", "output_tokens = 16"))
    line = f"{said}: workload.output_tokens: 8 -> 16"
    root = study.parent / "short"
    for command, written in (("status", None), ("report", "report/index.html"), ("export", "launch-best.sh")):
        code, out, err = run(command, study)
        assert code == 0
        assert (out + err).count(line) == 1
        assert written is None or said.removeprefix("the") in (root / written).read_text()
    assert json.loads(run("status", study, "--json").out)["changed"] == line
    assert said in run("watch", study, "--once").out
    assert run("export", study, "--format", "args").out.strip() == str(root / "launch-best.args")
    assert run("tune", study).code == 2


@pytest.mark.parametrize("command", ["resume", "confirm"])
def test_what_continues_never_starts_a_study(tmp_path: Path, run: Run, command: str) -> None:
    """Nothing to resume or confirm: exit code 2, the command that starts, and no folder."""
    study = Night().write(tmp_path)
    before = sorted(tmp_path.iterdir())
    code, _, err = run(command, study)
    assert sorted(tmp_path.iterdir()) == before
    assert code == 2
    assert f"nothing to {command}" in err
    assert not (tmp_path / "short").exists()


def test_a_study_to_start_from_that_is_nowhere(study: Path, run: Run, tmp_path: Path) -> None:
    """Exit code 2, for either command, and nothing is started."""
    for command in ("tune", "resume"):
        code, _, err = run(command, study, "--from", tmp_path / "nowhere.toml")
        assert code == 2
        assert "nowhere" in err
        assert err.count("\n") == 1
    code, _, err = run("tune", study, "--from", records(study).folder.root)
    assert code == 2
    assert "--from" in err


@pytest.mark.parametrize("command", ["tune", "resume", "repair"])
def test_a_second_tuner_is_kept_off(study: Path, run: Run, command: str) -> None:
    """Exit code 4, and the holder is named."""
    with study_lock(records(study).folder.lock, "2026-01-01T00:00:00+00:00"):
        code, _, err = run(command, study)
        seen = json.loads(run("status", study, "--json").out)
    assert code == 4
    assert f"process {os.getpid()}" in err
    assert seen["running"]["pid"] == os.getpid()


@pytest.mark.parametrize("command", ["tune", "resume", "status", "plan", "doctor", "export", "repair"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is a directory"),
        (b"", "is missing"),
        (b"\xff\xfe\x00binary", "not UTF-8"),
        (b"name = ", "not valid TOML"),
        (b"[[[[[", "not valid TOML"),
    ],
    ids=["folder", "empty", "binary", "torn", "brackets"],
)
def test_a_file_that_is_no_study_is_one_line(
    tmp_path: Path, run: Run, command: str, content: bytes | None, told: str
) -> None:
    """Exit code 2, one line with the file, no traceback."""
    path = tmp_path / "study.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    code, out, err = run(command, path)
    assert (code, out) == (2, "")
    assert told in err
    assert str(path) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("concurrency", "concurency", "workload.concurency: unknown key; did you mean workload.concurrency?"),
        ('kind = "sglang"', 'kind = "sglng"', "engine.kind: 'sglng' is not known; did you mean sglang?"),
        ('"cuda_graph_max_bs"', '"cuda_graph_max"', "cuda_graph_max"),
        ("trials = 3", "trials = 0", "budget.trials"),
        ('wall_clock = "30m"', 'wall_clock = "soon"', "budget.wall_clock"),
        ("[space]", '[space]\nfile = "none.toml"', "none.toml"),
        ("demo.json", "none.json", "none.json"),
        ('sampler = "tpe"', 'sampler = "tea"', "search.sampler"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "tune"])
def test_a_wrong_value_names_key_and_remedy(
    tmp_path: Path, run: Run, command: str, old: str, new: str, told: str
) -> None:
    """Exit code 2 and the key; nothing is created."""
    path = Night().write(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    code, _, err = run(command, path)
    assert code == 2
    assert told in err
    assert not (tmp_path / "short").exists()


def test_a_name_that_is_nowhere_names_the_shipped_studies(run: Run) -> None:
    """A person who mistypes sees what there is."""
    code, _, err = run("plan", "no-such-study")
    assert code == 2
    assert "no-such-study" in err


@pytest.mark.parametrize(
    "record", ["manifest.json", "bounds.json", "machine.json", "transfer.json", "trials/0001/result.json"]
)
def test_a_damaged_record_is_an_input_error_that_names_repair(study: Path, run: Run, record: str) -> None:
    """``tune`` starts nothing on damaged records; exit code 2."""
    (records(study).folder.root / record).write_text("{torn")
    code, _, err = run("tune", study)
    assert code == 2
    assert record in err
    assert "autotune repair" in err


def test_a_program_that_is_not_there_stops_the_night(tmp_path: Path, run: Run) -> None:
    """Exit code 3: an assumption of the night broke."""
    path = Night().write(tmp_path)
    path.write_text(path.read_text().replace('"{python}", "-m"', '"no-such-program", "-m"'))
    code, _, err = run("tune", path)
    assert code == 3
    assert "engine.command" in err


def test_unknown_commands_and_options_are_usage_errors(run: Run) -> None:
    """Exit code 2, as everywhere."""
    assert run("tuen").code == 2
    assert run("status", "x", "--jsn").code == 2


def test_version(run: Run) -> None:
    """One line."""
    assert run("--version").out.startswith("autotune ")


def test_diagnose_json_has_the_four_keys(tmp_path: Path, run: Run) -> None:
    """The same code for a person with a dead server."""
    log = tmp_path / "server.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    code, out, _ = run("diagnose", log, "--engine", "sglang", "--exit-code", "-9", "--json")
    assert code == 0
    assert {"class", "action", "evidence", "advice"} <= json.loads(out).keys()


@pytest.mark.parametrize("extra", [("--phase", "never"), ()], ids=["phase", "no-file"])
def test_diagnose_of_bad_input(tmp_path: Path, run: Run, extra: tuple[str, ...]) -> None:
    """Exit code 2, no traceback."""
    assert run("diagnose", tmp_path / "none.log", *extra).code == 2
