"""From a measured launch plan to something that starts it again: pure functions from values to text."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from autotune.errors import InputError
from autotune.export.bash import render_bash
from autotune.export.bundle import ExportBundle, Provenance
from autotune.export.compose import render_compose
from autotune.export.kubernetes import render_kubernetes
from autotune.export.plain import render_args, render_json
from autotune.export.systemd import render_systemd
from autotune.export.wrapped import placed

FORMATS: dict[str, Callable[[ExportBundle], str]] = {
    "bash": render_bash,
    "systemd": render_systemd,
    "compose": render_compose,
    "kubernetes": render_kubernetes,
    "args": render_args,
    "json": render_json,
}


def render(fmt: str, bundle: ExportBundle) -> str:
    """The export's text in one of ``FORMATS``. Raises InputError for another one, naming the nearest."""
    if fmt not in FORMATS:
        near = difflib.get_close_matches(fmt, FORMATS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(FORMATS)}"
        raise InputError(f"export: format {fmt!r} is not known; {hint}")
    return FORMATS[fmt](placed(fmt, bundle))


__all__ = ["FORMATS", "ExportBundle", "Provenance", "render"]
