"""What is wrong in a study file, and what the rules that say so have in common."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from autotune.study.file import Study
from autotune.values import Value


class Problem(Exception):
    """One thing that is wrong in a study file. ``key`` is dotted, empty for the file itself."""

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem}; {remedy}" if key else f"{problem}; {remedy}")
        self.key = key


class Known(Value, frozen=True, kw_only=True):
    """Names that exist in this installation. An empty list means: do not check."""

    samplers: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()


Rule = Callable[[Study, Known], None]


def one_of(key: str, name: str, names: Sequence[str]) -> None:
    """Raises ``Problem`` with the nearest of ``names`` where ``name`` is none of them."""
    if not names or name in names:
        return
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    remedy = f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"
    raise Problem(key, f"{name!r} is not known", remedy)
