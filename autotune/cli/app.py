"""The commands of a night: tune, resume, status, plan, doctor, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from autotune import __version__
from autotune.brief import Brief, read_brief
from autotune.cli import bench, init, tools, verify, views, worker
from autotune.cli.arguments import From, Json, Ray, StudyFile
from autotune.cli.live import Narrator
from autotune.cli.signals import cancel_on_signals, last_words
from autotune.cli.text import confirmation_text, doctor_text, ended_text, status_text
from autotune.confirm import Ask
from autotune.confirm import confirm as run_confirmation
from autotune.doctor import examine
from autotune.errors import InputError
from autotune.export import FORMATS
from autotune.exporting import export_best
from autotune.night import open_night
from autotune.overview import overview
from autotune.planning import plan_night
from autotune.sameness import changed_since, resolve
from autotune.server.cancel import Waiting
from autotune.space.plan_text import lines as plan_lines
from autotune.tune import tune as run_night

app = typer.Typer(
    help="Tune the scheduler parameters of LLM inference servers overnight.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tune the scheduler parameters of LLM inference servers overnight."""


@app.command()
def tune(
    study: StudyFile,
    force: Annotated[
        bool, typer.Option("--force", help="The study has changed: begin anew under a fresh name.")
    ] = False,
    source: From = None,
    ray: Ray = "",
    json: Json = False,
) -> None:
    """Start a study, or continue it where it was cut off."""
    _night(study, resolve(read_brief(study), force=force), source, ray, json)


@app.command()
def resume(study: StudyFile, source: From = None, ray: Ray = "", json: Json = False) -> None:
    """Continue a study that has begun; never start one."""
    _night(study, _begun(study, "resume"), source, ray, json)


@app.command()
def confirm(
    study: StudyFile,
    starts: Annotated[int, typer.Option("--starts", min=2, help="Fresh starts a side.")] = 5,
    finalists: Annotated[
        int, typer.Option("--finalists", min=1, help="Configurations compared with the baseline.")
    ] = 1,
    anew: Annotated[bool, typer.Option("--anew", help="Begin another confirmation beside a finished one.")] = False,
    ray: Ray = "",
    json: Json = False,
) -> None:
    """Compare the best configurations with the baseline on fresh, interleaved starts, and say what can be claimed."""
    brief = _begun(study, "confirm")
    with cancel_on_signals() as cancel:
        narrator = Narrator(json=json)
        with narrator, open_night(brief, narrator.hear, Waiting(cancel=cancel), cluster=ray) as night:
            found = run_confirmation(night, Ask(blocks=starts, finalists=finalists, anew=anew))
            if found is not None:
                export_best(night.brief)
        if found is not None:
            last_words(msgspec.json.encode(found).decode() if json else confirmation_text(found))
        if cancel.signal is not None:
            sys.exit(128 + cancel.signal)


def _begun(study: Path, verb: str) -> Brief:
    """The brief of a study that has begun: opening a night makes the folder of any other."""
    brief = resolve(read_brief(study))
    if not brief.folder.exists:
        raise InputError(f"{study}: nothing to {verb} in {brief.folder.root}; start it with `autotune tune {study}`")
    return brief


def _night(study: Path, brief: Brief, source: Path | None, cluster: str, json: bool) -> None:
    with cancel_on_signals() as cancel:
        narrator = Narrator(json=json)
        with narrator, open_night(brief, narrator.hear, Waiting(cancel=cancel), source, cluster) as night:
            ended = run_night(night)
        if json:
            last_words(msgspec.json.encode(ended).decode())
        else:
            last_words(ended_text(ended, overview(brief), study))
        if cancel.signal is not None:
            sys.exit(128 + cancel.signal)


@app.command()
def status(study: StudyFile, json: Json = False) -> None:
    """How a study stands: trials, best so far, gain over the baseline, who works on it."""
    seen = overview(resolve(read_brief(study), reading=True))
    typer.echo(msgspec.json.encode(seen).decode() if json else status_text(seen))


@app.command()
def plan(study: StudyFile, json: Json = False) -> None:
    """What a night would do: bounds with their derivation, command line, times. Starts nothing."""
    made = plan_night(read_brief(study))
    typer.echo(msgspec.json.encode(made).decode() if json else "\n".join(plan_lines(made)))


@app.command()
def doctor(study: StudyFile, json: Json = False) -> None:
    """Look at the engine, the flags, the machine and the load generator before a night."""
    found = examine(read_brief(study))
    typer.echo(msgspec.json.encode(found).decode() if json else doctor_text(found))
    if not found.sound:
        raise typer.Exit(5)


@app.command()
def export(
    study: StudyFile,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.")] = None,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "bash",
    image: Annotated[
        str, typer.Option("--image", help="What compose and kubernetes run; the engine's own if empty.")
    ] = "",
) -> None:
    """Write the best measured configuration as a launch script, or in another form."""
    brief = resolve(read_brief(study), reading=True)
    path = export_best(brief, output, form, image)
    if path is None:
        raise InputError(f"{study}: nothing is measured yet; run `autotune tune {study}` first")
    if changed := changed_since(brief):
        typer.echo(f"note: {changed}", err=True)
    typer.echo(str(path))


tools.register(app)
bench.register(app)
views.register(app)
verify.register(app)
init.register(app)
worker.register(app)
