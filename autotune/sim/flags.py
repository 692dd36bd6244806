"""The command line of the simulated server: SGLang's own flags, by version, or those of another dialect, and the
``--sim-*`` ones.

As in SGLang an unknown flag prints the usage and exits 2, and a unique prefix of a flag is accepted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.engines.argv import value_of
from autotune.sim.dialects import DIALECTS, Dialect
from autotune.sim.faults import FAULTS
from autotune.sim.memory import GIB, parse_version
from autotune.sim.profiles import profile
from autotune.values import ParamValue, Value

# Flags that change what is served or how fast; the others are accepted and reported, as SGLang's are.
MODELLED = (
    "max_running_requests",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "mem_fraction_static",
    "schedule_conservativeness",
    "num_continuous_decode_steps",
    "max_total_tokens",
    "disable_radix_cache",
    "disable_cuda_graph",
)
_INTS: dict[str, int | None] = {
    "max-running-requests": None,
    "max-queued-requests": None,
    "max-total-tokens": None,
    "chunked-prefill-size": None,
    "max-prefill-tokens": 16384,
    "prefill-max-requests": None,
    "page-size": None,
    "num-continuous-decode-steps": 1,
    "stream-interval": 1,
    "scheduler-recv-interval": 1,
    "decode-log-interval": 40,
    "random-seed": None,
    "context-length": None,
    "tokenizer-worker-num": 1,
    "nnodes": 1,
    "node-rank": 0,
    "torch-compile-max-bs": 32,
    "dist-timeout": None,
}
_FLOATS: dict[str, float | None] = {
    "mem-fraction-static": None,
    "schedule-conservativeness": 1.0,
    "watchdog-timeout": 300.0,
    "soft-watchdog-timeout": None,
}
_TEXTS: dict[str, str | None] = {
    "tokenizer-path": None,
    "load-format": "auto",
    "dtype": "auto",
    "quantization": None,
    "kv-cache-dtype": "auto",
    "schedule-policy": "fcfs",
    "attention-backend": None,
    "sampling-backend": None,
    "grammar-backend": None,
    "moe-runner-backend": "auto",
    "moe-a2a-backend": "none",
    "device": "cuda",
    "served-model-name": None,
    "api-key": None,
    "admin-api-key": None,
    "log-level": "info",
    "log-level-http": None,
    "chat-template": None,
}
_SWITCHES = (
    "skip-tokenizer-init",
    "trust-remote-code",
    "disable-radix-cache",
    "disable-overlap-schedule",
    "disable-cuda-graph",
    "disable-cuda-graph-padding",
    "disable-prefill-cuda-graph",
    "enable-mixed-chunk",
    "enable-metrics",
    "enable-dp-attention",
    "enable-torch-compile",
    "skip-server-warmup",
)


class SimOptions(Value, frozen=True, kw_only=True):
    """The ``--sim-*`` flags. ``schedule`` is (first token, between tokens) in seconds."""

    profile: str = "demo"
    version: str = "0.5.14"
    dialect: str = "sglang"
    speed: float = 1.0
    noise: float = 0.05
    seed: int | None = None
    faults: tuple[str, ...] = ()
    fault_rate: float = 0.0
    gpu_file: str = ""
    gpu_release_s: float = 0.2
    schedule: tuple[float, float] | None = None
    schedule_log: str = ""


def parse(argv: Sequence[str]) -> tuple[dict[str, Any], SimOptions, dict[str, ParamValue], Dialect]:
    """Split a command line into all server args, the simulator's options, the modelled flags that were given, and whose
    words the server uses.

    Exits with 2 after argparse's usage where SGLang would, and as the engine of another dialect does.
    """
    sim = _simulator_parser()
    if "--sim-help" in argv:
        sim.print_help()
        sys.exit(0)
    known, rest = sim.parse_known_args(argv)
    named = {name.removeprefix("sim_"): value for name, value in vars(known).items()}
    options = SimOptions(**{**named, "faults": tuple(named["faults"])})
    dialect = DIALECTS[options.dialect]()
    engine = _engine_parser(dialect.rules or options.version)
    args = vars(engine.parse_args(dialect.arguments(rest, options.version)))
    if not 0 < args["port"] < 65536:
        engine.error(f"argument --port: {args['port']} is out of range; give a number from 1 to 65535")
    given = {name: args[name] for name in MODELLED if args.get(name) not in (None, engine.get_default(name))}
    return args, options, given, dialect


def pretended_gpu(command: Sequence[str]) -> tuple[Path, int] | None:
    """The file in which a simulated server's GPU memory shows, and that GPU's bytes; None for other command lines.

    Raises InputError for an unknown profile.
    """
    file = value_of(command, "--sim-gpu-file")
    name = value_of(command, "--sim-profile") or SimOptions().profile
    return (Path(file), round(profile(name).gpu_total_gb * GIB)) if file else None


def _simulator_parser() -> argparse.ArgumentParser:
    faults = "\n".join(
        f"  {name + ('=' + fault.default if fault.default else ''):36} {fault.stage}: {fault.meaning}"
        for name, fault in FAULTS.items()
    )
    parser = argparse.ArgumentParser(
        prog="autotune sim",
        usage="autotune sim [--sim-...] [flags of the engine]",
        description="A simulated server: SGLang, or with --sim-dialect another. Its flags mean what they mean there.",
        epilog=f"faults, with their default argument:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    defaults = SimOptions()
    parser.add_argument("--sim-help", action="store_true", default=argparse.SUPPRESS, help="show this and exit")
    parser.add_argument(
        "--sim-profile", default=defaults.profile, help="the machine: demo, qwen3-30b-h200 or glm5-nvfp4"
    )
    parser.add_argument("--sim-version", default=defaults.version, help="whose flags, rules and log lines")
    parser.add_argument(
        "--sim-dialect",
        default=defaults.dialect,
        choices=tuple(DIALECTS),
        help="the engine whose flags, routes and log lines it has; the scheduler behind them is one",
    )
    parser.add_argument("--sim-speed", type=float, default=defaults.speed, help="virtual seconds per second")
    parser.add_argument(
        "--sim-noise", type=float, default=defaults.noise, help="spread of the speed between starts, 0.05 is 5 %%"
    )
    parser.add_argument(
        "--sim-seed", type=int, default=None, help="with the port and the flags, decides the noise and the random fault"
    )
    parser.add_argument(
        "--sim-fault",
        dest="sim_faults",
        action="append",
        default=[],
        metavar="NAME",
        help="NAME or NAME=ARGUMENT, repeatable",
    )
    parser.add_argument("--sim-fault-rate", type=float, default=0.0, help="share of the starts with a random fault")
    parser.add_argument("--sim-gpu-file", default="", help="JSON file in which the server's GPU memory shows")
    parser.add_argument(
        "--sim-gpu-release-s",
        type=float,
        default=defaults.gpu_release_s,
        help="seconds until the memory returns after the end",
    )
    parser.add_argument(
        "--sim-schedule",
        type=_schedule,
        default=None,
        metavar="TTFT_MS:ITL_MS",
        help="a fixed schedule instead of a model",
    )
    parser.add_argument("--sim-schedule-log", default="", help="file of the times of every write")
    return parser


def _schedule(text: str) -> tuple[float, float]:
    first, _, between = text.partition(":")
    try:
        return float(first) / 1000, float(between) / 1000
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not TTFT_MS:ITL_MS, for example 50:25") from None


def _engine_parser(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--model-path", "--model", default="sim/demo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    for name, short in (("tensor-parallel-size", "tp"), ("data-parallel-size", "dp"), ("expert-parallel-size", "ep")):
        parser.add_argument(f"--{name}", f"--{short}-size", f"--{short}", type=int, default=1, dest=f"{short}_size")
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", type=int, default=1, dest="pp_size")
    for name, number in _INTS.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    for name, real in _FLOATS.items():
        parser.add_argument(f"--{name}", type=float, default=real)
    for name, text in _TEXTS.items():
        parser.add_argument(f"--{name}", default=text)
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    _add_graph_flags(parser, parse_version(version))
    return parser


def _add_graph_flags(parser: argparse.ArgumentParser, version: tuple[int, ...]) -> None:
    """One name up to 0.5.12, both up to 0.5.19, then only the two new ones: the old is then an ambiguous prefix."""
    if version < (0, 5, 13):
        parser.add_argument("--cuda-graph-max-bs", type=int)
        return
    spellings = ["--cuda-graph-max-bs-decode"]
    if version < (0, 5, 20):
        spellings.append("--cuda-graph-max-bs")
    parser.add_argument(*spellings, type=int, dest="cuda_graph_max_bs_decode")
    parser.add_argument("--cuda-graph-max-bs-prefill", type=int)
