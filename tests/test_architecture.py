"""The shape of the package, held by walking its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "autotune"

# Each layer may import itself and the layers before it.
LAYERS = (
    {"errors", "values", "events", "__init__"},
    {"space", "diagnosis", "verdict", "export", "engines", "study", "wrappers", "intake"},
    {"budget", "standing", "drifting", "spending"},
    {"server", "load", "search", "sim", "report"},
    {
        "brief",
        "rig",
        "trouble",
        "surroundings",
        "guidance",
        "loading",
        "livelimits",
        "guiding",
        "confirmation",
        "choosing",
        "concluding",
        "trial",
        "planning",
        "exporting",
        "night",
        "sameness",
        "tune",
    }
    | {"confirm", "overview", "doctor", "repairing"}
    | {"benching", "bounding", "caveats", "reporting", "watching", "notify", "aftermath"}
    | {"promising", "verifying", "drafting", "fleet", "transferring", "occupancy", "picking", "working"},
    {"cli", "__main__"},
)
ONLY_IMPORTERS = {"typer": {"cli"}, "optuna": {"search"}, "pandas": {"report"}, "matplotlib": {"report"}}


def top(path: Path) -> str:
    """The first name below the package: ``autotune/load/worker.py`` is ``load``."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rank(name: str) -> int:
    """The number of the layer in which a top-level name stands."""
    return next((i for i, layer in enumerate(LAYERS) if name in layer), -1)


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    """No module imports from a layer above its own, and every module stands in a layer."""
    own = rank(top(path))
    assert own >= 0, f"{path} stands in no layer: add it to LAYERS"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "autotune" and len(parts) > 1 and rank(parts[1]) >= 0:
            assert rank(parts[1]) <= own, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_outside_library_has_one_importer(path: Path) -> None:
    """Only the named package imports the libraries that shape it."""
    for name in imports(path):
        owners = ONLY_IMPORTERS.get(name.split(".")[0])
        assert owners is None or top(path) in owners, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    """A module is at most 300 lines long and a function at most 60."""
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{path}: {node.name}"
