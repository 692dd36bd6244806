"""What a confirmation compares and says: values, their folder, and the configuration to use. Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.study.folder import StudyFolder
from autotune.study.record import read_record
from autotune.values import Config, Infeasible, Interrupted, TrialResult, Value
from autotune.verdict.confirm import Judgement, Verdict
from autotune.verdict.fit import Start
from autotune.verdict.limits import LimitCheck
from autotune.verdict.schedule import BASELINE, Schedule, Slot

CLAIMED_GAIN = 0.10
"""``needed_starts`` is for a difference of this size."""


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
    difference of ``CLAIMED_GAIN`` at the noise that was seen. ``dropped`` says of an arm why it is out of the question;
    ``unfit`` are those among them that could not be served or do not hold the objective's ``limits`` with confidence.
    """

    plan: ConfirmationPlan
    starts: tuple[Start, ...]
    dropped: dict[str, str] = {}
    judgement: Judgement | None = None
    sentence: str = ""
    chosen: int = BASELINE
    needed_starts: int | None = None
    unfit: tuple[int, ...] = ()
    limits: dict[str, tuple[LimitCheck, ...]] = {}

    @property
    def headline(self) -> Verdict | None:
        """The winner's verdict, else that of the first finalist that can be used; None where none can."""
        if self.judgement is None:
            return None
        usable = [v for v in self.judgement.verdicts if v.arm not in self.unfit]
        return next((v for v in usable if v.arm == self.chosen), next(iter(usable), None))


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
    """Slots with their results, in order, and the first slot that has none. Arms that failed once are skipped.

    Each arm's results fill its slots in the order of their numbers, whatever other arms did meanwhile.
    """
    counted = [r for r in sorted(results, key=lambda r: r.number) if not isinstance(r.outcome, Interrupted)]
    waiting = [iter([r for r in counted if r.config == arm.config]) for arm in plan.arms]
    done: list[tuple[Slot, TrialResult]] = []
    failed: set[int] = set()
    for slot in plan.schedule.slots:
        if slot.arm in failed:
            continue
        result = next(waiting[slot.arm], None)
        if result is None:
            return done, slot
        done.append((slot, result))
        if isinstance(result.outcome, Infeasible) and slot.arm != BASELINE:
            failed.add(slot.arm)
    return done, None
