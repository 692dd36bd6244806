"""Pretended GPU memory in a file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from autotune.sim import gpufile


@pytest.mark.parametrize(("leak", "left"), [(False, 100), (True, 100 + 700)])
def test_keeper_follows_and_gives_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: bool, left: int) -> None:
    """The keeper adds what its server holds to what others hold, and gives it back at the end unless it leaks."""
    file = tmp_path / "gpu.json"
    file.write_text('{"0": 100, "1": 5}')
    monkeypatch.setattr("sys.stdin", io.StringIO("300\n700\n"))
    gpufile.keep(file, 0.0, leak, "0")
    assert json.loads(file.read_text()) == {"0": left, "1": 5}


def test_a_missing_or_broken_file_counts_as_empty(tmp_path: Path) -> None:
    """Without a readable file the memory starts at zero."""
    file = tmp_path / "gpu.json"
    gpufile.change(file, 10)
    file.write_text("{")
    gpufile.change(file, 20)
    assert json.loads(file.read_text()) == {"0": 20}
