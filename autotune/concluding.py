"""What a confirmation's starts allow to claim: gains, limits that are held, and finalists that fall away. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from autotune.confirmation import CLAIMED_GAIN, Confirmation, ConfirmationPlan
from autotune.study.file import Objective
from autotune.values import Infeasible, Measured, Outcome, Refused, TrialResult
from autotune.verdict.confirm import Judgement, Rules, judge
from autotune.verdict.fit import Start
from autotune.verdict.limits import LimitCheck, check_limit
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import binding_limits, figure
from autotune.verdict.power import starts_needed
from autotune.verdict.schedule import BASELINE, Slot

FEWEST_STARTS = 2
"""Of each side, for a comparison."""

SERVERS_OWN = frozenset(
    {
        "failed_requests",
        "output_lengths",
        "prompt_lengths",
        "starved",
        "prefix_cache",
        "retractions",
        "token_counters",
        "score",
    }
)
"""Gates that close on what the server did, not on the machine around it. A configuration of which only the good starts
are measured would be judged by them alone."""

Done = Sequence[tuple[Slot, TrialResult]]


def conclude(plan: ConfirmationPlan, done: Done, objective: Objective, noise: NoiseModel) -> Confirmation:
    """Judge the starts. ``noise`` is the study's model, from starts outside the confirmation."""
    reasons = _unmeasured(plan, done)
    starts = [
        Start(arm=slot.arm, block=slot.block, value=r.outcome.score.value, stderr=r.outcome.score.stderr)
        for slot, r in done
        if isinstance(r.outcome, Measured) and str(slot.arm) not in reasons
    ]
    unserved = tuple(sorted(slot.arm for slot, r in done if _unserved(slot, r)))
    found = Confirmation(plan=plan, starts=tuple(starts), dropped=reasons, unfit=unserved)
    if not {s.arm for s in starts} - {BASELINE} or str(BASELINE) in reasons:
        why = "; ".join(f"{_name(plan, int(arm))}: {reason}" for arm, reason in reasons.items())
        return msgspec.structs.replace(found, sentence=f"nothing can be said: too few starts were measured ({why})")
    # Finalists that break a limit are judged all the same: the levels are for all that were compared.
    judgement = judge(starts, metric=plan.metric, noise=noise, rules=Rules(planned=plan.schedule.blocks))
    limits = _checked(done, sorted({s.arm for s in starts}), objective, noise)
    return _with_limits(found, judgement, limits)


def _unserved(slot: Slot, result: TrialResult) -> bool:
    return slot.arm != BASELINE and _fault(result.outcome) is not None


def _fault(outcome: Outcome) -> str | None:
    """What the server itself did wrong in a start, by kind or gate; None: nothing."""
    match outcome:
        case Infeasible(diagnosis=found):
            return found.kind
        case Refused(findings=findings):
            return next((f.gate for f in findings if f.fatal and f.gate in SERVERS_OWN), None)
        case _:
            return None


def _unmeasured(plan: ConfirmationPlan, done: Done) -> dict[str, str]:
    """Arms without two measured starts, or with one that could not be served at all, and why."""
    reasons: dict[str, str] = {}
    for index in range(len(plan.arms)):
        mine = [result.outcome for slot, result in done if slot.arm == index]
        bad = next(filter(None, map(_fault, mine)), None)
        measured = sum(isinstance(o, Measured) for o in mine)
        if bad and index != BASELINE:
            reasons[str(index)] = f"{bad} in the confirmation"
        elif measured < FEWEST_STARTS:
            reasons[str(index)] = f"{measured} measured starts"
    return reasons


def _checked(
    done: Done, arms: Sequence[int], objective: Objective, noise: NoiseModel
) -> dict[str, tuple[LimitCheck, ...]]:
    """Every limit of the objective, over the starts of each arm."""
    limits = binding_limits(objective)
    if not limits:
        return {}
    found = {}
    for arm in arms:
        mine = [r.outcome.measurement for slot, r in done if slot.arm == arm and isinstance(r.outcome, Measured)]
        checks = (check_limit([figure(m, name) for m in mine], name, limit, noise) for name, limit in limits.items())
        found[str(arm)] = tuple(checks)
    return found


def _with_limits(found: Confirmation, judgement: Judgement, limits: dict[str, tuple[LimitCheck, ...]]) -> Confirmation:
    """The winner is the best reliable gain among the finalists that hold every limit."""
    broken = {arm: "; ".join(str(c) for c in checks if not c.holds) for arm, checks in limits.items()}
    broken = {arm: text for arm, text in broken.items() if text and arm != str(BASELINE)}
    gains = [v for v in judgement.verdicts if v.kind == "gain" and str(v.arm) not in broken]
    winner = max(gains, key=lambda v: v.gain).arm if gains else BASELINE
    usable_first = sorted(judgement.verdicts, key=lambda v: str(v.arm) in broken)
    judgement = msgspec.structs.replace(judgement, winner=winner, verdicts=tuple(usable_first))
    found = msgspec.structs.replace(
        found,
        dropped={**found.dropped, **broken},
        unfit=tuple(sorted({*found.unfit, *map(int, broken)})),
        limits=limits,
        judgement=judgement,
        chosen=winner,
        needed_starts=starts_needed(CLAIMED_GAIN, noise=judgement.noise),
    )
    return msgspec.structs.replace(found, sentence=_sentence(found))


def _sentence(found: Confirmation) -> str:
    """The verdict on the finalist to use, then who fell away and how the limits stand."""
    parts = [str(headline)] if (headline := found.headline) else ["no finalist can be used"]
    if headline and (checks := found.limits.get(str(headline.arm))):
        parts.append(f"limits held: {', '.join(map(str, checks))}")
    parts += [f"{_name(found.plan, int(arm))} is dropped: {reason}" for arm, reason in found.dropped.items()]
    if base := [str(check) for check in found.limits.get(str(BASELINE), ()) if not check.holds]:
        parts.append(f"the baseline itself: {', '.join(base)}")
    return "; ".join(parts)


def _name(plan: ConfirmationPlan, arm: int) -> str:
    return "the baseline" if arm == BASELINE else f"the configuration of trial {plan.arms[arm].trial}"
