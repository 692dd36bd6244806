"""Finding shipped files."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InputError
from autotune.space.files import find_shipped, load_model_shape, load_space


def test_beside_the_study_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space next to the study file is taken before the shipped one."""
    monkeypatch.chdir(tmp_path.parent)
    mine = tmp_path / "sglang.toml"
    mine.write_text(find_shipped("search_spaces", "sglang").read_text())
    assert find_shipped("search_spaces", "sglang", tmp_path / "study.toml") == mine


def test_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped files are found from any directory, by name or file name."""
    monkeypatch.chdir(tmp_path)
    assert load_space("sglang").engine == "sglang"
    assert load_space("vllm.toml").engine == "vllm"
    assert find_shipped("studies", "demo").name == "demo.toml"


def test_absolute_path(tmp_path: Path) -> None:
    """A path is taken as it is."""
    path = tmp_path / "own.toml"
    path.write_text('engine = "sglang"\nparameters = {}\n')
    assert load_space(str(path)).parameters == ()


def test_missing(tmp_path: Path) -> None:
    """A name that exists nowhere is refused with the nearest shipped one."""
    with pytest.raises(InputError, match=r"no file 'sglangg'; did you mean 'sglang'\?"):
        load_space("sglangg", tmp_path / "x.toml")


def test_model_config(tmp_path: Path) -> None:
    """A model config is found relative to the study file; broken JSON is refused."""
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    assert load_model_shape("models/glm-5.json", Path("studies/x.toml")).experts == 256
    with pytest.raises(InputError, match="not JSON"):
        load_model_shape("broken.json", tmp_path / "x.toml")
    with pytest.raises(InputError, match="no JSON object"):
        load_model_shape("list.json", tmp_path / "x.toml")
