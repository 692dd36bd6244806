"""What a tuner left that was ended from outside: servers to end, trials to settle, configurations to leave alone."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.events import Listener, Note
from autotune.rig import now_text
from autotune.server.process import ServerIdentity
from autotune.server.proctable import boot_id
from autotune.study.record import Begun, Records, read_record
from autotune.values import Config, Diagnosis, Infeasible, Interrupted, Outcome, TrialResult

CUT_OFF = "the tuner was ended before this trial was settled"
RESTARTED = "the machine was restarted while this trial ran"
RESTARTS = 2
"""So many restarts of the machine under one configuration are taken for its doing."""


def left_servers(records: Records, say: Listener) -> list[ServerIdentity]:
    """Servers of unsettled trials whose tuner is gone: in a copy of a study's folder, the original's may still run."""
    files = {begun.number: records.trial(begun.number).identity for begun in records.interrupted()}
    found = {number: seen for number, path in files.items() if (seen := read_record(path, ServerIdentity))}
    spared = {number: seen for number, seen in found.items() if seen.has_other_tuner()}
    for number, seen in spared.items():
        text = (
            f"the server of trial {number} (pid {seen.pid}) is left alone: its tuner (pid {seen.tuner_pid}) still runs"
        )
        say(Note(text=f"{text}; this folder seems to be a copy", level="warning"))
    return [seen for number, seen in found.items() if number not in spared]


def settle_cut_off(records: Records, say: Listener) -> None:
    """Settle every trial that began and has no result; end their servers first.

    One that was cut off after its own load keeps what it had measured. Any other runs again, unless the machine went
    down under the same parameters before: then it is infeasible.
    """
    for kept in records.settle_kept():
        say(Note(text=f"trial {kept.number} was cut off earlier, after its own load: what it had measured is kept"))
    for begun in records.interrupted():
        result = records.settle(verdict(records, begun))
        again = isinstance(result.outcome, Interrupted)
        what = "runs again" if again else "is given up: the machine went down under it twice"
        say(Note(text=f"trial {begun.number} was cut off earlier and {what}"))


def verdict(records: Records, begun: Begun) -> TrialResult:
    """What becomes of a trial that was cut off: what it had measured, if that is on disk."""
    kept = records.kept(begun.number)
    if kept is not None:
        return kept
    return begun.unmeasured(_verdict(begun, records.results(), _restarted(records, begun.number)), now_text())


def _verdict(begun: Begun, results: Sequence[TrialResult], restarted: bool) -> Outcome:
    if not restarted:
        return Interrupted(reason=CUT_OFF)
    if begun.config.params and restarts_under(begun.config, results) + 1 >= RESTARTS:
        evidence = (f"{RESTARTED}, {RESTARTS} times",)
        advice = "look at the kernel log of those moments; its parameters are left alone"
        return Infeasible(diagnosis=Diagnosis(kind="crash_other", action="prune", evidence=evidence, advice=advice))
    return Interrupted(reason=RESTARTED)


def restarts_under(config: Config, results: Sequence[TrialResult]) -> int:
    """How often the machine was restarted while these parameters were tried."""
    same = (r.outcome for r in results if r.config.key() == config.key())
    return sum(isinstance(outcome, Interrupted) and outcome.reason == RESTARTED for outcome in same)


def _restarted(records: Records, number: int) -> bool:
    """Whether the server of this trial ran in an earlier boot of the machine."""
    identity = read_record(records.trial(number).identity, ServerIdentity)
    return identity is not None and bool(identity.boot_id) and identity.boot_id != boot_id()
