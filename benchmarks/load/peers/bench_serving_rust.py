"""Runs sglang.bench_serving's Rust client (``--rust-client``) from its wheel. Usage: as bench_serving.py."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parents[3] / ".peers"


def load_extension() -> Any:
    path = next((PEERS / "src" / "sglang" / "srt" / "rust_extensions").glob("_bench*.so"))
    loader = importlib.machinery.ExtensionFileLoader("_bench", str(path))
    spec = importlib.util.spec_from_loader("_bench", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def main() -> None:
    url, streams, requests, input_tokens, output_tokens, result = sys.argv[1:]
    config = {
        "backend": "sglang",
        "base_url": url,
        "dataset_name": "random-ids",
        "model": "sim/demo",
        "tokenizer": str(PEERS / "tokenizer"),
        "tokenize_prompt": True,
        "num_prompts": int(requests),
        "random_input_len": int(input_tokens),
        "random_output_len": int(output_tokens),
        "random_range_ratio": 1.0,
        "max_concurrency": int(streams),
        "warmup_requests": 0,
        "request_rate": "inf",
        "output_details": True,
        "disable_tqdm": True,
        "output_file": str(Path(result).with_suffix(".jsonl")),
        "headers": [],
    }
    document = json.loads(load_extension().run_config(json.dumps(config)))
    if "ttfts" not in document:
        document = json.loads(Path(config["output_file"]).read_text().splitlines()[-1])  # type: ignore[arg-type]
    itls = document["itls"]
    means = [sum(gaps) / len(gaps) for gaps in itls if gaps]
    data = {"ttft": document["ttfts"], "itl_mean": means, "gaps": [g for gaps in itls for g in gaps]}
    Path(result).write_text(json.dumps({**data, "completed": document["completed"]}))


if __name__ == "__main__":
    main()
