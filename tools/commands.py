"""Writes docs/commands/ and docs/man/ from the command line itself: ``python -m tools.commands``."""

from __future__ import annotations

from pathlib import Path

from tools.cli_model import Command, Option, commands
from tools.manual import manual

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Commands

Written by `python -m tools.commands` from the command line itself; a test compares the two. `STUDY` is the path of a
study file, or the name of a shipped one. Exit codes are in the [README](../../README.md#exit-codes). The same pages are
installed as manual pages: `man autotune`, `man autotune-tune`. `autotune --install-completion` completes commands and
options in bash, zsh and fish.

| command | |
| --- | --- |
"""
MORE = {
    "tune": ("../tune.md", "../resume.md", "../unattended.md"),
    "resume": ("../resume.md",),
    "confirm": ("../confirm.md",),
    "status": ("../watching.md",),
    "plan": ("../tune.md", "../search-space.md"),
    "doctor": ("../tune.md", "../troubleshooting.md"),
    "export": ("../export.md",),
    "diagnose": ("../diagnose.md",),
    "repair": ("../resume.md", "../troubleshooting.md"),
    "bench": ("../watching.md", "../confirm.md"),
    "report": ("../watching.md", "../confirm.md"),
    "watch": ("../watching.md",),
    "verify": ("../export.md",),
    "init": ("../study.md",),
    "worker": ("../fleet.md",),
}
"""The pages that say more of a command."""
SIM = """# autotune sim

A simulated inference server, with SGLang's routes, flags and log lines. It is no night's command: a study names it in
`engine.command`, as `studies/demo.toml` does. Beside SGLang's own flags it takes `--sim-...` ones for the machine, its
speed and noise, and faults; `autotune sim --sim-help` lists them.
"""


def pages() -> dict[Path, str]:
    """Every generated file and its text."""
    found = commands()
    rows = [f"| [autotune {each.name}]({each.name}.md) | {each.about} |" for each in found]
    rows.append("| [autotune sim](sim.md) | A simulated inference server, for studies that need no GPU. |")
    folder = DOCS / "commands"
    written = {folder / "README.md": HEAD + "\n".join(rows) + "\n", folder / "sim.md": SIM}
    written |= {folder / f"{each.name}.md": _page(each) for each in found}
    return written | {DOCS / "man" / name: text for name, text in manual(found).items()}


def _page(command: Command) -> str:
    lines = [f"# autotune {command.name}", "", command.about, "", f"    autotune {command.synopsis}", ""]
    told = [argument for argument in command.arguments if argument.text]
    if told:
        lines += ["| argument | |", "| --- | --- |"]
        lines += [f"| `{argument.spellings[0]}` | {_cell(argument.text)} |" for argument in told] + [""]
    if command.options:
        lines += ["| option | default | |", "| --- | --- | --- |", *map(_row, command.options), ""]
    links = ", ".join(f"[{Path(page).stem}]({page})" for page in MORE.get(command.name, ()))
    return "\n".join([*lines, f"More: {links}." if links else "", "All: [commands](README.md)."]) + "\n"


def _row(option: Option) -> str:
    spelling = " / ".join(f"`{text}`" for text in option.spellings)
    default = option.default if option.default in ("", "required") else f"`{option.default}`"
    return f"| {spelling} | {default} | {_cell(option.text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write them all, and remove pages of commands that are gone."""
    written = pages()
    for folder in {path.parent for path in written}:
        folder.mkdir(exist_ok=True)
        for old in set(folder.iterdir()) - set(written):
            old.unlink()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
