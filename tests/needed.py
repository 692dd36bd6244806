"""Programs of others that some tests need: skipped where they are missing, unless they are said to be required."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

REQUIRED = os.environ.get("AUTOTUNE_REQUIRE_TOOLS") == "1"
"""Set by continuous integration, which installs them all: there a missing one is a failure."""


def program(*names: str) -> str:
    """The first of these programs that is beside the interpreter or in PATH; its plain name where none is."""
    beside = str(Path(sys.executable).parent)
    found = (shutil.which(name, path=path) for name in names for path in (beside, None))
    return next(filter(None, found), names[0])


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip where none of these programs is installed and none is required."""
    missing = shutil.which(program(*names)) is None
    return pytest.mark.skipif(missing and not REQUIRED, reason=f"{names[0]} is not installed here")


def needs_module(name: str) -> pytest.MarkDecorator:
    """The same for a package of Python."""
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing and not REQUIRED, reason=f"{name} is not installed here")
