"""Inference servers: configuration to launch plan, read-back, and what can be known before a start.

A new engine is one file with a class that satisfies ``base.Engine``, one line in ``ENGINES``, and its
recorded answers in the conformance suite.
"""

from __future__ import annotations

import difflib

from autotune.engines.base import Counters, Engine, Fetch, Request, Where
from autotune.engines.command import Command
from autotune.engines.sglang import SGLang
from autotune.engines.vllm import VLLM
from autotune.errors import InputError

ENGINES: dict[str, Engine] = {each.kind: each for each in (SGLang(), VLLM(), Command())}


def engine(kind: str) -> Engine:
    """The engine of that name. Raises InputError that names the nearest one."""
    if kind in ENGINES:
        return ENGINES[kind]
    near = difflib.get_close_matches(kind, ENGINES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(ENGINES)}"
    raise InputError(f"study file: engine.kind {kind!r} is not known; {hint}")


__all__ = ["ENGINES", "Counters", "Engine", "Fetch", "Request", "Where", "engine"]
