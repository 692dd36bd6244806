"""Inference servers: configuration to launch plan, read-back, and what can be known before a start.

A new engine is one file with a class that satisfies ``base.Engine``: docs/engines.md tells how. Those of other
packages are found by their entry points in the group ``autotune.engines``.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points

from autotune.engines.base import Counters, Engine, Fetch, Request, Where
from autotune.engines.command import Command
from autotune.engines.sglang import SGLang
from autotune.engines.vllm import VLLM
from autotune.errors import InputError

ENGINES: dict[str, Engine] = {each.kind: each for each in (SGLang(), VLLM(), Command())}
GROUP = "autotune.engines"


def kinds() -> tuple[str, ...]:
    """Every name that a study may write under ``engine.kind``."""
    return tuple(dict.fromkeys([*ENGINES, *entry_points(group=GROUP).names]))


def engine(kind: str) -> Engine:
    """The engine of that name. Raises InputError that names the nearest one, or why it cannot be loaded."""
    if kind in ENGINES:
        return ENGINES[kind]
    for entry in entry_points(group=GROUP, name=kind):
        return _loaded(entry)
    near = difflib.get_close_matches(kind, kinds(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(kinds())}"
    raise InputError(f"study file: engine.kind {kind!r} is not known; {hint}")


def _loaded(entry: EntryPoint) -> Engine:
    try:
        made = entry.load()()
    except Exception as error:  # whatever another package's import or constructor raises
        where = f"{entry.value}, the engine {entry.name!r} of another package"
        raise InputError(f"{where}, cannot be loaded: {error!r}; mend or remove that package") from error
    missing = [name for name in _methods() if not hasattr(made, name)]
    if missing:
        raise InputError(f"{entry.value} is no engine: it lacks {', '.join(missing)}; see docs/engines.md")
    found: Engine = made
    return found


def _methods() -> list[str]:
    return sorted(name for name in vars(Engine) if not name.startswith("_"))


__all__ = ["ENGINES", "Counters", "Engine", "Fetch", "Request", "Where", "engine", "kinds"]
