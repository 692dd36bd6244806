"""What other hosts have settled, as records in the folder of this one."""

from __future__ import annotations

from pathlib import Path

from autotune.confirmation import Confirmation, ConfirmationPlan, latest_folder, read_confirmation
from autotune.errors import InputError
from autotune.fleet.claims import Confirmed, Told
from autotune.study.folder import StudyFolder, fresh_name
from autotune.study.record import Begun, Records, read_record, write_record
from autotune.values import TrialResult


def copy_trial(records: Records, told: Told) -> None:
    """Settle a trial here as it was told. Raises InputError where the folder has another one of its number."""
    result, trial = told.result, records.trial(told.result.number)
    known = records.result(result.number)
    if known is not None:
        if known != result:
            raise InputError(
                f"{trial.result}: is not trial {result.number} of the shared study; put the study file into a folder "
                "where no other study of this name has run, or give the study another name"
            )
        return
    if not trial.config.exists():
        records.begin_trial(
            Begun(
                number=result.number,
                config=result.config,
                started_at=result.started_at,
                repeat_of=result.repeat_of,
            )
        )
    if told.plan is not None and not trial.plan.exists():
        records.write_plan(result.number, told.plan)
    records.settle(result)


def keep_aside(records: Records, result: TrialResult) -> Path:
    """Keep a result that may not be told, for a person; returns where."""
    trial = records.trial(result.number)
    write_record(trial.fenced, result)
    trial.so_far.unlink(missing_ok=True)
    return trial.fenced


def copy_confirmation(folder: StudyFolder, found: Confirmed) -> None:
    """A confirmation of another host, as if it had been made here."""
    if found.plan is None or found.confirmation is None or read_confirmation(folder) == found.confirmation:
        return
    copy = StudyFolder(folder.root / fresh_name(folder.root, "confirm"))
    copy.create()
    write_record(copy.root / "plan.json", found.plan)
    for start in found.starts:
        Records(copy).settle(start)
    write_record(copy.root / "confirmation.json", found.confirmation)


def confirmed_here(folder: StudyFolder) -> Confirmed:
    """The confirmation that was made in this folder last, for others."""
    latest = latest_folder(folder)
    if latest is None:
        return Confirmed()
    return Confirmed(
        plan=read_record(latest.root / "plan.json", ConfirmationPlan),
        starts=tuple(Records(latest).results()),
        confirmation=read_record(latest.root / "confirmation.json", Confirmation),
    )
