"""The real engines under ``.engines``, as the conformance suite knows them."""

from __future__ import annotations

from tests.conformance.subjects import REAL, Refusal, Subject
from tests.nights import ROOT

ENGINES = ROOT / ".engines"
MODEL = ENGINES / "model"
LLAMA = ("{serve}", "--ctx-size", "16384", "--parallel", "{parallel=4}", "--host", "{host}", "--port", "{port}")
NAMED = f'path = "{MODEL}"\nserved_name = "tiny-moe"'


def llama(*template: str) -> tuple[str, ...]:
    """The command of llama.cpp's server."""
    return tuple(str(ENGINES / "serve-llamacpp") if word == "{serve}" else word for word in template)


LLAMA_REFUSALS = (
    Refusal(flags=("--paralel", "3"), kind="invalid_config", action="stop", words="invalid argument: --paralel"),
    Refusal(flags=("--ctx-size", "40000000"), kind="oom_kv", action="prune", words="failed to allocate buffer for kv"),
)
SUBJECTS = (
    Subject(
        name="llamacpp",
        kind="command",
        command=llama(*LLAMA),
        parameter="parallel",
        version="b0-unknown",
        kv_tokens=16384,
        space="llamacpp",
        workload=REAL,
        margin=0.5,
        refusals=LLAMA_REFUSALS,
    ),
    Subject(
        name="example",
        kind="example",
        command=llama("{serve}", "--ctx-size", "16384", "--parallel", "4"),
        parameter="parallel",
        version="b0-unknown",
        kv_tokens=16384,
        space="llamacpp",
        workload=REAL,
        margin=0.5,
        refusals=LLAMA_REFUSALS,
    ),
    Subject(
        name="vllm",
        kind="vllm",
        command=(str(ENGINES / "serve-vllm"), "--max-num-seqs", "4", "--max-num-batched-tokens", "2048"),
        parameter="max_num_seqs",
        version="0.32.0",
        kv_tokens=524288,
        source="metrics",
        model=NAMED,
        workload=REAL,
        refusals=(
            Refusal(
                flags=("--max-num-seqz", "3"),
                kind="invalid_config",
                action="stop",
                words="unrecognized arguments: --max-num-seqz",
            ),
            Refusal(
                flags=("--max-num-batched-tokens", "32"),
                kind="invalid_config",
                action="prune",
                words="must be greater than or equal to max_num_seqs",
            ),
            Refusal(
                flags=("--kv-cache-memory-bytes", "500G"),
                kind="oom_kv",
                action="prune",
                words="less than requested memory for kv",
            ),
        ),
    ),
    Subject(
        name="sglang",
        kind="sglang",
        command=(str(ENGINES / "serve"), "--max-running-requests", "4", "--enable-metrics"),
        parameter="max_running_requests",
        version="0.5.23",
        kv_tokens=65536,
        route="generate",
        model=f'path = "{MODEL}"',
        workload=REAL,
        refusals=(
            Refusal(
                flags=("--max-runing-requests", "3"),
                kind="invalid_config",
                action="stop",
                words="unrecognized arguments: --max-runing-requests",
            ),
            # Below zero: free memory of the machine, which other programs move, does not decide.
            Refusal(
                flags=("--mem-fraction-static", "-0.5"),
                kind="oom_kv",
                action="prune",
                words="Loaded weights leave no GPU memory for the KV cache",
            ),
        ),
    ),
)
