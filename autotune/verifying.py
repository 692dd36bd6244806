"""``autotune verify``: start an exported script as it stands, measure it as a trial, hold it to its promise."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from autotune.brief import Brief, read_brief
from autotune.engines.base import Where
from autotune.errors import InputError
from autotune.events import Listener, TrialStarted
from autotune.export.head import read_head, study_in
from autotune.exporting import workload_text
from autotune.intake.flags import take
from autotune.intake.script import read_script
from autotune.intake.words import Word
from autotune.night import clean_up, dataset_folder, gates_of
from autotune.occupancy import gpu_baseline
from autotune.rig import Rig, now_text
from autotune.sameness import changes, gpu_of, manifest_of, of_a_measurement, study_id
from autotune.server.cancel import Waiting
from autotune.server.host import host_refusals
from autotune.study.folder import StudyFolder, fresh_name
from autotune.study.lock import study_lock
from autotune.study.record import Records
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Infeasible, Interrupted, LaunchPlan, Measured, Outcome, Refused, Value
from autotune.verdict.promise import Comparison, Promise, compare, read_promise, read_score
from autotune.wrappers import LOCAL, SERVICE_ENV, place
from autotune.wrappers.ssh import KIND as SSH

PROMPTS = 2
"""Tells the loads of verifications apart from those of the search (0) and of the confirmation (1)."""
FOLDER = "verify"
EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]", "localhost"})
LOOPBACK = "127.0.0.1"
NAME = "autotune-verify"
"""Stands for the name that a verification gives to what its script starts."""
_WANTED = re.compile(r'^\s*: "\$\{(\w+):\?', re.MULTILINE)
_ADDRESS = re.compile(r"http://(?P<host>[^:/]+):(?P<port>\d+)")


class VerifyAsk(Value, frozen=True, kw_only=True):
    """``study`` None: the study file that the script names, beside the folder in which the script lies."""

    script: Path
    study: Path | None = None
    baseline: bool = False


class Verified(Value, frozen=True, kw_only=True):
    """``holds`` is None where nothing was measured; ``sentence`` says what was found, ``records`` where it is kept."""

    script: str
    study: str
    baseline: bool
    promise: Promise
    sentence: str
    outcome: Outcome
    records: str
    holds: bool | None = None
    comparison: Comparison | None = None


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before anything starts: the claim, and how the script is started."""

    ask: VerifyAsk
    brief: Brief
    promise: Promise
    plan: LaunchPlan


def verify(ask: VerifyAsk, say: Listener, waiting: Waiting) -> Verified:
    """Start the script once, measure once, stop its whole session.

    Raises InputError for a script that promises nothing, StudyLocked, NightStopped.
    """
    errand = prepare(ask)
    errand.brief.folder.create()
    with study_lock(errand.brief.folder.lock, now_text()), host_refusals():
        rig, number = _rig(errand, say, waiting)
        outcome = _run(rig, errand, number)
    return _judged(errand, outcome, rig.records.folder.root)


def prepare(ask: VerifyAsk) -> Errand:
    """Read script and study. Starts nothing. Raises InputError."""
    text = _read(ask.script)
    head = read_head(text)
    promise = _promise(ask, head)
    brief = _brief(ask, head)
    _require_unchanged(ask, brief)
    _require_name(ask, brief.study.engine.wrapper.kind, text)
    if (then := head.get("workload", "")) and then != (now := workload_text(brief.study.workload)):
        raise InputError(
            f"{ask.script}: its promise is for another load ({then}) than {brief.path.name} asks for now ({now}); "
            "give the study file of that time, or export again"
        )
    return Errand(ask=ask, brief=brief, promise=promise, plan=_plan(ask, brief, text, head))


def _require_unchanged(ask: VerifyAsk, brief: Brief) -> None:
    """The records tell what was measured; a head may have been written after the study file was changed."""
    if changed := of_a_measurement(changes(brief)):
        raise InputError(
            f"{ask.script}: its promise was measured before {brief.path.name} was changed ({'; '.join(changed)}); "
            "change it back, or give the study file of that time"
        )


def _require_name(ask: VerifyAsk, kind: str, text: str) -> None:
    """What runs behind a wrapper is ended by its name: the verification's own, never that of the service."""
    if kind == SSH:
        raise InputError(
            f"{ask.script}: its server runs behind ssh without a name by which verify could find and end it at the "
            "other end; `autotune confirm` measures the same configuration on fresh starts"
        )
    if kind != LOCAL and NAME not in [word.text for word in _started(ask, text, {SERVICE_ENV: NAME})]:
        raise InputError(
            f"{ask.script}: its {kind} takes no name from {SERVICE_ENV}, so that verify could not tell it from the "
            "service; export it again"
        )


def _read(script: Path) -> str:
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise InputError(f"{script}: cannot be read ({reason}); give a launch script that autotune exported") from None
    first = text.partition("\n")[0]
    if not first.startswith("#!") or "sh" not in first:
        raise InputError(f"{script}: is no shell script; verify starts what `autotune export --format bash` writes")
    return text


def _promise(ask: VerifyAsk, head: dict[str, str]) -> Promise:
    """The promise in the script's head. Scripts of the first version have only the score of the search."""
    if ask.baseline:
        found = read_promise(head.get("baseline", ""))
    else:
        found = read_promise(head.get("promise", "")) or read_score(head.get("score", ""))
    if found is None:
        whose = "its baseline" if ask.baseline else "its configuration"
        raise InputError(f"{ask.script}: the head has no promise for {whose}; export it again, then verify")
    return found


