"""Setting damaged records aside, so that what is sound can go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.errors import InputError
from autotune.study.manifest import Manifest
from autotune.study.record import Begun, Records, quarantine, read_record
from autotune.study.transfer import Transfer, Trust
from autotune.values import LaunchPlan, TrialResult


def set_aside_damaged_records(records: Records) -> list[Path]:
    """Rename every record that cannot be read; returns their new names. Nothing is deleted.

    A trial whose result is damaged counts as interrupted afterwards and is run again; one whose config
    is damaged never began. Rebuild the storage after this: it may know more than the records.
    """
    return [quarantine(path) for path, shape in list(_shapes(records)) if _is_damaged(path, shape)]


def _shapes(records: Records) -> Iterator[tuple[Path, Any]]:
    folder = records.folder
    yield folder.manifest, Manifest
    yield folder.bounds, Any
    yield folder.transfer, Transfer
    yield folder.trust, Trust
    for number in records.numbers():
        trial = records.trial(number)
        yield trial.config, Begun
        yield trial.plan, LaunchPlan
        yield trial.identity, Any
        yield trial.so_far, TrialResult
        yield trial.result, TrialResult


def _is_damaged(path: Path, shape: Any) -> bool:
    try:
        read_record(path, shape)
    except InputError:
        return True
    return False
