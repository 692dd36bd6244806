"""Short studies of the real SGLang under ``.engines``: study files, servers of the package, and loads on them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tests.conformance.serving import LIMIT_S, TOKEN_IDS, Live, serving, tuning
from tests.nights import ROOT

__all__ = ["LIMIT_S", "TOKEN_IDS", "Live", "serving", "tuning"]
ENGINES = ROOT / ".engines"
SERVE, MODEL = ENGINES / "serve", ENGINES / "model"
KV_TOKENS = 65536
"""What ``.engines/serve`` asks for."""

TEMPLATE = """
name = "{name}"
seed = 1
[engine]
kind = "sglang"
command = {command}
[model]
path = "{model}"
[space]
parameters = {parameters}
{overrides}
[workload]
input_tokens = 32
output_tokens = 32
concurrency = {concurrency}
stream = true
min_s = 2
max_s = 3
# A busy machine with four running requests takes half a minute for its first 64; a warm-up ends as soon as it may.
warmup_max_s = 60
precision = 0.2
token_id_low = 260
token_id_high = 1000
[budget]
trials = {trials}
wall_clock = "30m"
confirm_starts = 0
[timeouts]
start_s = 200
start_silence_s = 120
stop_s = 10
load_stall_s = 30
request_s = 60
[search]
startup_trials = 3
"""


class RealNight(msgspec.Struct, frozen=True, kw_only=True):
    """What of a study differs from test to test; ``flags`` belong to the base command."""

    name: str = "short"
    flags: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("max_running_requests",)
    overrides: str = ""
    concurrency: int = 64
    trials: int = 2

    def write(self, folder: Path) -> Path:
        """The study file in ``folder``."""
        path = folder / "study.toml"
        values = msgspec.structs.asdict(self)
        lists = {"command": json.dumps([str(SERVE), *values.pop("flags")]), "parameters": json.dumps(self.parameters)}
        path.write_text(TEMPLATE.format(model=MODEL, **(values | lists)))
        return path