def _brief(ask: VerifyAsk, head: dict[str, str]) -> Brief:
    """The study that the script comes from, under the name of that night."""
    named = study_in(head)
    if ask.study is not None:
        return read_brief(ask.study, named[0] if named else "")
    path = ask.script.absolute().parent.parent / named[1] if named else None
    if path is None or not path.is_file():
        where = f"{path} does not exist" if path else "its head names no study"
        raise InputError(f"{ask.script}: {where}; give the study file too: autotune verify SCRIPT STUDY")
    return read_brief(path, named[0] if named else "")


def _plan(ask: VerifyAsk, brief: Brief, text: str, head: dict[str, str]) -> LaunchPlan:
    """The script as a plan: its own command line, where its server listens, and the variables that it wants."""
    script = ask.script.absolute()
    host, port = _address(ask, text, head)
    spec, model = brief.study.engine, brief.study.model
    wrapped = spec.wrapper.kind != LOCAL
    where = place(spec, port) if wrapped else Where(host=host, port=port)
    plan = brief.engine.launch_plan(spec, model, [], where)
    wanted = tuple(dict.fromkeys([*plan.secret_env, *_WANTED.findall(text)]))
    if missing := [name for name in _WANTED.findall(text) if not os.environ.get(name)]:
        raise InputError(f"{ask.script}: the variable {missing[0]} is not set; export it and start again")
    program = [str(script)] if os.access(script, os.X_OK) else ["bash", str(script)]
    argv = (*program, *(["--baseline"] if ask.baseline else []))
    return msgspec.structs.replace(plan, argv=argv, env={}, secret_env=wanted, scripted=wrapped)


def _address(ask: VerifyAsk, text: str, head: dict[str, str]) -> tuple[str, int]:
    """Where the server of the script can be reached: by its own flags, which people edit, else by its head."""
    words = _started(ask, text)
    told = [take(words, flags)[1] for flags in (("--host",), ("--port",))]
    host, port = ("" if word is None or word.unclear else word.text for word in told)
    if not port and (match := _ADDRESS.fullmatch(head.get("address", ""))):
        host, port = match["host"], match["port"]
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{ask.script}: its port cannot be told; write --port NUMBER on its command line")
    return (LOOPBACK if host in EVERYWHERE else host), int(port)


def _started(ask: VerifyAsk, text: str, given: dict[str, str] | None = None) -> list[Word]:
    """The command that the script ends with, where these variables are set too."""
    arguments = ("--baseline",) if ask.baseline else ()
    calls = read_script(text, ask.script, {**os.environ, **(given or {})}, arguments).calls
    return list(calls[-1].words) if calls else []


def _rig(errand: Errand, say: Listener, waiting: Waiting) -> tuple[Rig, int]:
    """As a night's, with a folder of its own for the records. The number tells the prompts of verifications apart."""
    brief = errand.brief
    manifest = manifest_of(brief)
    clean_up(brief, manifest, say, waiting)
    folder = StudyFolder(brief.folder.root / fresh_name(brief.folder.root, FOLDER))
    folder.create()
    number = sum(path.name.startswith(FOLDER) for path in brief.folder.root.iterdir())
    gpu = gpu_of(brief.study)
    rig = Rig(
        study=brief.study,
        study_id=study_id(brief.folder, manifest),
        engine=brief.engine,
        space=brief.space,
        version=brief.version,
        searched=(),
        records=Records(folder),
        gpu=gpu,
        gpu_baseline=gpu_baseline(folder, gpu, say),
        waiting=waiting,
        say=say,
        prompts=PROMPTS,
        gates=gates_of(brief.study),
        fixed=errand.plan,
        dataset=dataset_folder(brief),
    )
    return rig, number


def _run(rig: Rig, errand: Errand, number: int) -> Outcome:
    ticket = Ticket(number=number, config=Config(params={}), role="confirm")
    rig.records.begin_trial(ticket.begun(now_text()))
    rig.say(TrialStarted(number=number, role=f"of {errand.ask.script.name}", config=ticket.config))
    return rig.records.settle(run_trial(rig, ticket)).outcome


def _judged(errand: Errand, outcome: Outcome, root: Path) -> Verified:
    comparison = compare(errand.promise, outcome.score) if isinstance(outcome, Measured) else None
    return Verified(
        script=str(errand.ask.script),
        study=errand.brief.study.name,
        baseline=errand.ask.baseline,
        promise=errand.promise,
        sentence=str(comparison) if comparison else _unmeasured(outcome),
        outcome=outcome,
        records=str(root),
        holds=comparison.holds if comparison else None,
        comparison=comparison,
    )


def _unmeasured(outcome: Outcome) -> str:
    """Why there is no figure to compare."""
    match outcome:
        case Infeasible(diagnosis=found):
            proof = f": {found.evidence[-1]}" if found.evidence else ""
            return f"does not hold: the server did not serve ({found.kind}{proof}); {found.advice}".rstrip("; ")
        case Refused(findings=findings):
            shown = "; ".join(finding.message for finding in findings)
            return f"not verified: the measurement is not valid ({shown})"
        case Interrupted(reason=reason):
            return f"not verified: {reason}"
        case _:
            return "not verified"
