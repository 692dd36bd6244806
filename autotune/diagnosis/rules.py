"""The signatures, read from ``signatures.toml``: what a line means, for which engine and version."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from autotune.values import Stage

Role = Literal["cause", "echoable", "kill", "consequence", "benign", "clamp", "pressure", "lost", "stall"]
"""cause: a root cause. echoable: a cause that is also seen as the echo of another rank's death (NCCL, hangs).
kill: a SIGKILL from outside, if nothing failed before it. consequence: never a cause while there is another.
benign: the line says nothing, whatever its words. clamp, pressure, lost, stall: the server lives with it."""

_BOUND = re.compile(r"(<=|>=|<|>|==)\s*([\d.]+)")


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where an entry holds. Empty tuples and texts hold everywhere; ``versions`` reads like ">=0.5.12,<0.5.20"."""

    engines: tuple[str, ...] = ()
    versions: str = ""

    def holds(self, engine: str, version: str) -> bool:
        """An unknown engine or an unreadable version is not excluded by anything."""
        if self.engines and engine in known_engines() and engine not in self.engines:
            return False
        return not self.versions or in_versions(version, self.versions)


class Rule(Scope, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One signature. ``kind`` "oom" becomes the class of the stage in which it happened.

    ``words``: lower-case literals of which one must be in the line before ``pattern`` is tried (speed).
    ``any_level``: also believed on INFO and WARNING lines. ``knobs``: parameters that the line is about.
    """

    name: str
    role: Role
    words: tuple[str, ...]
    pattern: str
    kind: str = msgspec.field(default="", name="class")
    action: str = ""
    advice: str = ""
    stages: tuple[Stage, ...] = ()
    knobs: tuple[str, ...] = ()
    any_level: bool = False


class Marker(Scope, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line that says how far the start has come. ``sign``: launch, ready or progress, else only a stage."""

    pattern: str
    words: tuple[str, ...]
    stage: Stage
    sign: Literal["", "launch", "ready", "progress", "slow", "shutdown"] = ""


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A function or file in a traceback that belongs to one stage (``config``: to the reading of arguments)."""

    pattern: str
    stage: Literal["launch", "weights", "kv_pool", "graph_capture", "warmup", "load", "stop", "config"]


class Advice(Scope, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to change, for a class where the rule itself does not say it; first match wins."""

    kind: str = msgspec.field(name="class")
    text: str

    def holds(self, engine: str, version: str) -> bool:
        """Flags of one engine are no advice for another, nor for one of which nothing is known but its name."""
        return (not self.engines or not engine or engine in self.engines) and super().holds(engine, version)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of ``signatures.toml``."""

    rule: tuple[Rule, ...]
    marker: tuple[Marker, ...]
    frame: tuple[Frame, ...]
    advice: tuple[Advice, ...]
    action: dict[str, str]
    searchable: tuple[str, ...]


class Compiled(msgspec.Struct, frozen=True):
    """A table narrowed to one engine and version, with its expressions compiled."""

    rules: tuple[tuple[Rule, re.Pattern[str]], ...]
    markers: tuple[tuple[Marker, re.Pattern[str]], ...]
    frames: tuple[tuple[Frame, re.Pattern[str]], ...]
    advice: tuple[Advice, ...]
    action: dict[str, str]
    searchable: tuple[str, ...]


_NAMES = r"(?:[\w.]{0,80}(?:Error|Exception|Failure|Exit|Timeout): )"
_MACROS = {"<EXCS>": _NAMES + "{0,6}", "<EXC>": _NAMES}


def _compile(pattern: str) -> re.Pattern[str]:
    for name, text in _MACROS.items():
        pattern = pattern.replace(name, text)
    return re.compile(pattern)


def known_engines() -> tuple[str, ...]:
    """Engines for which there are rules of their own."""
    return ("sglang", "vllm", "llamacpp", "trtllm")


def version_tuple(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "0.5.8.post1" -> (0, 5, 8), "dev 2026-09" -> ()."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part) for part in found.group(1).split(".")[:3]) if found else ()


def in_versions(version: str, bounds: str) -> bool:
    """Whether a version lies within all bounds; one that cannot be read does, for a wrong no hides a cause."""
    own = version_tuple(version)
    if not own:
        return True
    compare = {"<": own.__lt__, "<=": own.__le__, ">": own.__gt__, ">=": own.__ge__, "==": own.__eq__}
    return all(compare[sign](version_tuple(bound)) for sign, bound in _BOUND.findall(bounds))


@cache
def table() -> Table:
    """The signatures as shipped in the package."""
    text = resources.files("autotune.diagnosis").joinpath("signatures.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=Table)


@cache
def compiled(engine: str, version: str) -> Compiled:
    """The table for one engine and version."""
    whole = table()
    return Compiled(
        rules=tuple((r, _compile(r.pattern)) for r in whole.rule if r.holds(engine, version)),
        markers=tuple((m, re.compile(m.pattern)) for m in whole.marker if m.holds(engine, version)),
        frames=tuple((f, re.compile(f.pattern)) for f in whole.frame),
        advice=tuple(a for a in whole.advice if a.holds(engine, version)),
        action=whole.action,
        searchable=whole.searchable,
    )
