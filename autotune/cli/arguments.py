"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file, or the name of a shipped one.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="STUDY",
        help="Start from another study's results (its file or its results folder), as a prior.",
    ),
]
Ray = Annotated[
    str,
    typer.Option("--ray", envvar="AUTOTUNE_RAY", help="Run the trials on the Ray cluster at this address, or `auto`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
