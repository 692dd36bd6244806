"""What a script means by its relative paths and bare names, looked up on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from autotune.intake.bench import Load
from autotune.intake.draft import Draft
from autotune.intake.launch import Launch
from autotune.intake.remark import Remark
from autotune.wrappers import LOCAL

_PYTHONS = frozenset({"python", "python3"})


def with_model(made: Draft, launch: Launch | None) -> Draft:
    """The model's folder in full where the script means one: a name that the engine downloads looks alike."""
    told = Path(made.model_path)
    if launch is None or not made.model_path or told.is_absolute() or launch.wrapper.kind not in (LOCAL, "srun"):
        return made
    meant = Path(launch.folder) / told
    if not meant.exists() and not made.model_path.startswith("."):
        return made
    return msgspec.structs.replace(made, model_path=os.path.abspath(meant))


def with_folder(load: Load, beside: Path) -> Load:
    """A data set in full: where the load generator ran, where we are, or beside its script."""
    told = Path(str(load.workload.get("dataset") or ""))
    if told == Path() or told.is_absolute():
        return load
    places = [Path(load.folder)] if load.folder else [Path(), beside]
    place = next((place for place in places if (place / told).is_file()), places[0])
    return msgspec.structs.replace(load, workload={**load.workload, "dataset": str((place / told).absolute())})


def about_python(launch: Launch, environ: Mapping[str, str]) -> tuple[Remark, ...]:
    """Which interpreter a bare ``python3`` would be: in a night that of the tuner's own environment may come first."""
    bare = next((word for word in launch.command if word in _PYTHONS), "")
    if not bare or "PATH" in launch.env or launch.wrapper.kind != LOCAL:
        return ()
    found = shutil.which(bare, path=environ.get("PATH")) or "none"
    text = f"{bare} is the first one in a night's PATH, here {found}; write its path if the server has one of its own"
    where, _, line = launch.place.rpartition(":")
    return (Remark(where=where, line=int(line), text=text),)
