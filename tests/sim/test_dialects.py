"""The other engines' words: flags, refusals, log lines."""

from __future__ import annotations

import json

import pytest

from autotune.diagnosis import Facts, diagnose
from autotune.sim.dialects.base import Dialect
from autotune.sim.dialects.llamacpp import LlamaCpp
from autotune.sim.dialects.vllm import Vllm
from autotune.sim.flags import parse
from tests.sim.conftest import Start

OOM = (
    "Scheduler hit an exception: Traceback (most recent call last):\n  line\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 24 GiB\n"
)


def test_vllm_flags_are_the_same_limits() -> None:
    """Underscores are dashes, switches have a negative, and the values reach the one scheduler."""
    argv = ["--sim-dialect", "vllm", "--max_num_seqs", "32", "--no-enable-prefix-caching", "--enforce-eager"]
    args, _, given, _ = parse([*argv, "--max-model-len=512", "--port", "7"])
    assert (args["port"], args["context_length"]) == (7, 512)
    assert given == {"max_running_requests": 32, "disable_radix_cache": True, "disable_cuda_graph": True}


def test_llama_slots_share_the_context() -> None:
    """Each request has its part of it."""
    args, _, given, _ = parse(["--sim-dialect", "llamacpp", "-np", "8", "-c", "4096"])
    assert args["context_length"] == 512
    assert (given["max_running_requests"], given["max_total_tokens"]) == (8, 4096)


@pytest.mark.parametrize(
    ("dialect", "argv", "status", "words"),
    [
        ("vllm", ["--max-num-seqz", "3"], 2, "error: unrecognized arguments: --max-num-seqz 3"),
        ("vllm", ["--max-num-seqs", "64", "--max-num-batched-tokens", "32"], 1, "must be greater than or equal"),
        ("llamacpp", ["--paralel", "3"], 1, "error: invalid argument: --paralel"),
        ("llamacpp", ["--parallel", "x"], 1, "error: argument -np/--parallel"),
    ],
)
def test_refusals_are_the_engines_own(
    capsys: pytest.CaptureFixture[str], dialect: str, argv: list[str], status: int, words: str
) -> None:
    """Exit status and words are those that a tuner reads of the real one."""
    with pytest.raises(SystemExit) as ended:
        parse(["--sim-dialect", dialect, *argv])
    assert ended.value.code == status
    assert words in capsys.readouterr().err


def spoken(dialect: Dialect) -> str:
    """How a dialect says that memory ran out."""
    dialect.arguments([], "1")
    return f"{dialect.line(OOM)}"


def test_memory_that_ran_out_is_recognised_in_every_dialect() -> None:
    """The diagnosis of the log is that of the engine's own words."""
    for dialect, kind in ((Vllm(), "vllm"), (LlamaCpp(), "llamacpp")):
        found = diagnose(spoken(dialect), Facts(engine=kind, phase="load", exit_code=1))
        assert (found.kind, found.action) == ("oom_runtime", "prune"), (kind, found)


def test_a_failed_start_ends_as_the_engine_does(start: Start) -> None:
    """vLLM exits with 1 after naming the cause, and does not kill itself."""
    sim = start("--sim-dialect", "vllm", "--sim-fault", "oom_kv", "--max-num-seqs", "8")
    assert sim.exit_status() == 1
    assert "Engine core initialization failed. See root cause above" in sim.log
    found = diagnose(sim.log, Facts(engine="vllm", exit_code=1))
    assert (found.kind, found.action) == ("oom_kv", "prune")


def test_vllm_tells_its_values_in_development_mode(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the route is not there."""
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    sim = start("--sim-dialect", "vllm", "--max-num-seqs", "8")
    sim.wait_for("Application startup complete")
    assert sim.get("/server_info")["vllm_config"]["scheduler_config"]["max_num_seqs"] == 8
    assert sim.request("POST", "/generate", {})[0] == 404
    assert json.loads(sim.request("GET", "/version")[1])["version"]
