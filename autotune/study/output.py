"""Writing where a person said: through links, into devices and pipes as they are, never over a study's own files."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from autotune.errors import InputError
from autotune.study.atomic import write_atomic, writing
from autotune.study.folder import StudyFolder

_MADE = frozenset({".sh", ".service", ".yaml", ".yml", ".args", ".txt", ".html", ".csv"})
"""Endings of what is made from a study's records, directly in its folder; no record has one of them."""
_DESCRIPTOR = re.compile(r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)")
_LINKS = 40
"""As many as Linux follows."""


def check_output(path: Path, study_file: Path, folder: StudyFolder) -> None:
    """Raises InputError where writing to ``path`` would replace the study file or a record of the study."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    target = _resolved(path)
    if target == _resolved(study_file) or (path.exists() and path.samefile(study_file)):
        raise InputError(f"{path}: is the study file and is not overwritten; give another name")
    if _is_record(target, StudyFolder(_resolved(folder.root))):
        raise InputError(f"{path}: is a place of the study's own records; give another name, or a place elsewhere")


def write_output(path: Path, data: bytes, mode: int) -> None:
    """Write ``data``: a file atomically, behind a link its target; a device, a pipe or what is open already
    (``/dev/stdout``) is written into and stays.

    Raises NightStopped.
    """
    with writing(path):
        kept = path.exists() and not path.is_file()
        opened = _descriptor(path)
    if opened is not None:
        _append(path, *opened, data)
    elif kept:
        _write_into(path, data)
    else:
        write_atomic(_resolved(path), data, mode)


def _write_into(path: Path, data: bytes) -> None:
    with writing(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb") as file:
        file.write(data)


def _append(path: Path, process: int, number: int, data: bytes) -> None:
    """Write behind what is there: it is of whoever opened it, as in ``autotune export -o /dev/stdout >> FILE``."""
    with writing(path):
        if process == os.getpid():
            opened = os.dup(number)  # shares the position, so that nothing before or after it is lost
        else:
            opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(opened, "wb") as file:
            file.write(data)


def _descriptor(path: Path) -> tuple[int, int] | None:
    """Process and number of the open descriptor that ``path`` stands for, as ``/dev/stdout`` and ``/dev/fd/3`` do."""
    for _ in range(_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if match := _DESCRIPTOR.fullmatch(str(path)):
            return int(match[1]), int(match[2])
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _is_record(target: Path, folder: StudyFolder) -> bool:
    """Whether ``target`` is in the study's folder and is nothing that a command makes from the records."""
    if not target.is_relative_to(folder.root) or target.is_relative_to(folder.report):
        return False
    made = target.suffix in _MADE or target.stem == folder.launch_script.stem
    return not (made and target.parent == folder.root)


def _resolved(path: Path) -> Path:
    """``path`` without links. Raises InputError for a loop of them."""
    with contextlib.suppress(OSError, RuntimeError):  # up to Python 3.12; later ones stop at a link of the loop
        if not (found := path.resolve()).is_symlink():
            return found
    raise InputError(f"{path}: is a loop of symbolic links; remove it, or give another name")
