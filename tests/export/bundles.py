"""Bundles to render, and strings that try to get out of their quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from autotune.export import ExportBundle, Provenance
from autotune.export.bundle import SECRET_FLAGS
from autotune.values import LaunchPlan

HOSTILE = (
    "",
    " ",
    "a b",
    "$(touch owned)",
    "`touch owned`",
    "${HOME}",
    "$HOME",
    "$$",
    "$(HOME)",
    "%h",
    "%%",
    "it's",
    'say "hi"',
    "\\",
    "\\n",
    "trailing\\",
    "new\nline",
    "tab\tand\rreturn",
    "# no comment",
    "; rm -rf x",
    "&& x",
    "a: b",
    "- item",
    "*",
    "~",
    "{a,b}",
    "!event",
    "--",
    "-n",
    "\u2028sep\u0085",
    "\ufeff",
    "é漢😀",
    "\x01\x7f",
    '{"json": [1, "two"]}',
    "${T_A1X:-x}",
    "$(T_A1X)",
    "$T_A1X",
    "$",
    "$(",
    "${",
    "%i%",
    "<<EOF",
    "yes",
    "0x10",
    "\U0001f600 \ud7ff",
)
# A secret's flag hides what follows it: tests of their own look at that.
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12).filter(
    lambda word: word.partition("=")[0] not in SECRET_FLAGS
)
arguments = st.lists(st.sampled_from(HOSTILE) | text, min_size=1, max_size=6)
settings_ = st.dictionaries(
    st.from_regex(r"T_[A-Z0-9]{1,6}X", fullmatch=True), st.sampled_from(HOSTILE) | text, max_size=3
)


def bundle(
    argv: Sequence[str] = ("server", "--port", "30000"), baseline: Sequence[str] = ("server",), **plan: Any
) -> ExportBundle:
    """A bundle around a command line; ``plan`` has further fields of the measured plan."""
    fields: dict[str, Any] = {"engine": "sglang", "host": "127.0.0.1", "port": 30000}
    return ExportBundle(
        plan=LaunchPlan(argv=tuple(argv), **fields, **plan),
        baseline=LaunchPlan(argv=tuple(baseline), **fields),
        provenance=PROVENANCE,
    )


PROVENANCE = Provenance(
    study="demo",
    date="2026-01-01",
    engine="sglang 0.5.14",
    gpu="1 x H200",
    model="Qwen3-30B-A3B",
    workload="128 in, 128 out",
    trial="7",
    parameters="max_running_requests=2048",
    score="23,200 ± 210 tok/s",
    confirmed_gain="+34 % (29-39)",
)
