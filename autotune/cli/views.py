"""The commands that look at a study: report and watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.brief import read_brief
from autotune.cli.arguments import StudyFile
from autotune.cli.watching import follow
from autotune.errors import InputError, NightStopped
from autotune.sameness import resolve
from autotune.study.output import check_output


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(report)
    app.command()(watch)


def report(
    study: StudyFile,
    html: Annotated[
        Path | None, typer.Option("--html", help="Where the page goes; by default into the study's folder.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write all trials as a table.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, write no page.")] = False,
) -> None:
    """Say what the night found: a summary here, and one HTML page that needs no network."""
    # Plotting is slow to import, and the other commands do without it.
    from autotune.report.page import page
    from autotune.report.table import as_csv
    from autotune.report.text import summary
    from autotune.reporting import as_json, default_page, gather, write_page

    brief = resolve(read_brief(study), reading=True)
    if not brief.folder.exists:
        raise InputError(f"{study}: nothing to report in {brief.folder.root}; run `autotune tune {study}` first")
    target = html or default_page(brief)
    for path in filter(None, (csv, target)):
        check_output(path, brief.path, brief.folder)
    facts = gather(brief, target)
    try:
        if csv is not None:
            write_page(csv, as_csv(facts))
        if json:
            typer.echo(as_json(facts))
            return
        written = write_page(target, page(facts))
    except NightStopped as error:
        raise InputError(str(error)) from error
    typer.echo(summary(facts))
    typer.echo(f"\npage: {written}")


def watch(
    study: StudyFile,
    once: Annotated[bool, typer.Option("--once", help="Print the present state and end.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Follow a night from another terminal. Reads only; Ctrl-C ends the view, not the night."""
    follow(resolve(read_brief(study), reading=True), once=once, every_s=every)
