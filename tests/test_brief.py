"""What is known of a study before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.brief import expected_kv, read_brief, tensor_parallel
from autotune.errors import InputError
from tests.nights import Night


def with_flags(folder: Path, *flags: str) -> Path:
    """A short study whose base command has these flags too."""
    return Night(flags=flags).write(folder)


def test_a_value_in_the_base_command_is_the_default_of_its_parameter(tmp_path: Path) -> None:
    """What the command sets is what the baseline runs with, in either spelling."""
    brief = read_brief(with_flags(tmp_path, "--max-running-requests", "48", "--chunked-prefill-size=2048"))
    assert brief.space.get("max_running_requests").default == 48
    assert brief.space.get("chunked_prefill_size").default == 2048


def test_a_flag_that_nothing_reads_is_frozen_not_searched(tmp_path: Path) -> None:
    """Its reason is kept for the report; the other parameters are searched."""
    names = ("max_running_requests", "num_continuous_decode_steps")
    brief = read_brief(Night(parameters=names).write(tmp_path))
    assert brief.searched() == ("max_running_requests",)
    assert [frozen.name for frozen in brief.frozen()] == ["num_continuous_decode_steps"]
    assert brief.frozen()[0].reason


def test_force_searches_it_all_the_same(tmp_path: Path) -> None:
    """``force = true`` overrules the inspection."""
    path = Night(parameters=("num_continuous_decode_steps",)).write(tmp_path)
    with pytest.raises(InputError, match="num_continuous_decode_steps"):
        read_brief(path).searched()
    path.write_text(path.read_text() + "[space.override.num_continuous_decode_steps]\nforce = true\n")
    assert read_brief(path).searched() == ("num_continuous_decode_steps",)


def test_results_lie_beside_the_file(tmp_path: Path) -> None:
    """Whatever the current directory is; another name gives another folder."""
    path = Night().write(tmp_path)
    assert read_brief(path).folder.root == tmp_path / "short"
    assert read_brief(path, "short-2").folder.root == tmp_path / "short-2"


@pytest.mark.parametrize("name", ["demo", "demo.toml", "glm5-nvfp4-tp8", "qwen3-30b-a3b-h200"])
def test_shipped_studies_are_found_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a directory that has no such file."""
    monkeypatch.chdir(tmp_path)
    assert read_brief(Path(name)).searched()


@pytest.mark.parametrize(("flags", "tp"), [((), 1), (("--tp", "8"), 8), (("--tensor-parallel-size=4",), 4)])
def test_tensor_parallel_size_of_the_base_command(tmp_path: Path, flags: tuple[str, ...], tp: int) -> None:
    """In each of its spellings."""
    assert tensor_parallel(read_brief(with_flags(tmp_path, *flags))) == tp


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5", "²"])
def test_a_tensor_parallel_size_that_is_none(tmp_path: Path, text: str) -> None:
    """The key is named."""
    with pytest.raises(InputError, match=r"engine\.command: tensor-parallel size"):
        tensor_parallel(read_brief(with_flags(tmp_path, f"--tp={text}")))


def test_kv_capacity_before_a_start_is_stated_estimated_or_unknown(tmp_path: Path) -> None:
    """A stated figure wins; without a memory size there is none."""
    path = Night().write(tmp_path)
    estimate = expected_kv(read_brief(path))
    assert estimate is not None
    assert estimate.tokens > 0
    text = path.read_text()
    path.write_text(text.replace("gpu_memory_gb = 24", "kv_tokens = 12345"))
    stated = expected_kv(read_brief(path))
    assert stated is not None
    assert stated.tokens == 12345
    path.write_text(text.replace("gpu_memory_gb = 24", ""))
    assert expected_kv(read_brief(path)) is None


@pytest.mark.parametrize("text", ["most", "", "1.5", "nan"])
def test_a_memory_fraction_that_is_none(tmp_path: Path, text: str) -> None:
    """The key is named, no traceback."""
    with pytest.raises(InputError, match=r"engine\.command"):
        expected_kv(read_brief(with_flags(tmp_path, f"--mem-fraction-static={text}")))


def test_an_unknown_server_needs_a_space_of_its_own(tmp_path: Path) -> None:
    """Nothing can be searched behind ``kind = "command"`` without one: the key is named."""
    path = tmp_path / "any.toml"
    path.write_text(
        'name = "any"\n[engine]\nkind = "command"\ncommand = ["serve", "{port}"]\n[workload]\nconcurrency = 4\n'
    )
    with pytest.raises(InputError, match=r"any\.toml: space\.file is missing"):
        read_brief(path)


@pytest.mark.parametrize(
    ("flag", "parameter"),
    [("--mem-fraction-static=0.8", "mem_fraction_static"), ("--max-total-tokens=50000", "")],
)
def test_a_cache_of_stated_size_does_not_grow(tmp_path: Path, flag: str, parameter: str) -> None:
    """With the memory fraction the KV cache grows, unless the command says how many tokens it holds."""
    brief = read_brief(with_flags(tmp_path, flag))
    assert brief.cache_parameter() == parameter
    estimate = expected_kv(brief)
    assert estimate is not None
    assert estimate.room is not None
    assert estimate.room.parameter == parameter
