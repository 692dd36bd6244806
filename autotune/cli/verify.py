"""``autotune verify``: an exported script against its promise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from autotune.cli.arguments import Json
from autotune.cli.live import Narrator
from autotune.cli.signals import cancel_on_signals, last_words
from autotune.server.cancel import Waiting
from autotune.verifying import Verified, VerifyAsk
from autotune.verifying import verify as run_verification


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(verify)


def verify(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A launch script that `autotune export` wrote.")],
    study: Annotated[
        Path | None,
        typer.Argument(metavar="[STUDY]", help="Its study file; left out: the one beside the script's folder."),
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Start and measure what the script goes back to.")
    ] = False,
    json: Json = False,
) -> None:
    """Start an exported script, measure it, and say whether its promise holds. Exit code 5: it does not."""
    with cancel_on_signals() as cancel:
        narrator = Narrator(json=json)
        with narrator:
            ask = VerifyAsk(script=script, study=study, baseline=baseline)
            found = run_verification(ask, narrator.hear, Waiting(cancel=cancel))
        last_words(msgspec.json.encode(found).decode() if json else verified_text(found))
        if cancel.signal is not None:
            sys.exit(128 + cancel.signal)
    if not found.holds:
        raise typer.Exit(5)


def verified_text(found: Verified) -> str:
    """The promise, what came of it, and where the records are."""
    what = "baseline" if found.baseline else "configuration"
    return "\n".join(
        [f"{what} of study {found.study}: {found.promise}", f"  {found.sentence}", f"records: {found.records}"]
    )
