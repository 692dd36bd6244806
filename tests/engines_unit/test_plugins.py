"""Engines of other packages, by their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.engines import engine, kinds
from autotune.errors import InputError


def install(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with one module and the entry point ``mine``."""
    info = folder / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[autotune.engines]\nmine = {folder.name.replace('-', '_')}_mine:Mine\n")
    (folder / f"{folder.name.replace('-', '_')}_mine.py").write_text(source)
    monkeypatch.syspath_prepend(folder)


def test_an_installed_engine_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name stands beside those of this package, and it is made when a study asks for it."""
    install(tmp_path, "from autotune.engines.vllm import VLLM\nclass Mine(VLLM):\n    kind = 'mine'\n", monkeypatch)
    assert kinds() == ("sglang", "vllm", "command", "mine")
    assert engine("mine").kind == "mine"
    with pytest.raises(InputError, match="did you mean 'mine'"):
        engine("mien")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no GPU')", "cannot be loaded: RuntimeError.*no GPU"),
        ("class Other: pass", "cannot be loaded: AttributeError"),
        ("class Mine:\n    kind = 'mine'", "is no engine: it lacks counters"),
    ],
)
def test_a_broken_engine_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    """What another package does wrong is said with its name, and is no traceback."""
    install(tmp_path, source, monkeypatch)
    with pytest.raises(InputError, match=message):
        engine("mine")
