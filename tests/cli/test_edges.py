"""What the system refuses: one line with the path and the remedy, exit code 2, no traceback."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from autotune.study import refusals
from tests.nights import Night, put, records, score

from .conftest import Run

LONG = "n" * 300


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a baseline and a better trial."""
    path = Night().write(tmp_path)
    put(path, 0, {}, score(1000.0))
    put(path, 1, {"max_running_requests": 128}, score(3000.0))
    return path


@pytest.mark.parametrize("method", ["exists", "iterdir", "read_bytes"])
@pytest.mark.parametrize(
    "command", [("status",), ("status", "--json"), ("report",), ("plan",), ("export",), ("watch", "--once")]
)
def test_another_users_study(
    study: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], method: str
) -> None:
    """Its folder may not be looked into, wherever that is noticed first."""
    folder, usual = records(study).folder.root, getattr(Path, method)

    def refused(path: Path) -> object:
        if path.is_relative_to(folder) and path != folder:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path)

    monkeypatch.setattr(Path, method, refused)
    code, out, err = run(command[0], study, *command[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(folder) in err
    assert "cannot be used (Permission denied); ask its owner, or check its permissions" in err


def test_a_lock_that_is_a_loop(study: Path, run: Run) -> None:
    """``status`` asks who holds it."""
    lock = records(study).folder.lock
    lock.symlink_to(lock)
    code, out, err = run("status", study)
    assert (code, out) == (2, "")
    assert err == f"autotune: {lock}: cannot be used (Too many levels of symbolic links); " + (
        "it is a loop of symbolic links: remove it\n"
    )


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_a_record_that_is_no_file(study: Path, run: Run, kind: str) -> None:
    """The remedy is not a permission, and ``repair`` sets it aside."""
    path = records(study).folder.bounds
    path.mkdir() if kind == "folder" else path.symlink_to(path)
    code, _, err = run("status", study)
    assert code == 2
    assert "permissions" not in err
    assert ("`autotune repair` sets it aside" if kind == "folder" else "loop of symbolic links: remove it") in err
    assert "set aside: bounds.json.damaged" in run("repair", study).out
    assert run("status", study).code == 0


@pytest.mark.parametrize("command", [("status",), ("report",), ("report", "--json"), ("export",), ("plan",)])
def test_output_to_a_full_disk(
    study: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """As with ``> /dev/full``."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = run(command[0], study, *command[1:])
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space"):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    assert code == 2
    assert err == ("autotune: standard output: cannot be written (No space left on device); print to another place\n")


@pytest.mark.parametrize(
    "refusal",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "raw-0.npz.part"),
        IsADirectoryError(errno.EISDIR, "Is a directory", "raw-0.npz.part"),
    ],
    ids=lambda error: errno.errorcode[error.errno],
)
@pytest.mark.parametrize("command", ["tune", "confirm", "verify"])
def test_what_the_system_refuses_within_a_night_is_no_wrong_input(
    study: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, refusal: OSError
) -> None:
    """A supervisor takes exit code 2 for the last word; 3 comes with what was refused and a remedy."""

    def refused(*_: object) -> None:
        raise refusal

    for step in ("cli.app.run_night", "cli.app.run_confirmation", "verifying._run"):
        monkeypatch.setattr(f"autotune.{step}", refused)
    script = records(study).folder.launch_script
    assert command != "verify" or run("export", study).code == 0
    code, out, err = run(command, script if command == "verify" else study)
    assert (code, out) == (3, "")
    path = f"{refusal.filename}: " if refusal.filename else ""
    remedy = refusals.remedy(refusal.errno)
    assert err.endswith(f"autotune: host: {path}{refusal.strerror}; {remedy}, then start again\n")


def test_a_full_disk_is_not_taken_for_standard_output(study: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was printed that could not be: the error passes as it is."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("autotune.cli.app.overview", full)
    with pytest.raises(OSError, match="No space left"):
        run("status", study)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('[model]\nconfig = "', '[model]\npath = "{long}"\nconfig = "', "model.path"),
        ('[model]\nconfig = "', '[model]\nconfig = "{long}', "model.config"),
        ("[space]", '[space]\nfile = "{long}"', "space.file"),
        ('[model]\nconfig = "', '[model]\nconfig = "nix.json', "model.config"),
        ("[space]", '[space]\nfile = "/"', "space.file"),
        ('"--sim-noise", "0"', '"--sim-noise", "0", "--tp", "two"', "engine.command"),
        ('["max_running_requests', '["max_runing_requests', "space.parameters"),
    ],
)
def test_a_path_that_cannot_be_names_file_and_key(tmp_path: Path, run: Run, old: str, new: str, key: str) -> None:
    """The study file, the key, and not all of a very long name."""
    path = Night().write(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new.replace("{long}", "n" * 5000)))
    code, out, err = run("plan", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"autotune: study.toml: {key}: ")
    assert len(err) < 1000


def test_names_that_are_too_long(study: Path, run: Run, tmp_path: Path) -> None:
    """As options."""
    commands = (("tune", study, "--from", LONG), ("export", study, "-o", LONG), ("init", "--from", LONG))
    for command in (*commands, ("diagnose", LONG), ("status", tmp_path / LONG)):
        code, out, err = run(*command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "name too long" in err.lower() or "no such file" in err or "there is no file" in err
        assert len(err) < 1000


@pytest.mark.parametrize("command", [("init", "--from"), ("diagnose",)])
def test_a_device_is_no_file(run: Run, command: tuple[str, ...]) -> None:
    """It may never end."""
    code, out, err = run(*command, "/dev/zero")
    assert (code, out) == (2, "")
    assert "/dev/zero: is no file but a device or a socket; give " in err


def test_a_folder_whose_name_is_no_text(tmp_path: Path, run: Run) -> None:
    """Records could not name it; nothing is begun."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    folder.mkdir()
    path = Night().write(folder)
    for command in (("tune", path), ("status", path, "--json"), ("export", path)):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert (
            err == f"autotune: study.toml: the name of its folder {tmp_path}/n\ufffd is not UTF-8; rename the folder\n"
        )
    assert [p.name for p in folder.iterdir()] == ["study.toml"]
