"""The measured H200 as a surface: throughput and memory limits as read off its table, four parameters."""

from __future__ import annotations

import math
import random

from autotune.search.region import Region
from autotune.sim.memory import OomStage, graph_sizes
from autotune.values import Config, Effective, Outcome, Value
from benchmarks.search.surfaces import Start, failure, success

GPU_GB, FREE_GB, WEIGHT_GB, KV_BYTES = 139.8, 139.11, 56.89, 98304
GIB = 1 << 30
# The default start: the server's own running limit under 2,048 clients, its graph ceiling and chunk for an H200.
DEFAULTS = {"max_running_requests": 2048, "cuda_graph_max_bs": 256, "mem_fraction_static": 0.85}
CHUNK = 8192


class TableSurface(Value, frozen=True, kw_only=True):
    """Qwen3-30B-A3B shape, one H200, SGLang 0.5.14, 128 + 128 tokens, 2,048 clients.

    A decode step of batch b takes 16 ms + 35.2 us x b, and 30 ms more where b exceeds the graph ceiling. Memory runs
    out where the free remainder is under 7 GB + 1.2 MB per graph batch + 0.2 MB per chunk token.
    """

    name: str
    region: Region
    family: str = "H200 table"
    request_tokens: float = 192.0

    def start(self, config: Config, noise: float, seed: str) -> Start:
        full = {**DEFAULTS, **config.params}
        running, graph = int(full["max_running_requests"]), int(full["cuda_graph_max_bs"])
        fraction, chunk = float(full["mem_fraction_static"]), int(full.get("chunked_prefill_size", CHUNK))
        chance = random.Random(seed)
        start_s = (48.0 + 0.14 * len(graph_sizes(graph))) * (1 + 0.05 * chance.random())
        remainder_gb = FREE_GB * (1 - fraction)
        if remainder_gb < 0.1 + 0.00152 * graph:
            return _lost("graph_capture", 0.8 * start_s, 0.0)
        if remainder_gb < 7.0 + 0.0012 * graph + 0.0002 * chunk:
            return _lost("load", start_s, 25.0)
        step_s = 0.016 + 0.0000352 * running + (0.030 if running > graph else 0.0)
        true = running / step_s
        return Start(
            outcome=self._seen(full, true * math.exp(chance.gauss(0, noise)), true * noise / 4, fraction),
            true_tok_s=true,
            start_s=start_s,
            load_s=60.0,
        )

    def truth(self, config: Config) -> float | None:
        return self.start(config, 0.0, "").true_tok_s

    def _seen(self, full: dict[str, int | float | str], value: float, stderr: float, fraction: float) -> Outcome:
        kv_gb = FREE_GB * fraction - WEIGHT_GB
        graph = int(full["cuda_graph_max_bs"])
        graph_gb = 0.1 + 0.00152 * graph
        effective = Effective(
            source="server_info",
            kv_tokens=int(kv_gb * GIB / KV_BYTES),
            running_limit=int(full["max_running_requests"]),
            graph_max_batch=graph,
            values={"chunked_prefill_size": CHUNK, **full},
            gpu_memory_gb={
                "weight": WEIGHT_GB,
                "kvcache": round(kv_gb, 2),
                "graph": round(graph_gb, 2),
                "available": round(FREE_GB * (1 - fraction) - graph_gb, 2),
            },
        )
        return success(value, stderr, effective)


def _lost(stage: OomStage, start_s: float, load_s: float) -> Start:
    return Start(outcome=failure(stage), true_tok_s=None, start_s=start_s, load_s=load_s)
