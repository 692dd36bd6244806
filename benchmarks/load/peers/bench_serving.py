"""Runs sglang.bench_serving's own request function (unmodified, from its wheel) in a closed loop.

Only what surrounds it is replaced: its package's heavy imports (torch, transformers) are stubbed, and its loop
"create all tasks, hold them back with a semaphore" is repeated here. Usage: URL STREAMS REQUESTS INPUT OUTPUT
RESULT.json, with the unpacked wheel on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.abc
import importlib.machinery
import json
import random
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

STUBBED = ("transformers", "sglang.srt", "sglang.benchmark.datasets", "zmq")


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of the stubbed packages with mocks."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        hit = any(name == stub or name.startswith(stub + ".") for stub in STUBBED)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if hit else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        module.__spec__ = spec
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def load_serving(folder: Path) -> Any:
    """sglang.benchmark.serving without running sglang's __init__."""
    sys.meta_path.insert(0, Stubs())
    package = types.ModuleType("sglang")
    package.__path__ = [str(folder / "sglang")]
    sys.modules["sglang"] = package
    return importlib.import_module("sglang.benchmark.serving")


async def drive(serving: Any, url: str, sizes: tuple[int, int, int, int]) -> list[Any]:
    streams, requests, input_tokens, output_tokens = sizes
    gate = asyncio.Semaphore(streams)

    async def one() -> Any:
        ids = [random.randint(1000, 30000) for _ in range(input_tokens)]
        ask = serving.RequestFuncInput(
            prompt=ids,
            api_url=f"{url}/generate",
            prompt_len=input_tokens,
            output_len=output_tokens,
            model="sim",
            lora_name="",
            image_data=None,
            extra_request_body={},
        )
        async with gate:
            return await serving.async_request_sglang_generate(ask)

    return await asyncio.gather(*(asyncio.create_task(one()) for _ in range(requests)))


def main() -> None:
    url, *numbers, result = sys.argv[1:]
    sizes = tuple(int(n) for n in numbers)
    serving = load_serving(Path(__file__).resolve().parents[3] / ".peers" / "src")
    serving.args = argparse.Namespace(
        temperature=0.0,
        disable_ignore_eos=False,
        top_p=1.0,
        disable_stream=False,
        return_logprob=False,
        return_routed_experts=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        cache_report=False,
        header=None,
    )
    outputs = asyncio.run(drive(serving, url, (sizes[0], sizes[1], sizes[2], sizes[3])))
    good = [o for o in outputs if o.success]
    means = [(o.latency - o.ttft) / (o.output_len - 1) for o in good]
    data = {"ttft": [o.ttft for o in good], "itl_mean": means, "gaps": [g for o in good for g in o.itl]}
    Path(result).write_text(json.dumps({**data, "completed": len(good)}))


if __name__ == "__main__":
    main()
