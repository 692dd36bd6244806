"""The command of a study that several hosts share: worker."""

from __future__ import annotations

import sys

import msgspec
import typer

from autotune.brief import read_brief
from autotune.cli.arguments import Json, StudyFile
from autotune.cli.live import Narrator
from autotune.cli.signals import cancel_on_signals, last_words
from autotune.cli.text import ended_text
from autotune.overview import overview
from autotune.sameness import resolve
from autotune.server.cancel import Waiting
from autotune.working import open_shared, work


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(worker)


def worker(study: StudyFile, json: Json = False) -> None:
    """Work on a study together with other hosts, through the PostgreSQL database that `storage` names."""
    brief = resolve(read_brief(study))
    with cancel_on_signals() as cancel:
        narrator = Narrator(json=json)
        with narrator, open_shared(brief, narrator.hear, Waiting(cancel=cancel)) as shared:
            ended = work(shared)
        last_words(msgspec.json.encode(ended).decode() if json else ended_text(ended, overview(brief), study))
        if cancel.signal is not None:
            sys.exit(128 + cancel.signal)
