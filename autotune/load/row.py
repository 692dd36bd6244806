"""A measurement in the field names of sglang.bench_serving's JSON lines, for ``autotune bench``."""

from __future__ import annotations

import numpy as np

from autotune.load.metrics import whole_duration_s
from autotune.load.records import OK, RawRun
from autotune.study.file import Workload
from autotune.values import Measurement

RowValue = str | int | float | None
DATASET_NAMES = {
    "random": "random-ids",
    "sharegpt": "sharegpt",
    "jsonl": "custom",
    "trace": "mooncake",
    "shared_prefix": "generated-shared-prefix",
}
BACKENDS = {"generate": "sglang", "completions": "sglang-oai", "chat": "sglang-oai-chat"}


def bench_serving_row(measurement: Measurement, raw: RawRun, workload: Workload, tag: str = "") -> dict[str, RowValue]:
    """Whole-run figures, latencies in milliseconds. A figure that this load does not have is left out.

    ``total_output_tokens_retokenized`` is missing on purpose: tokens are the server's own count. ``failed`` and the
    ``steady_*`` figures are additions.
    """
    good = raw.requests[raw.requests["state"] == OK]
    whole = measurement.whole
    row: dict[str, RowValue] = {
        "tag": tag,
        "backend": BACKENDS[workload.route],
        "dataset_name": DATASET_NAMES[workload.kind],
        "request_rate": None if workload.closed or workload.kind == "trace" else workload.request_rate,
        "max_concurrency": workload.concurrency or None,
        **_lengths(workload),
        "duration": whole_duration_s(raw),
        "completed": measurement.requests_completed,
        "failed": measurement.requests_failed,
        "total_input_tokens": int(good["prompt_tokens"].sum()),
        "total_output_tokens": int(good["output_tokens"].sum()),
        "max_output_tokens_per_s": _busiest_second(raw),
        "max_concurrent_requests": _most_at_once(raw),
    }
    for name, figure in _FIGURES.items():
        if name in whole:
            row[figure] = whole[name]
    for kind in ("e2e", "ttft", "tpot", "itl"):
        for stat, label in _STATS.items():
            if (key := f"{kind}_{stat}_s") in whole:
                row[f"{label}_{_LABEL.get(kind, kind)}_ms"] = whole[key] * 1e3
    row.update({f"steady_{name}": value for name, value in measurement.steady.items() if name in _FIGURES})
    return row


def _lengths(workload: Workload) -> dict[str, RowValue]:
    if workload.from_file:
        fixed = workload.output_from == "fixed"
        return {"sharegpt_output_len": workload.output_tokens if fixed else None}
    return {
        "random_input_len": workload.input_tokens,
        "random_output_len": workload.output_tokens,
        "random_range_ratio": workload.range_ratio,
    }


_FIGURES = {
    "request_throughput_req_s": "request_throughput",
    "input_throughput_tok_s": "input_throughput",
    "output_throughput_tok_s": "output_throughput",
    "total_throughput_tok_s": "total_throughput",
    "concurrency": "concurrency",
}
_STATS = {"mean": "mean", "p50": "median", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99"}
_LABEL = {"e2e": "e2e_latency"}


def _busiest_second(raw: RawRun) -> float:
    """Most tokens in one second of the load's clock."""
    if not len(raw.chunk_times):
        return 0.0
    return float(np.bincount(np.maximum(raw.chunk_times, 0).astype(int), weights=raw.chunk_gains()).max())


def _most_at_once(raw: RawRun) -> int:
    """Most requests in flight at one moment."""
    sends, ends = np.sort(raw.requests["send"]), np.sort(raw.requests["end"])
    if not len(sends):
        return 0
    return int((np.arange(1, len(sends) + 1) - np.searchsorted(ends, sends, side="right")).max())
