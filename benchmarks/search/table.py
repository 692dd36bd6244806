"""The measured H200 as a surface: throughput and memory limits as read off its table, four parameters."""

from __future__ import annotations

from autotune.search.region import Region
from autotune.sim.memory import OomStage, graph_sizes
from autotune.values import Config, Effective, Estimate, LiveFigures, Value
from benchmarks.search.surfaces import Draw, Start, Truth, failure, live_figures, success

GPU_GB, FREE_GB, WEIGHT_GB, KV_BYTES = 139.8, 139.11, 56.89, 98304
GIB = 1 << 30
# The default start: the server's own running limit under 2,048 clients, its graph ceiling and chunk for an H200.
DEFAULTS = {"max_running_requests": 2048, "cuda_graph_max_bs": 256, "mem_fraction_static": 0.85}
CHUNK = 8192
LOAD_S = 60.0


class TableSurface(Value, frozen=True, kw_only=True):
    """Qwen3-30B-A3B shape, one H200, SGLang 0.5.14, 128 + 128 tokens, 2,048 clients.

    A decode step of batch b takes 16 ms + 35.2 us x b, and 30 ms more where b exceeds the graph ceiling. Memory runs
    out where the free remainder is under 7 GB + 1.2 MB per graph batch + 0.2 MB per chunk token.
    """

    name: str
    region: Region
    family: str = "H200 table"
    request_tokens: float = 192.0
    limits: dict[str, float] = {}
    step_s: float = 0.016
    per_request_s: float = 0.0000352
    eager_s: float = 0.030
    reserve_gb: float = 7.0
    per_graph_gb: float = 0.0012
    per_chunk_gb: float = 0.0002

    def start(self, config: Config, noise: float, seed: str) -> Start:
        full = {**DEFAULTS, **config.params}
        graph, fraction = int(full["cuda_graph_max_bs"]), float(full["mem_fraction_static"])
        draw = Draw.of(noise, seed)
        start_s = (48.0 + 0.14 * len(graph_sizes(graph))) * draw.start
        remainder_gb = FREE_GB * (1 - fraction)
        need_gb = self.reserve_gb + self.per_graph_gb * graph
        if remainder_gb < 0.1 + 0.00152 * graph:
            return _lost("graph_capture", 0.8 * start_s, 0.0)
        if remainder_gb < need_gb + self.per_chunk_gb * int(full.get("chunked_prefill_size", CHUNK)):
            return _lost("load", start_s, 25.0)
        true = self._true(int(full["max_running_requests"]), graph)
        score, steady = draw.seen(true, 0.0)
        score = Estimate(value=score.value, stderr=true.tok_s * draw.within, batches=10)
        return Start(outcome=success(score, steady, _effective(full)), truth=true, start_s=start_s, load_s=LOAD_S)

    def live(self, config: Config, limit: int, noise: float, seed: str) -> LiveFigures:
        full = {**DEFAULTS, **config.params}
        true = self._true(min(limit, int(full["max_running_requests"])), int(full["cuda_graph_max_bs"]))
        return live_figures(self.name, limit, true, (noise, seed, LOAD_S))

    def truth(self, config: Config) -> Truth | None:
        return self.start(config, 0.0, "").truth

    def _true(self, running: int, graph: int) -> Truth:
        step_s = self.step_s + self.per_request_s * running + (self.eager_s if running > graph else 0.0)
        return Truth(tok_s=running / step_s, tpot_s=step_s)


def _effective(full: dict[str, int | float | str]) -> Effective:
    fraction, graph = float(full["mem_fraction_static"]), int(full["cuda_graph_max_bs"])
    kv_gb = FREE_GB * fraction - WEIGHT_GB
    graph_gb = 0.1 + 0.00152 * graph
    return Effective(
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


def _lost(stage: OomStage, start_s: float, load_s: float) -> Start:
    return Start(outcome=failure(stage), truth=None, start_s=start_s, load_s=load_s)
