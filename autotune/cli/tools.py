"""The commands beside the night: diagnose, repair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import msgspec
import typer

from autotune.brief import read_brief
from autotune.cli.arguments import Json, StudyFile
from autotune.cli.text import repaired_text
from autotune.diagnosis.case import Facts, Phase
from autotune.diagnosis.report import as_json, as_text, diagnose_file
from autotune.errors import InputError
from autotune.repairing import repair as repair_study


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(diagnose)
    app.command()(repair)


def diagnose(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A server's log.")],
    engine: Annotated[str, typer.Option(help="sglang, vllm, ...; told from the log when empty.")] = "",
    phase: Annotated[str, typer.Option(help="startup, load, ready, bench or stop.")] = "startup",
    exit_code: Annotated[int | None, typer.Option(help="Negative: the signal that ended it.")] = None,
    alive: Annotated[bool, typer.Option("--alive/--dead", help="Whether the process still lives.")] = False,
    silent_seconds: Annotated[float, typer.Option(help="Seconds since its last sign of work.")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: class, action, evidence, advice.")] = False,
) -> None:
    """Say why a server died or hangs: class, action, the lines that prove it, what to change."""
    if phase not in get_args(Phase):
        raise InputError(f"--phase: {phase!r} is not known; use one of {', '.join(get_args(Phase))}")
    facts = Facts(
        engine=engine,
        phase=cast(Phase, phase),
        exit_code=exit_code,
        alive=alive,
        silent_seconds=silent_seconds,
    )
    found = diagnose_file(log, facts)
    typer.echo(as_json(found) if json else as_text(found))


def repair(
    study: StudyFile,
    json: Json = False,
) -> None:
    """Set damaged files of a study aside and write its database again from the records. Deletes nothing."""
    done = repair_study(read_brief(study))
    typer.echo(msgspec.json.encode(done).decode() if json else repaired_text(done))
