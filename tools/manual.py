"""Manual pages in roff with the man macros (man(7), groff_man(7)); ``mandoc -T lint`` and ``groff -ww`` accept them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune import __version__
from tools.cli_model import Command, Option

SUMMARY = "tunes LLM inference servers overnight"
ABOUT = (
    "autotune starts an LLM inference server with one configuration after the other, loads it, and says which is "
    "faster than the defaults, by how much, and whether that can be believed. A study file says what is tuned; its "
    "results are kept beside it, and the same command goes on after any interruption."
)
EXIT = (
    ("0", "done"),
    ("1", "an unexpected error"),
    ("2", "the input is wrong; nothing was started"),
    ("3", "the night stopped for the reason printed; all that was measured is kept"),
    ("4", "another tuner works on the study"),
    ("5", "what was asked to be checked does not hold"),
    ("128+N", "ended by signal N"),
)


def manual(commands: Sequence[Command]) -> dict[str, str]:
    """File names of section 1 and their texts."""
    return {"autotune.1": _overview(commands)} | {f"autotune-{each.name}.1": _page(each) for each in commands}


def escape(text: str) -> str:
    """``text`` so that roff prints just that: no escape, no request, and hyphens that can be copied."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def _head(title: str) -> str:
    return f'.TH "{escape(title.upper())}" "1" "" "autotune {__version__}" "autotune manual"'


def _overview(commands: Sequence[Command]) -> str:
    lines = [_head("autotune"), ".SH NAME", f"autotune \\- {escape(SUMMARY)}"]
    lines += [".SH SYNOPSIS", ".B autotune", ".I COMMAND", "[", ".I ARGUMENTS", "]"]
    lines += [".SH DESCRIPTION", escape(ABOUT), ".SH COMMANDS"]
    for each in commands:
        lines += [".TP", f".BR autotune\\-{escape(each.name)} (1)", escape(each.about)]
    return "\n".join([*lines, *_exit(), *_see(f"autotune-{each.name}" for each in commands)]) + "\n"


def _page(command: Command) -> str:
    name = f"autotune-{command.name}"
    lines = [_head(name), ".SH NAME", f"{escape(name)} \\- {escape(command.about.rstrip('.'))}"]
    lines += [".SH SYNOPSIS", f".B autotune {escape(command.synopsis)}", ".SH DESCRIPTION", escape(command.about)]
    lines += _list("ARGUMENTS", [each for each in command.arguments if each.text])
    lines += _list("OPTIONS", command.options)
    return "\n".join([*lines, *_exit(), *_see(["autotune"])]) + "\n"


def _list(title: str, entries: Sequence[Option]) -> list[str]:
    lines = [f".SH {title}"] if entries else []
    for each in entries:
        default = f" Default: {each.default}." if each.default else ""
        lines += [".TP", f".B {escape(', '.join(each.spellings))}", escape(f"{each.text}{default}") or "\\&"]
    return lines


def _exit() -> list[str]:
    return [".SH EXIT STATUS", *(line for code, text in EXIT for line in (".TP", f".B {code}", escape(text)))]


def _see(names: Iterable[str]) -> list[str]:
    shown = [f".BR {escape(name)} (1)" for name in names]
    return [".SH SEE ALSO", *(f"{line} ," for line in shown[:-1]), *shown[-1:]]
