"""The pages are true to the tree: links, commands, keys and defaults."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
import typer

from autotune.cli.app import app
from autotune.search.samplers import SAMPLERS
from autotune.study.file import Study
from tools.cli_model import commands
from tools.commands import MORE, pages
from tools.manual import escape

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \| ", re.MULTILINE)
COMMAND = re.compile(r"^    (?:\.venv/bin/)?(autotune .*)$|`(?:\.venv/bin/)?(autotune [^`]*)`", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$|`[^`]*`", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```text$.*?^```$", re.MULTILINE | re.DOTALL)


def keys(shape: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys of a study file and their defaults, as the page writes them."""
    for field in msgspec.structs.fields(shape):
        name = prefix + field.encode_name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from keys(field.type, f"{name}.")
            continue
        yield name, default_text(field)
        if get_origin(field.type) is dict and issubclass(inner := get_args(field.type)[1], msgspec.Struct):
            yield from keys(inner, f"{name}.NAME.")


def default_text(field: msgspec.structs.FieldInfo) -> str:
    """``required``, ``unset``, or the default as TOML."""
    if field.required:
        return "required"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "unset" if value is None else f"`{msgspec.json.encode(value).decode().replace(',', ', ')}`"


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    return {slug(line.lstrip("#").strip()) for line in path.read_text().splitlines() if line.startswith("#")}


def test_every_key_of_a_study_is_documented_with_its_default() -> None:
    """docs/study.md names the keys of the study file, all and no others, and its defaults are the code's."""
    assert dict(ROW.findall((ROOT / "docs" / "study.md").read_text())) == dict(keys(Study))


def test_every_sampler_is_documented() -> None:
    """The samplers that a study may name are on its page."""
    text = (ROOT / "docs" / "study.md").read_text()
    assert [name for name in SAMPLERS if f"`{name}`" not in text] == []


def test_every_gate_is_documented() -> None:
    """The gates that can refuse a load are explained where numbers are, and where remedies are."""
    named = set(re.findall(r'(?:fatal\(|gate=)"(\w+)"', (ROOT / "autotune" / "load" / "gates.py").read_text()))
    assert len(named) > 10
    for page_name in ("confirm.md", "troubleshooting.md"):
        text = (ROOT / "docs" / page_name).read_text()
        assert [name for name in named if f"`{name}`" not in text] == [], page_name


def test_every_package_and_module_has_its_place() -> None:
    """ARCHITECTURE.md names all that stands at the top of the package."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    places = [path for path in (ROOT / "autotune").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {path.stem for path in places if not path.name.startswith("__")}
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_command_pages_and_manual_are_the_command_line() -> None:
    """docs/commands/ and docs/man/ are what `python -m tools.commands` writes, and nothing else is there."""
    written = pages()
    folders = {path.parent for path in written}
    assert {path for folder in folders for path in folder.iterdir()} == set(written), "run `python -m tools.commands`"
    assert [path.name for path, text in written.items() if path.read_text() != text] == []


def test_every_command_has_a_page_that_says_more() -> None:
    """A generated page alone explains nothing."""
    assert {each.name for each in commands()} == set(MORE)


@pytest.mark.parametrize("text", ["-x", ".so /etc/passwd", "a \\fBb", "'quoted'"])
def test_the_manual_prints_what_was_said(text: str) -> None:
    """No help text becomes a request or an escape of roff."""
    page = f".TH X 1\n.SH Y\n{escape(text)}\n"
    assert text in _formatted(page)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "man").iterdir()), ids=lambda p: p.name)
def test_manual_pages_are_sound(path: Path) -> None:
    """groff finds nothing to warn of, and the page has what a manual page has."""
    shown = _formatted(path.read_text())
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"):
        assert section in shown


def _formatted(page: str) -> str:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    argv = [groff, "-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-u"]
    done = subprocess.run(argv, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    """Every relative link of a page leads to a file of the tree, and its anchor to a heading there."""
    for link in LINK.findall(FENCE.sub("", path.read_text())):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        there = path.parent / target if target else path
        assert there.exists(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors(there), f"{path.name}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_shown_exist_with_their_options(path: Path) -> None:
    """A page shows no command and no option that the command line lacks."""
    group: Any = typer.main.get_command(app)
    for plain, quoted in COMMAND.findall(OUTPUT.sub("", path.read_text())):
        _, name, *words = shlex.split(plain or quoted)
        if name in ("sim", "COMMAND") or name.startswith("-"):
            continue
        assert name in group.commands, f"{path.name}: autotune {name}"
        known = {text for p in group.commands[name].params for text in (*p.opts, *p.secondary_opts)} | {"--help"}
        asked = {word for word in words if word.startswith("-")}
        assert asked <= known, f"{path.name}: autotune {name} {asked - known}"
