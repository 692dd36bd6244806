"""What the gates remarked and what failed, each said once with the trials that it is true of. Pure."""

from __future__ import annotations

from autotune.report.facts import Facts, state
from autotune.values import Finding, Infeasible, Measured, Refused, TrialResult, Value

EVIDENCE_CHARS = 300


class Remark(Value, frozen=True, kw_only=True):
    """``about`` is a gate or a kind of failure. ``text`` and ``evidence`` are those of its first trial."""

    about: str
    fatal: bool
    trials: tuple[str, ...]
    text: str
    evidence: str = ""


def spans(trials: tuple[str, ...]) -> str:
    """``0, 1, 2, 5, confirm 1`` as ``0-2, 5, confirm 1``; the trials are in order."""
    runs: list[list[tuple[str, int]]] = []
    for name in trials:
        kind, _, number = name.rpartition(" ")
        here = (kind, int(number))
        if runs and runs[-1][-1] == (kind, here[1] - 1):
            runs[-1].append(here)
        else:
            runs.append([here])
    return ", ".join(_span(run) for run in runs)


def _span(run: list[tuple[str, int]]) -> str:
    kind, first = run[0]
    last = f"-{run[-1][1]}" if len(run) > 1 else ""
    return f"{kind} {first}{last}".strip()


def remarks(facts: Facts) -> list[Remark]:
    """Failures and refusals first, then notes; those of the confirmation's starts are among them."""
    found: dict[tuple[bool, str], Remark] = {}
    confirming = facts.confirmed.trials if facts.confirmed else ()
    named = [*((str(r.number), r) for r in facts.results), *((f"confirm {r.number}", r) for r in confirming)]
    for name, result in named:
        for new in _of(name, result):
            known = found.get((new.fatal, new.about))
            found[new.fatal, new.about] = _joined(known, new) if known else new
    return sorted(found.values(), key=lambda r: (not r.fatal, -len(r.trials)))


def _joined(known: Remark, new: Remark) -> Remark:
    trials = tuple(dict.fromkeys([*known.trials, *new.trials]))
    return Remark(about=known.about, fatal=known.fatal, trials=trials, text=known.text, evidence=known.evidence)


def _of(name: str, result: TrialResult) -> list[Remark]:
    match result.outcome:
        case Measured(measurement=seen):
            return [_finding(name, one) for one in seen.findings]
        case Refused(findings=findings):
            return [_finding(name, one) for one in findings]
        case Infeasible(diagnosis=found):
            evidence = next((line.strip() for line in found.evidence if line.strip()), "")[:EVIDENCE_CHARS]
            text = f"{f'at {found.stage}: ' if found.stage else ''}{found.advice}"
            return [Remark(about=state(result), fatal=True, trials=(name,), text=text, evidence=evidence)]
        case _:
            return []


def _finding(name: str, seen: Finding) -> Remark:
    return Remark(about=seen.gate, fatal=seen.fatal, trials=(name,), text=seen.message)
