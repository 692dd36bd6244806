"""What is put through the suite: an engine, a server that it starts, and what that server must say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msgspec.structs import replace

from autotune.values import ParamValue, Value
from tests.nights import ROOT

PLUGIN = Path(__file__).parent / "plugin"
TEMPLATE = """
name = "short"
seed = 1
[engine]
kind = "{kind}"
command = {command}
version = "{version}"
{engine}
[model]
{model}
[space]
file = "{space}"
parameters = {parameters}
[space.override.{parameter}]
choices = {choices}
[workload]
{workload}
stream = true
concurrency = 64
precision = 0.2
token_id_low = 260
token_id_high = 1000
route = "{route}"
[budget]
trials = {trials}
wall_clock = "30m"
confirm_starts = 0
baseline_every = 0
[timeouts]
start_s = 600
start_silence_s = 300
stop_s = 10
load_stall_s = 30
request_s = 60
[search]
startup_trials = 2
"""
QUICK = "input_tokens = 8\noutput_tokens = 8\nmin_s = 1\nmax_s = 1.5\nwarmup_max_s = 2"
REAL = "input_tokens = 32\noutput_tokens = 32\nmin_s = 2\nmax_s = 3\nwarmup_max_s = 60"


class Refusal(Value, frozen=True, kw_only=True):
    """Flags on the base command with which the server does not start, and what is made of that."""

    flags: tuple[str, ...]
    kind: str
    action: str
    words: str


class Subject(Value, frozen=True, kw_only=True):
    """One engine and how its server is started. ``command`` serves ``few`` requests at once.

    ``parameter`` is its running limit. ``kv_tokens`` is its capacity at ``few``.
    ``version`` is what it says of itself. ``margin``: how much faster many requests at once must be than few;
    small where the difference is within the noise of a busy machine.
    ``refusals`` are starts that fail; the first is a flag that does not exist.
    """

    name: str
    kind: str
    parameter: str
    command: tuple[str, ...] = ()
    version: str = ""
    kv_tokens: int | None = None
    refusals: tuple[Refusal, ...]
    few: int = 4
    many: int = 64
    too_long: int = 5000
    route: str = "completions"
    workload: str = QUICK
    engine: str = ""
    model: str = ""
    space: str = ""
    margin: float = 1.5
    source: str = "server_info"
    log_tells: bool = True

    def write(self, folder: Path, flags: tuple[str, ...] = (), trials: int = 3) -> Path:
        """A study file in ``folder`` whose base command has these flags too."""
        folder.mkdir(exist_ok=True)
        path = folder / "study.toml"
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values |= {
            "command": json.dumps([*self.command, *flags]),
            "parameters": json.dumps([self.parameter]),
            "choices": json.dumps([16, self.many]),
            "trials": trials,
        }
        path.write_text(TEMPLATE.format(**values))
        return path

    def flags(self, limit: int) -> dict[str, ParamValue]:
        """The parameters that ask for this running limit."""
        return {self.parameter: limit}


def simulator(dialect: str, *flags: str) -> tuple[str, ...]:
    """The command of a simulated server that speaks like one engine."""
    return (sys.executable, "-m", "autotune.sim", "--sim-noise", "0", "--sim-dialect", dialect, *flags)


def unknown(flag: str, words: str) -> Refusal:
    """A flag with a slip of the pen."""
    return Refusal(flags=(flag, "3"), kind="invalid_config", action="stop", words=f"{words}: {flag}")


# What an engine's servers have in common, simulated or real.
SGLANG = Subject(
    name="sglang",
    kind="sglang",
    parameter="max_running_requests",
    route="generate",
    refusals=(unknown("--max-runing-requests", "unrecognized arguments"),),
)
VLLM = Subject(
    name="vllm",
    kind="vllm",
    parameter="max_num_seqs",
    version="0.32.0",
    source="metrics",
    refusals=(unknown("--max-num-seqz", "unrecognized arguments"),),
)
LLAMA = Subject(
    name="command",
    kind="command",
    parameter="parallel",
    space="llamacpp",
    refusals=(unknown("--paralel", "invalid argument"),),
)
SLOTS = ("--parallel", "{parallel=4}", "--host", "{host}", "--port", "{port}")
BATCH = "must be greater than or equal to max_num_seqs"

SHAPE = f'config = "{ROOT}/studies/models/demo.json"\ngpu_memory_gb = 24\nweight_gb = 8'
LLAMA_SIM = simulator("llamacpp", "--ctx-size", "8192", "--metrics")
COMMAND = replace(LLAMA, command=(*LLAMA_SIM, *SLOTS), version="b0-simulated", kv_tokens=8192)
SIMULATED = (
    replace(
        SGLANG,
        command=simulator("sglang", "--max-running-requests", "4", "--enable-metrics"),
        version="0.5.14",
        model=SHAPE,
        refusals=(
            *SGLANG.refusals,
            Refusal(
                flags=("--mem-fraction-static", "0.3"), kind="oom_kv", action="prune", words="increase --mem-fraction"
            ),
        ),
    ),
    replace(
        VLLM,
        command=simulator("vllm", "--sim-version", VLLM.version, "--max-num-seqs", "4"),
        model=SHAPE,
        refusals=(
            *VLLM.refusals,
            Refusal(flags=("--max-num-batched-tokens", "2"), kind="invalid_config", action="prune", words=BATCH),
        ),
    ),
    COMMAND,
    replace(
        COMMAND,
        name="told",
        engine="""
[engine.read_back]
parallel = "/props#/total_slots"
running_limit = 'log#n_slots = (\\d+)'
kv_tokens = "/props#/total_slots * /slots#/0/n_ctx"
version = "/props#/build_info"
[engine.counters]
generated_tokens = "/metrics#llamacpp:tokens_predicted_total"
prompt_tokens = "/metrics#llamacpp:prompt_tokens_total"
""",
    ),
    replace(COMMAND, name="example", kind="example", command=(*LLAMA_SIM, "-np", "4")),
)
