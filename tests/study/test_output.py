"""Writing where a person said, and what is never written over."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from autotune.errors import InputError, NightStopped
from autotune.study.folder import StudyFolder
from autotune.study.output import check_output, write_output


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A study's folder beside ``study.toml``."""
    (tmp_path / "study.toml").write_text("name = 'short'")
    found = StudyFolder(tmp_path / "short")
    found.create()
    found.manifest.write_text("{}")
    return found


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    """The new text is where the link leads, also where nothing was."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.sh"
    link.symlink_to("there/go.sh")
    for text in (b"one", b"two"):
        write_output(link, text, 0o755)
        assert link.is_symlink()
        assert (tmp_path / "there" / "go.sh").read_bytes() == text


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    """Who reads it gets the bytes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"x" * 200_000, 0o755)
    reader.join()
    assert got == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_terminal_is_written_into() -> None:
    """A device keeps its kind, its mode and its name."""
    there, here = os.openpty()
    path = Path(os.ttyname(here))
    before = path.stat()
    write_output(path, b"words", 0o755)
    assert os.read(there, 99) == b"words"
    after = path.stat()
    assert (after.st_mode, after.st_rdev, after.st_ino) == (before.st_mode, before.st_rdev, before.st_ino)
    os.close(here)
    os.close(there)


@pytest.mark.parametrize("flag", [os.O_APPEND, 0])
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_open_is_written_behind(tmp_path: Path, flag: int, linked: bool) -> None:
    """As a shell's ``>> FILE`` or ``> FILE`` with ``/dev/stdout`` expects: what the file has before and after stays."""
    file = tmp_path / "night.log"
    file.write_text("earlier\n")
    opened = os.open(file, os.O_WRONLY | flag)
    os.lseek(opened, 0, os.SEEK_END)
    path = Path(f"/dev/fd/{opened}")
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    write_output(path, b"words\n", 0o755)
    os.write(opened, b"later\n")
    os.close(opened)
    assert file.read_text() == "earlier\nwords\nlater\n"
    assert not file.stat().st_mode & stat.S_IXUSR


def test_a_descriptor_of_another_process_is_appended_to(tmp_path: Path) -> None:
    """What it has written stays."""
    file = tmp_path / "night.log"
    with (
        file.open("w") as opened,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=opened) as other,
    ):
        file.write_text("earlier\n")
        write_output(Path(f"/proc/{other.pid}/fd/1"), b"words\n", 0o755)
    assert file.read_text() == "earlier\nwords\n"


def test_a_descriptor_that_is_not_open_is_told() -> None:
    """As an error of the write."""
    with pytest.raises(NightStopped, match="/dev/fd/999: cannot be written"):
        write_output(Path("/dev/fd/999"), b"words", 0o755)


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    """The remedy is another name."""
    with pytest.raises(NightStopped, match="name is too long"):
        write_output(tmp_path / ("n" * 300), b"", 0o644)


@pytest.mark.parametrize(
    "name", ["short/manifest.json", "short/lock", "short/trials/0009/result.json", "short/study.db", "short/a.json"]
)
@pytest.mark.parametrize("linked", [False, True])
def test_records_are_not_written_over(tmp_path: Path, folder: StudyFolder, name: str, linked: bool) -> None:
    """Neither those that are there, nor a name that would be read as one; a link changes nothing."""
    path = tmp_path / name
    if linked:
        path = tmp_path / "link"
        path.symlink_to(name)
    with pytest.raises(InputError, match="the study's own records"):
        check_output(path, tmp_path / "study.toml", folder)


@pytest.mark.parametrize("link", [None, "symbolic", "hard"])
def test_the_study_file_is_not_written_over(tmp_path: Path, folder: StudyFolder, link: str | None) -> None:
    """By whatever name."""
    study = path = tmp_path / "study.toml"
    if link is not None:
        path = tmp_path / "other"
        path.symlink_to(study) if link == "symbolic" else path.hardlink_to(study)
    with pytest.raises(InputError, match="is the study file"):
        check_output(path, study, folder)


@pytest.mark.parametrize(
    "name", ["short/launch-best.sh", "short/launch-best.json", "short/mine.sh", "short/report/index.html", "out.json"]
)
def test_what_is_made_from_records_can_be_made_again(tmp_path: Path, folder: StudyFolder, name: str) -> None:
    """Exports and reports in the study's folder, and anything elsewhere."""
    (tmp_path / "short" / "report").mkdir()
    (tmp_path / name).write_text("old")
    check_output(tmp_path / name, tmp_path / "study.toml", folder)


def test_a_loop_of_links_is_told(tmp_path: Path, folder: StudyFolder) -> None:
    """Where nothing can be, nothing is written."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="loop of symbolic links"):
        check_output(loop, tmp_path / "study.toml", folder)
