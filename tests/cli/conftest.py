"""The command line inside the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autotune.cli import main


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("status", path)``; an exception that escapes is a failure of the test."""

    def command(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        out, err = capsys.readouterr()
        return Said(code if isinstance(code, int) else int(code is not None), out, err)

    return command
