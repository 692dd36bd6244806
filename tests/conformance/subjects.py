"""What is put through the suite: an engine, a server that it starts, and what that server must say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

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
    command: tuple[str, ...]
    parameter: str
    version: str
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


SHAPE = f'config = "{ROOT}/studies/models/demo.json"\ngpu_memory_gb = 24\nweight_gb = 8'
LLAMA_SIM = simulator("llamacpp", "--ctx-size", "8192", "--metrics")
LLAMA_REFUSALS = (
    Refusal(flags=("--paralel", "3"), kind="invalid_config", action="stop", words="invalid argument: --paralel"),
)
SIMULATED = (
    Subject(
        name="sglang",
        kind="sglang",
        command=simulator("sglang", "--max-running-requests", "4", "--enable-metrics"),
        parameter="max_running_requests",
        version="0.5.14",
        route="generate",
        model=SHAPE,
        refusals=(
            Refusal(
                flags=("--max-runing-requests", "3"),
                kind="invalid_config",
                action="stop",
                words="unrecognized arguments: --max-runing-requests",
            ),
            Refusal(
                flags=("--mem-fraction-static", "0.3"), kind="oom_kv", action="prune", words="increase --mem-fraction"
            ),
        ),
    ),
    Subject(
        name="vllm",
        kind="vllm",
        command=simulator("vllm", "--sim-version", "0.32.0", "--max-num-seqs", "4"),
        parameter="max_num_seqs",
        version="0.32.0",
        source="metrics",
        model=SHAPE,
        refusals=(
            Refusal(
                flags=("--max-num-seqz", "3"),
                kind="invalid_config",
                action="stop",
                words="unrecognized arguments: --max-num-seqz",
            ),
            Refusal(
                flags=("--max-num-batched-tokens", "2"),
                kind="invalid_config",
                action="prune",
                words="must be greater than or equal to max_num_seqs",
            ),
        ),
    ),
    Subject(
        name="command",
        kind="command",
        command=(*LLAMA_SIM, "--parallel", "{parallel=4}", "--host", "{host}", "--port", "{port}"),
        parameter="parallel",
        version="b0-simulated",
        kv_tokens=8192,
        space="llamacpp",
        refusals=LLAMA_REFUSALS,
    ),
    Subject(
        name="told",
        kind="command",
        command=(*LLAMA_SIM, "--parallel", "{parallel=4}", "--host", "{host}", "--port", "{port}"),
        parameter="parallel",
        version="b0-simulated",
        kv_tokens=8192,
        space="llamacpp",
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
        refusals=LLAMA_REFUSALS,
    ),
    Subject(
        name="example",
        kind="example",
        command=(*LLAMA_SIM, "-np", "4"),
        parameter="parallel",
        version="b0-simulated",
        kv_tokens=8192,
        space="llamacpp",
        refusals=LLAMA_REFUSALS,
    ),
)
