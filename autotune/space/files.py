"""Finding the files that ship with autotune: search spaces, studies and model configs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from autotune.errors import InputError
from autotune.space.model_config import ModelShape, model_shape
from autotune.space.parameters import Space, parse_space
from autotune.space.strict import nearest

Folder = Literal["search_spaces", "studies"]
_SHOWN = 100


def find_shipped(folder: Folder, name: str, beside: Path | None = None) -> Path:
    """The file called ``name`` (a path, or a name with or without ``.toml``).

    Looked for, in this order: the path itself; next to ``beside`` (the study file) and in the ``folder`` there and
    one level up; in the current directory; in the repository; in the installed package. Raises InputError that
    names what exists.
    """
    if (found := _find(folder, name, beside)) is not None:
        return found
    raise InputError(f"{folder}: {_nowhere(name)}; {nearest(Path(name).stem, _known(folder, beside))}")


def _find(folder: Folder, name: str, beside: Path | None) -> Path | None:
    for place in _places(folder, beside):
        for candidate in (name, f"{name}.toml"):
            path = place / candidate
            with suppress(OSError):  # a place that may not be looked into, a name that no file can have
                if path.is_file():
                    return path
    return None


def _nowhere(name: str) -> str:
    return f"there is no file {name if len(name) <= _SHOWN else f'{name[:_SHOWN]}...'!r}"


def load_space(name: str, beside: Path | None = None) -> Space:
    """The search space of that name or path. Raises InputError."""
    path = find_shipped("search_spaces", name, beside)
    return parse_space(_text(path), path.name)


def load_model_shape(config: str, beside: Path | None = None) -> ModelShape:
    """The shape from a config.json at ``config``: a path, or one relative to the study file. Raises InputError."""
    path = _find("studies", config, beside)
    if path is None:
        raise InputError(f"{_nowhere(config)}; give a model's config.json, by a path from the study file on")
    try:
        data: Any = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds no JSON object; give a model's config.json")
    return model_shape(data, str(path))


def _places(folder: Folder, beside: Path | None) -> Iterator[Path]:
    yield Path()
    if beside is not None:
        home = beside.parent if beside.suffix else beside
        # A study's own folder holds studies: a space of the same name is looked for in search_spaces first.
        yield from (home / folder, home.parent / folder, home)
    yield Path(folder)
    package = Path(str(resources.files("autotune")))
    yield from (package.parent / folder, package / "_shipped" / folder)


def _known(folder: Folder, beside: Path | None) -> set[str]:
    places = [place for place in _places(folder, beside) if place.name == folder]
    return {path.stem for place in places for path in place.glob("*.toml")}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
