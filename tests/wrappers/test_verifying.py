"""Exported scripts that start a wrapper, held to their promise."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.brief import read_brief
from autotune.errors import InputError
from autotune.exporting import export_best
from autotune.server.ports import fresh_port
from autotune.verifying import VerifyAsk, prepare
from autotune.wrappers import SERVICE_ENV
from tests.nights import Night, autotune, begin, left, put, score, wait_for
from tests.wrappers.conftest import Doubles

pytestmark = pytest.mark.timeout(300)

LIMIT_S = 240.0
WRAPPERS = {
    "docker": 'kind = "docker"\nimage = "engine:1"\ngpus = ""',
    "podman": 'kind = "podman"\nimage = "engine:1"\nnetwork = "bridge"',
    "srun": 'kind = "srun"',
    "ssh": 'kind = "ssh"\ndestination = "gpu7"',
}
NAMED = [kind for kind in WRAPPERS if kind != "ssh"]
SERVICE = "autotune-short"


def exported(folder: Path, kind: str, flags: tuple[str, ...] = ()) -> Path:
    """The script of a study behind a wrapper, which promises little, at a free port."""
    study = Night(flags=flags).write(folder)
    text = study.read_text().replace("{python}", sys.executable)
    study.write_text(text.replace("[model]", f"[engine.wrapper]\n{WRAPPERS[kind]}\n[model]", 1))
    put(study, 0, {}, score(2.0))
    put(study, 1, {"max_running_requests": 128, "cuda_graph_max_bs": 128}, score(3.0))
    script = export_best(read_brief(study))
    assert script is not None
    script.write_text(script.read_text().replace("30000", str(fresh_port("127.0.0.1"))))
    return script


def names(doubles: Doubles) -> list[str]:
    """Those of all containers or jobs that were ever started."""
    return [str(kept.get("name") or kept["options"]["--name"][0]) for kept in doubles.kept()]  # type: ignore[index]


def begun(doubles: Doubles) -> list[Path]:
    """What runs, or ran, behind a wrapper: the file with its first process."""
    return list(doubles.state.glob("*/*/pid"))


@contextmanager
def service(kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """Something that runs under the service's name; its client."""
    sleep = ("sleep", "600")
    argv = (kind, "run", "--name", SERVICE, "--entrypoint", sleep[0], "engine:1", *sleep[1:])
    client = subprocess.Popen((kind, "--job-name", SERVICE, *sleep) if kind == "srun" else argv)
    try:
        yield client
    finally:
        client.terminate()
        client.wait(timeout=30)


@pytest.mark.parametrize("kind", NAMED)
def test_a_wrapped_script_is_measured_beside_its_service(kind: str, doubles: Doubles, tmp_path: Path) -> None:
    """The script runs as it stands under a name of its own, which is ended; what has the service's name lives on."""
    script = exported(tmp_path, kind)
    with service(kind) as running:
        wait_for(lambda: begun(doubles))
        done = autotune("verify", script, tmp_path / "study.toml", "--json", limit_s=LIMIT_S)
        assert running.poll() is None
        assert sum(not pid.with_name("code").exists() for pid in begun(doubles)) == 1
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["holds"] is True
    [verified] = [name for name in names(doubles) if name != SERVICE]
    assert verified.startswith(f"{SERVICE}-")
    wait_for(lambda: not doubles.alive())  # the service's own end
    assert left(tmp_path / "study.toml") == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMED)
def test_an_interrupt_ends_what_runs_behind_the_wrapper(kind: str, doubles: Doubles, tmp_path: Path) -> None:
    """Ctrl-C while the server starts."""
    script = exported(tmp_path, kind, ("--sim-fault", "slow_start=60"))
    process = begin("verify", script, tmp_path / "study.toml", "--baseline")
    wait_for(lambda: begun(doubles))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert doubles.alive() == []
    assert left(tmp_path / "study.toml") == []


@pytest.mark.slow
def test_a_verification_that_was_killed_is_cleaned_up_by_the_next(doubles: Doubles, tmp_path: Path) -> None:
    """kill -9: its container outlives it, and is found by its name."""
    script = exported(tmp_path, "docker", ("--sim-fault", "slow_start=60"))
    killed = begin("verify", script, tmp_path / "study.toml")
    wait_for(lambda: begun(doubles))
    killed.kill()
    killed.communicate()
    [container] = begun(doubles)
    assert not container.with_name("code").exists()
    script.write_text(script.read_text().replace("slow_start=60", "exit_start=1"))
    done = autotune("verify", script, tmp_path / "study.toml", limit_s=LIMIT_S)
    assert "that an earlier tuner had left" in done.stderr
    assert container.with_name("code").exists()
    assert doubles.alive() == []
    assert left(tmp_path / "study.toml") == []


def test_a_script_that_takes_no_name_is_refused(tmp_path: Path) -> None:
    """One of an earlier version, or edited: verify would end the service."""
    script = exported(tmp_path, "docker")
    script.write_text(script.read_text().replace(f"${{{SERVICE_ENV}:-{SERVICE}}}", SERVICE))
    with pytest.raises(InputError, match="its docker takes no name from AUTOTUNE_NAME"):
        prepare(VerifyAsk(script=script))


def test_a_script_behind_ssh_is_refused(tmp_path: Path) -> None:
    """Nothing at the other end has a name."""
    with pytest.raises(InputError, match="behind ssh without a name"):
        prepare(VerifyAsk(script=exported(tmp_path, "ssh")))
