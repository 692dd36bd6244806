"""The real engines under ``.engines``, as the conformance suite knows them."""

from __future__ import annotations

from msgspec.structs import replace

from tests.conformance.subjects import BATCH, LLAMA, REAL, SGLANG, SLOTS, VLLM, Refusal
from tests.nights import ROOT

ENGINES = ROOT / ".engines"
MODEL = ENGINES / "model"
LLAMA_SERVER = (str(ENGINES / "serve-llamacpp"), "--ctx-size", "16384")
LLAMACPP = replace(
    LLAMA,
    name="llamacpp",
    command=(*LLAMA_SERVER, *SLOTS),
    version="b0-unknown",
    kv_tokens=16384,
    workload=REAL,
    margin=0.5,
    refusals=(
        *LLAMA.refusals,
        Refusal(
            flags=("--ctx-size", "40000000"), kind="oom_kv", action="prune", words="failed to allocate buffer for kv"
        ),
    ),
)
SUBJECTS = (
    LLAMACPP,
    replace(LLAMACPP, name="example", kind="example", command=(*LLAMA_SERVER, "--parallel", "4")),
    replace(
        VLLM,
        command=(str(ENGINES / "serve-vllm"), "--max-num-seqs", "4", "--max-num-batched-tokens", "2048"),
        kv_tokens=524288,
        model=f'path = "{MODEL}"\nserved_name = "tiny-moe"',
        workload=REAL,
        refusals=(
            *VLLM.refusals,
            Refusal(flags=("--max-num-batched-tokens", "32"), kind="invalid_config", action="prune", words=BATCH),
            Refusal(
                flags=("--kv-cache-memory-bytes", "500G"),
                kind="oom_kv",
                action="prune",
                words="less than requested memory for kv",
            ),
        ),
    ),
    replace(
        SGLANG,
        command=(str(ENGINES / "serve"), "--max-running-requests", "4", "--enable-metrics"),
        version="0.5.23",
        kv_tokens=65536,
        model=f'path = "{MODEL}"',
        workload=REAL,
        refusals=(
            *SGLANG.refusals,
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
