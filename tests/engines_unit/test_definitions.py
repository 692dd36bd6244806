"""Reading an engine's argument definitions from its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.engines.definitions import definitions, look_up, of_source

CALLS = """
parser.add_argument("--stream-interval", type=int, default=ServerArgs.stream_interval)
parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
parser.add_argument("--cuda-graph-max-bs", action=Alias, dest="cuda_graph_max_bs_decode")
parser.add_argument("model")
group.add_argument("-tp", "--tensor-parallel", **kwargs["tp"])
"""
RECORD = """
class Schedule(Struct):
    _NS_PATH = "schedule"
    max_running_requests: A[Optional[int], "The maximum."] = None
    model_path: Annotated[str, Arg(help="x", aliases=["--model"])]
    fp8: A[str, Arg(help="x", cli_name="--fp8-backend")] = "auto"
    resolved: A[bool, Arg(help="x", no_cli=True)] = False
    plain: int = 3
    listed: List[int] = None
"""


def found(source: str) -> dict[str, str]:
    """Flag to field."""
    return {each.flag: each.field for each in of_source(source)}


def test_add_argument_calls() -> None:
    """Every name of an argument leads to its field; positional arguments are no flags."""
    assert found(CALLS) == {
        "--stream-interval": "stream_interval",
        "--tensor-parallel-size": "tensor_parallel_size",
        "--tp-size": "tensor_parallel_size",
        "--cuda-graph-max-bs": "cuda_graph_max_bs_decode",
        "-tp": "tensor_parallel",
        "--tensor-parallel": "tensor_parallel",
    }


def test_annotated_fields() -> None:
    """Annotated fields are flags by their name, their own name or an alias; hidden and plain ones are not."""
    assert found(RECORD) == {
        "--max-running-requests": "max_running_requests",
        "--model-path": "model_path",
        "--model": "model_path",
        "--fp8-backend": "fp8",
    }


def test_a_broken_file_defines_nothing() -> None:
    """A file of a newer Python must not end the night."""
    assert found("def f(:\n") == {}


@pytest.mark.parametrize(
    ("flag", "field", "reason"),
    [
        ("--graph-max-decode", "graph_max_decode", "defined"),
        ("--graph-max-d", "graph_max_decode", "abbreviation of --graph-max-decode"),
        ("--graph-max", "", "ambiguous: --graph-max-decode, --graph-max-prefill"),
        ("--grap-max-decode", "", "not defined; the nearest is --graph-max-decode"),
        ("--zzz", "", "not defined"),
    ],
)
def test_looking_up_a_flag(flag: str, field: str, reason: str) -> None:
    """As argparse does it: exact, else a unique prefix, else refused."""
    known = {"--graph-max-decode": "graph_max_decode", "--graph-max-prefill": "graph_max_prefill"}
    answer = look_up("sglang", flag, known)
    assert answer.field == field
    assert reason in answer.reason


def test_vllm_takes_underscores_and_negatives() -> None:
    """Its parser is more tolerant than argparse."""
    known = {"--enable-prefix-caching": "enable_prefix_caching"}
    assert look_up("vllm", "--no-enable_prefix_caching", known).field == "enable_prefix_caching"
    assert look_up("sglang", "--no-enable-prefix-caching", known).field == ""


def test_both_layouts_of_a_package_are_found(tmp_path: Path) -> None:
    """Old versions define their flags in one file, new ones in a folder of fields."""
    for name, source in (("srt/server_args.py", CALLS), ("srt/arg_groups/fields/schedule.py", RECORD)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert {"--stream-interval", "--max-running-requests"} <= set(definitions("sglang", tmp_path))
    assert definitions("unheard-of", tmp_path) == {}
