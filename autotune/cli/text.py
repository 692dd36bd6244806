"""Values as a terminal shows them. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune.confirmation import CLAIMED_GAIN, Confirmation
from autotune.doctor import Examination
from autotune.events import NightEnded, count
from autotune.fleet.claims import Claim
from autotune.overview import Overview, TrialLine
from autotune.repairing import Repaired
from autotune.values import Config, Infeasible, Interrupted, Measured, Outcome, Refused


def span(seconds: float) -> str:
    """Seconds as 42s, 3m12s or 2h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def params_text(config: Config) -> str:
    """The parameters of a configuration on one line."""
    return " ".join(f"{name}={value}" for name, value in config.params.items()) or "server defaults"


def outcome_text(outcome: Outcome) -> str:
    """What became of a trial, in a few words."""
    match outcome:
        case Measured(score=score):
            return f"{score.value:,.1f} ± {score.stderr:,.1f}"
        case Infeasible(diagnosis=found):
            return f"pruned: {found.kind}" + (f" at {found.stage}" if found.stage else "")
        case Refused(findings=findings):
            return f"refused: {findings[0].gate}" if findings else "refused"
        case Interrupted():
            return "interrupted"


def status_text(seen: Overview) -> str:
    """The state of a study, a line per trial."""
    beside = f" beside {count(seen.repeats, 'repeat')} of the baseline" if seen.repeats else ""
    head = [f"study {seen.study}: {seen.settled} of {seen.trials} trials settled{beside}, {span(seen.spent_s)} spent"]
    if seen.running:
        head.append(f"running: process {seen.running.pid} on {seen.running.host} since {seen.running.started_at}")
    elif seen.eta_s:
        head.append(f"not running; about {span(seen.eta_s)} to go")
    if seen.changed:
        head.append(seen.changed)
    head += [claim_text(claim) for claim in seen.claims]
    if seen.claims_trouble:
        head.append(f"who runs what is not known: {seen.claims_trouble}")
    if seen.baseline is not None:
        head.append(f"baseline: {seen.baseline:,.1f} {seen.metric}")
    if seen.best is not None:
        head.append(f"best:     {seen.best:,.1f} (trial {seen.best_number}){_gain(seen)}")
        head.append(f"confirmed on fresh starts: {seen.confirmed or _unconfirmed(seen)}")
    if told := [f"{name} {span(seconds)}" for name, seconds in seen.time_s.items() if seconds > 0]:
        head.append(f"where the time went: {', '.join(told)}")
    return "\n".join([*head, "", *(_trial_line(line) for line in seen.lines)]).rstrip()


def claim_text(claim: Claim) -> str:
    """A trial of a shared study that is under way."""
    what = "the confirmation" if claim.role == "confirm" else f"trial {claim.number} ({claim.role})"
    params = params_text(claim.config) if claim.config.params else ""
    lease = f"lease for {span(claim.left_s)}" if claim.left_s > 0 else f"lease over since {span(-claim.left_s)}"
    return f"worker {claim.worker}: {what} {params}".rstrip() + f", since {claim.began_at}, {lease}"


def _gain(seen: Overview) -> str:
    return "" if seen.gain is None else f", {100 * seen.gain:+.1f} % over the baseline as searched"


def _unconfirmed(seen: Overview, study: Path | None = None) -> str:
    """Why nothing is confirmed; with ``study``, the path of its file, the command that would do it."""
    if _of_best(seen).params.params:
        return "not yet" if study is None else f"not yet; run `autotune confirm {shlex.quote(str(study))}`"
    return "nothing to confirm, the server's defaults are the best that was measured"


def _of_best(seen: Overview) -> TrialLine:
    return next(line for line in seen.lines if line.number == seen.best_number)


def _trial_line(line: TrialLine) -> str:
    took = span(line.total_s) if line.total_s else ""
    value = line.state if line.score is None else f"{line.score:,.1f} ± {line.stderr or 0.0:,.1f}"
    return f"{line.number:>5}  {value:<24} {took:>8}  {params_text(line.params)}"


def ended_text(ended: NightEnded, seen: Overview, study: Path) -> str:
    """The last words of a night; ``study`` is its file."""
    lines = [f"night ended: {ended.reason}"]
    if seen.best is not None and seen.best_number is not None:
        best = _of_best(seen)
        lines.append(f"best configuration: {params_text(best.params)} (trial {best.number})")
        lines.append(f"  {seen.metric}: {seen.best:,.1f} against {seen.baseline or 0.0:,.1f} by default{_gain(seen)}")
        lines.append(f"  confirmed on fresh starts: {seen.confirmed or _unconfirmed(seen, study)}")
    if ended.script:
        lines.append(f"launch script: {ended.script}")
    return "\n".join(lines)


def doctor_text(found: Examination) -> str:
    """What the doctor saw, a line each, problems marked."""
    return "\n".join(f"{'ok  ' if check.ok else 'FIX '} {check.name}: {check.text}" for check in found.checks)


def repaired_text(done: Repaired) -> str:
    """What a repair did."""
    lines = [f"set aside: {name}" for name in done.set_aside] or ["nothing was damaged"]
    lines += [f"note: {note}" for note in done.notes]
    if done.interrupted:
        have = "has no sound result and runs" if done.interrupted == 1 else "have no sound result and run"
        lines.append(f"{count(done.interrupted, 'trial')} {have} again")
    lines.append(f"study {done.study}: the database holds the {done.settled} settled trials of the records")
    return "\n".join(lines)


def confirmation_text(found: Confirmation) -> str:
    """The starts of each side and the verdict."""
    lines = []
    for index, arm in enumerate(found.plan.arms):
        values = ", ".join(f"{start.value:,.0f}" for start in found.starts if start.arm == index)
        why = f"  dropped: {found.dropped[str(index)]}" if str(index) in found.dropped else ""
        lines.append(f"{'baseline' if index == 0 else f'trial {arm.trial}'}: {params_text(arm.config)}")
        lines.append(f"  {found.plan.metric}: {values or 'no measured start'}{why}")
    lines.append(f"verdict: {found.sentence}")
    if found.headline and found.headline.kind == "no difference" and found.needed_starts:
        share = f"{100 * CLAIMED_GAIN:.0f} %"
        lines.append(
            f"  {found.needed_starts} starts a side would find a gain of {share} at this noise nine times in ten"
        )
    return "\n".join(lines)
