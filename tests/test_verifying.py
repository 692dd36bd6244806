"""Exported scripts against their promise: what is read of them, and whole runs on the simulated server."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from autotune.brief import read_brief
from autotune.errors import InputError
from autotune.exporting import export_best
from autotune.server.ports import fresh_port
from autotune.verifying import VerifyAsk, prepare
from tests.nights import Night, autotune, begin, left, put, records, score, wait_for

BEST = {"max_running_requests": 128, "cuda_graph_max_bs": 128}


def exported(folder: Path, base: float = 1000.0, best: float = 3000.0, flags: tuple[str, ...] = ()) -> tuple[Path, int]:
    """The launch script of a study with these scores, at a free port, and the port."""
    study = Night(flags=flags).write(folder)
    put(study, 0, {}, score(base))
    put(study, 1, dict(BEST), score(best))
    script = export_best(read_brief(study))
    assert script is not None
    port = fresh_port("127.0.0.1")
    script.write_text(script.read_text().replace("30000", str(port)))
    return script, port


def test_the_script_names_study_address_and_promise(tmp_path: Path) -> None:
    """Nothing else is needed to verify it where it lies."""
    script, port = exported(tmp_path)
    errand = prepare(VerifyAsk(script=script))
    assert errand.brief.path == tmp_path / "study.toml"
    assert (errand.plan.host, errand.plan.port) == ("127.0.0.1", port)
    assert errand.plan.argv == (str(script),)
    assert 1000 < errand.promise.value < 3000


def test_the_baseline_is_started_by_its_own_argument_and_promise(tmp_path: Path) -> None:
    """As a person would go back."""
    script, port = exported(tmp_path)
    errand = prepare(VerifyAsk(script=script, baseline=True))
    assert errand.plan.argv == (str(script), "--baseline")
    assert errand.plan.port == port
    assert errand.promise.value < prepare(VerifyAsk(script=script)).promise.value


def test_an_address_that_was_edited_is_the_one_that_is_asked(tmp_path: Path) -> None:
    """The flags count, not the comment; everywhere is reached by loopback."""
    script, port = exported(tmp_path)
    script.write_text(script.read_text().replace("        127.0.0.1", "        0.0.0.0"))
    errand = prepare(VerifyAsk(script=script))
    assert (errand.plan.host, errand.plan.port) == ("127.0.0.1", port)


def test_a_script_that_promises_nothing_is_refused(tmp_path: Path) -> None:
    """Before anything starts, with the remedy."""
    script, _ = exported(tmp_path)
    script.write_text("\n".join(line for line in script.read_text().splitlines() if "another start" not in line))
    assert prepare(VerifyAsk(script=script)).promise.starts == 1, "an older script has its score"
    with pytest.raises(InputError, match=r"launch-best\.sh: the head has no promise for its baseline; export it again"):
        prepare(VerifyAsk(script=script, baseline=True))


def test_what_is_no_script_is_refused(tmp_path: Path) -> None:
    """A unit or a missing file cannot be started as a script."""
    unit = tmp_path / "launch.service"
    with pytest.raises(InputError, match="cannot be read"):
        prepare(VerifyAsk(script=unit))
    unit.write_text("[Unit]\n")
    with pytest.raises(InputError, match="is no shell script"):
        prepare(VerifyAsk(script=unit))


def test_a_study_that_is_not_beside_the_script_must_be_given(tmp_path: Path) -> None:
    """The message says how."""
    script, _ = exported(tmp_path)
    elsewhere = tmp_path / "a" / "b" / "serve.sh"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text(script.read_text())
    with pytest.raises(InputError, match="autotune verify SCRIPT STUDY"):
        prepare(VerifyAsk(script=elsewhere))
    assert prepare(VerifyAsk(script=elsewhere, study=tmp_path / "study.toml")).plan.argv == ("bash", str(elsewhere))


def test_a_promise_for_another_load_is_not_compared(tmp_path: Path) -> None:
    """The study asks for something else by now."""
    script, _ = exported(tmp_path)
    study = tmp_path / "study.toml"
    study.write_text(study.read_text().replace("output_tokens = 8", "output_tokens = 16"))
    with pytest.raises(InputError, match=r"before study\.toml was changed \(workload\.output_tokens: 8 -> 16\)"):
        prepare(VerifyAsk(script=script))
    (tmp_path / "elsewhere").mkdir()
    unmeasured = study.rename(tmp_path / "elsewhere" / "study.toml")
    with pytest.raises(InputError, match="its promise is for another load"):
        prepare(VerifyAsk(script=script, study=unmeasured))


@pytest.mark.parametrize(
    ("old", "new", "told", "refused"),
    [
        ("output_tokens = 8", "output_tokens = 4000", 4000, "workload.output_tokens: 8 -> 4000"),
        ("[budget]", '[objective]\nmetric = "e2e_p99_s"\n[budget]', 8, "objective.metric"),
        ("[model]", '[model]\nserved_name = "other"', 8, "model.served_name"),
        ('version = "0.5.14"', 'version = "0.5.15"', 8, ""),
        ('"--sim-noise", "0"', '"--sim-noise", "0.1"', 8, ""),
    ],
)
def test_a_script_whose_head_tells_the_changed_file_is_not_compared(
    tmp_path: Path, old: str, new: str, told: int, refused: str
) -> None:
    """The records tell what was measured; an upgrade or another command line is what a script is verified for."""
    script, _ = exported(tmp_path)
    study = tmp_path / "study.toml"
    text = study.read_text()
    assert old in text
    study.write_text(text.replace(old, new))
    script.write_text(script.read_text().replace(" 8 out", f" {told} out"))
    if not refused:
        assert prepare(VerifyAsk(script=script)).promise.value > 0
        return
    with pytest.raises(InputError, match=f"before study.toml was changed .*{re.escape(refused)}"):
        prepare(VerifyAsk(script=script))


def test_a_secret_that_the_script_wants_must_be_there(tmp_path: Path) -> None:
    """Told before a start, by its name."""
    script, _ = exported(tmp_path)
    script.write_text(script.read_text().replace("tuned() {", 'tuned() {\n    : "${SOME_KEY:?set it}"'))
    with pytest.raises(InputError, match="SOME_KEY is not set"):
        prepare(VerifyAsk(script=script))


def test_a_promise_that_holds(tmp_path: Path) -> None:
    """Exit code 0, the records kept, and nothing left running."""
    script, _ = exported(tmp_path, base=2.0, best=3.0)
    done = autotune("verify", str(script), tmp_path / "study.toml", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["holds"] is True
    assert "better than promised" in found["sentence"]
    assert list((tmp_path / "short" / "verify" / "trials").glob("*/result.json"))
    assert records(tmp_path / "study.toml").numbers() == [0, 1], "the study's own trials stay as they are"
    assert left(tmp_path / "study.toml") == []


def test_a_promise_that_does_not_hold(tmp_path: Path) -> None:
    """Exit code 5 and by how much, for the baseline of a script too."""
    script, _ = exported(tmp_path, base=1e8, best=3e8)
    done = autotune("verify", str(script), tmp_path / "study.toml", "--baseline")
    assert done.returncode == 5, done.stderr
    assert "does not hold" in done.stdout
    assert "below the promised" in done.stdout


def test_a_server_that_does_not_start_does_not_hold(tmp_path: Path) -> None:
    """The reason is in the answer."""
    script, _ = exported(tmp_path, flags=("--sim-fault", "exit_start=1"))
    done = autotune("verify", str(script), tmp_path / "study.toml")
    assert done.returncode == 5, done.stderr
    assert "the server did not serve" in done.stdout


def test_an_interrupt_stops_the_whole_session(tmp_path: Path) -> None:
    """Ctrl-C while the server starts: exit code 130, no process left."""
    script, _ = exported(tmp_path, flags=("--sim-fault", "slow_start=60"))
    process = begin("verify", str(script), tmp_path / "study.toml")
    wait_for(lambda: list((tmp_path / "short" / "verify" / "trials").glob("*/server.json")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "not verified" in out
    assert left(tmp_path / "study.toml") == []
