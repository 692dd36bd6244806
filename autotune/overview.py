"""How a study stands, as one value for the terminal and for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.brief import Brief
from autotune.budget import Standing, eta_s, repeats_ahead
from autotune.choosing import Judge
from autotune.confirmation import latest_folder, read_confirmation
from autotune.drifting import steadied
from autotune.errors import InputError
from autotune.fleet.board import claims_of
from autotune.fleet.claims import BoardLost, Claim
from autotune.sameness import changed_since
from autotune.spending import where_time_went
from autotune.standing import baseline_of, score_of, settled, state_of
from autotune.study.lock import Holder, holder
from autotune.study.record import Begun, Records
from autotune.study.rules import parse_duration
from autotune.values import Config, LaunchPlan, Measured, TrialResult, Value
from autotune.verdict.objective import gain


class TrialLine(Value, frozen=True, kw_only=True):
    """One trial in short. ``state`` is measured, refused, interrupted, running, cut off, or the kind of failure."""

    number: int
    state: str
    params: Config
    score: float | None = None
    stderr: float | None = None
    total_s: float = 0.0
    repeat_of: int | None = None


class Overview(Value, frozen=True, kw_only=True):
    """``gain`` is the score of the configuration to believe in over the baseline's, as searched: not confirmed.

    ``claims`` are the trials under way on all hosts of a shared study, ``claims_trouble`` says why they are not known.
    ``best`` and ``baseline`` are what the choice was made by: where the machine drifted, as ratios to the baseline of
    the time. ``repeats`` are the baseline's further starts, which ``settled`` leaves out. ``time_s`` is where the time
    went, in seconds by part of a night. ``changed`` says in what the study file differs from what was measured.
    """

    study: str
    folder: str
    metric: str
    settled: int
    trials: int
    budget_s: float
    spent_s: float
    eta_s: float | None
    running: Holder | None
    baseline: float | None
    best: float | None
    best_number: int | None
    gain: float | None
    confirmed: str
    plan: LaunchPlan | None
    lines: tuple[TrialLine, ...]
    repeats: int = 0
    time_s: dict[str, float] = {}
    claims: tuple[Claim, ...] = ()
    claims_trouble: str = ""
    changed: str = ""


def overview(brief: Brief) -> Overview:
    """Read the study's folder; takes no lock. Raises InputError for a damaged record."""
    records = Records(brief.folder)
    results = records.results()
    counted = settled(results)
    standing = Standing.of(counted)
    confirmation = read_confirmation(brief.folder)
    best, base = Judge.of(brief).chosen(results, confirmation), baseline_of(results)
    ranked = {r.number: score_of(r) for r in steadied(results).results}
    best_score, base_score = (ranked[r.number] if r else None for r in (best, base))
    metric = brief.study.objective.metric
    budget, now = brief.study.budget, holder(brief.folder.lock)
    under_way, trouble = _claims(brief)
    return Overview(
        study=brief.study.name,
        folder=str(brief.folder.root),
        metric=metric,
        settled=standing.settled,
        repeats=len(counted) - standing.settled,
        trials=budget.trials,
        budget_s=parse_duration(budget.wall_clock),
        spent_s=standing.spent_s,
        eta_s=eta_s(standing, budget.trials, repeats_ahead(standing, budget.trials, budget.baseline_every)),
        running=now,
        baseline=base_score,
        best=best_score,
        best_number=best.number if best else None,
        gain=gain(best_score, base_score, metric) if best_score and base_score else None,
        confirmed=confirmation.sentence if confirmation else "",
        plan=records.plan(best.number) if best else None,
        time_s=where_time_went(results, _confirming(brief)),
        claims=under_way,
        claims_trouble=trouble,
        changed=changed_since(brief),
        lines=(
            *(
                TrialLine(
                    number=r.number,
                    state=state_of(r.outcome),
                    params=r.config,
                    score=score_of(r),
                    stderr=r.outcome.score.stderr if isinstance(r.outcome, Measured) else None,
                    total_s=r.timings.total_s,
                    repeat_of=r.repeat_of,
                )
                for r in results
            ),
            *(_open_line(begun, running=bool(now) or _claimed(begun, under_way)) for begun in records.interrupted()),
        ),
    )


def _open_line(begun: Begun, *, running: bool) -> TrialLine:
    """A trial without a result: whoever holds the lock, or a lease, runs it; without one its tuner is gone."""
    state = "running" if running else "cut off"
    return TrialLine(number=begun.number, state=state, params=begun.config, repeat_of=begun.repeat_of)


def _claimed(begun: Begun, claims: Sequence[Claim]) -> bool:
    return any(claim.number == begun.number and claim.left_s > 0 for claim in claims)


def _claims(brief: Brief) -> tuple[tuple[Claim, ...], str]:
    """Who runs what, or why that is not known."""
    try:
        return claims_of(brief.study.storage, brief.study.name), ""
    except (BoardLost, InputError) as error:
        return (), str(error)


def _confirming(brief: Brief) -> list[TrialResult]:
    """The starts of the confirmation that was begun last."""
    folder = latest_folder(brief.folder)
    return Records(folder).results() if folder else []
