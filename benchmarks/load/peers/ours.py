"""Runs this project's load generator for a fixed number of requests. Usage: URL STREAMS REQUESTS INPUT OUTPUT
RESULT.json [ROUTE].
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import msgspec

from autotune.load.driver import run_load
from autotune.load.sample import from_raw
from autotune.load.spec import LoadSpec
from autotune.study.file import Workload


def main() -> None:
    url, streams, requests, input_tokens, output_tokens, result, *route = sys.argv[1:]
    fields = {"concurrency": int(streams), "input_tokens": int(input_tokens), "output_tokens": int(output_tokens)}
    workload = msgspec.convert({**fields, "route": (route or ["generate"])[0]}, Workload)
    with tempfile.TemporaryDirectory() as folder:
        raw = run_load(
            LoadSpec(
                base_url=url, workload=workload, seed=(0, 0, 0), folder=folder, requests=int(requests), model="sim"
            )
        )
    sample = from_raw(raw)
    good = raw.requests[raw.ok]
    data = {
        "ttft": (good["first"] - good["send"]).tolist(),
        "itl_mean": ((good["end"] - good["first"]) / (good["output_tokens"] - 1)).tolist(),
        "gaps": sample.gap_values.tolist(),
        "completed": len(good),
        "client": msgspec.to_builtins(msgspec.structs.replace(raw.meta.client, in_flight=())),
    }
    Path(result).write_text(json.dumps(data))


if __name__ == "__main__":
    main()
