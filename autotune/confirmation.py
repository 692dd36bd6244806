"""What a confirmation compares and says: values, their folder, and the configuration to use. Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.standing import baseline_of, best_of
from autotune.study.file import Objective
from autotune.study.folder import StudyFolder
from autotune.study.record import read_record
from autotune.values import Config, Infeasible, Interrupted, TrialResult, Value
from autotune.verdict.confirm import Judgement
from autotune.verdict.fit import Start
from autotune.verdict.schedule import BASELINE, Schedule, Slot


class Arm(Value, frozen=True, kw_only=True):
    """One side of the comparison: the search's trial it comes from, and its configuration."""

    trial: int
    config: Config


class ConfirmationPlan(Value, frozen=True, kw_only=True):
    """Which configurations are compared and in which order they start. ``arms[0]`` is the baseline."""

    arms: tuple[Arm, ...]
    schedule: Schedule
    metric: str


class Confirmation(Value, frozen=True, kw_only=True):
    """``confirmation.json``. ``sentence`` is the verdict in words; ``chosen`` the arm to use.

    ``judgement`` is None while too few starts are measured. ``needed_starts`` is how many a side would resolve a
    difference of ``CLAIMED_GAIN`` at the noise that was seen.
    """

    plan: ConfirmationPlan
    starts: tuple[Start, ...]
    dropped: dict[str, str] = {}
    judgement: Judgement | None = None
    sentence: str = ""
    chosen: int = BASELINE
    needed_starts: int | None = None


def latest_folder(folder: StudyFolder) -> StudyFolder | None:
    """The confirmation that was begun last."""
    number, found = 1, None
    while (path := folder.root / ("confirm" if number == 1 else f"confirm-{number}")).exists():
        found = StudyFolder(path)
        number += 1
    return found


def read_confirmation(folder: StudyFolder) -> Confirmation | None:
    """What the last confirmation says, None where there is none."""
    latest = latest_folder(folder)
    return read_record(latest.root / "confirmation.json", Confirmation) if latest else None


def walk(plan: ConfirmationPlan, results: Sequence[TrialResult]) -> tuple[list[tuple[Slot, TrialResult]], Slot | None]:
    """Slots with their results, in order, and the first slot that has none. Arms that failed once are skipped."""
    counted = iter([r for r in sorted(results, key=lambda r: r.number) if not isinstance(r.outcome, Interrupted)])
    done: list[tuple[Slot, TrialResult]] = []
    failed: set[int] = set()
    for slot in plan.schedule.slots:
        if slot.arm in failed:
            continue
        result = next(counted, None)
        if result is None:
            return done, slot
        done.append((slot, result))
        if isinstance(result.outcome, Infeasible) and slot.arm != BASELINE:
            failed.add(slot.arm)
    return done, None


def chosen_trial(
    results: Sequence[TrialResult], objective: Objective, confirmation: Confirmation | None
) -> TrialResult | None:
    """The search's trial to use: the confirmed winner; the baseline where a finalist proved worse; else the best.

    A finalist without a reliable difference stays the best guess, and what is exported says so.
    """
    if confirmation is None or confirmation.judgement is None:
        return best_of(results, objective)
    if confirmation.chosen != BASELINE:
        wanted = confirmation.plan.arms[confirmation.chosen].trial
        return next((r for r in results if r.number == wanted), None)
    if confirmation.judgement.headline.kind == "worse":
        return baseline_of(results)
    return best_of(results, objective)
