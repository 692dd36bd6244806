"""``autotune bench``: the options of a load, its table and its JSON."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from autotune.benching import BenchAsk, Benched, bench
from autotune.cli import bench_options as options
from autotune.cli.signals import cancel_on_signals
from autotune.errors import InputError
from autotune.load.row import RowValue
from autotune.load.spec import Progress
from autotune.study.file import Objective, Workload

DEFAULTS = Workload()


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("bench")(bench_command)


def bench_command(
    ctx: typer.Context,
    url: Annotated[str, typer.Option(help="The server, http://HOST:PORT.")],
    engine: Annotated[str, typer.Option(help="sglang, vllm or command: whose counters are read.")] = "sglang",
    route: options.RouteName = "",
    model: Annotated[str, typer.Option(help="Model name; empty: the first that the server names.")] = "",
    api_key_env: Annotated[str, typer.Option(help="Variable that holds the API key.")] = "",
    kind: options.KindName = DEFAULTS.kind,
    dataset: options.File = DEFAULTS.dataset,
    tokenizer: options.Tokenizer = DEFAULTS.tokenizer,
    context_tokens: options.Context = DEFAULTS.context_tokens,
    input_tokens: options.InputTokens = DEFAULTS.input_tokens,
    output_tokens: options.OutputTokens = None,
    range_ratio: options.Ratio = DEFAULTS.range_ratio,
    token_id_low: options.IdLow = DEFAULTS.token_id_low,
    token_id_high: options.IdHigh = DEFAULTS.token_id_high,
    prefix_tokens: options.PrefixTokens = DEFAULTS.prefix_tokens,
    prefix_groups: options.PrefixGroups = DEFAULTS.prefix_groups,
    prompts_per_group: options.PerGroup = DEFAULTS.prompts_per_group,
    timestamp_unit: options.Unit = DEFAULTS.timestamp_unit,
    trace_speed: options.Speed = DEFAULTS.trace_speed,
    concurrency: options.Concurrency = None,
    request_rate: options.Rate = DEFAULTS.request_rate,
    requests: Annotated[int, typer.Option(min=0, help="Send just so many; 0: until the figure is precise.")] = 0,
    stream: options.Stream = DEFAULTS.stream,
    min_s: options.MinS = DEFAULTS.min_s,
    max_s: options.MaxS = DEFAULTS.max_s,
    warmup_max_s: options.WarmupMaxS = DEFAULTS.warmup_max_s,
    precision: options.Precision = DEFAULTS.precision,
    cached_limit: options.CachedLimit = DEFAULTS.cached_limit,
    metric: Annotated[str, typer.Option(help="The figure whose interval ends the load.")] = Objective().metric,
    workers: options.Workers = DEFAULTS.workers,
    seed: Annotated[int | None, typer.Option(help="For the same prompts again; left out: fresh ones.")] = None,
    tag: Annotated[str, typer.Option(help="A name for the row.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, named as bench_serving's.")] = False,
) -> None:
    """Measure a running server once, as a trial would. Exit code 5: the load is no valid measurement."""
    ask = BenchAsk(
        url=url,
        workload=options.workload_of(ctx.params),
        engine=engine,
        model=model,
        api_key=_key(api_key_env),
        metric=metric,
        requests=requests,
        tag=tag,
        seed=seed,
    )
    _measure_and_print(ask, json)


def _measure_and_print(ask: BenchAsk, json: bool) -> None:
    with cancel_on_signals() as cancel:
        done = bench(ask, _Line(), cancel.reason)
    typer.echo(as_json(done) if json else as_table(done))
    if cancel.signal is not None:
        sys.exit(128 + cancel.signal)
    if done.measurement.refused:
        raise typer.Exit(5)


def _key(name: str) -> str:
    if name and name not in os.environ:
        raise InputError(f"--api-key-env: the variable {name} is not set; export it")
    return os.environ[name] if name else ""


class _Line:
    """One live line on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def __call__(self, seen: Progress) -> None:
        if self._console.is_terminal:
            width = f" ±{100 * seen.half_width:.1f} %" if seen.half_width else ""
            line = f"{seen.phase} {seen.elapsed_s:.0f} s  {seen.throughput_tok_s:,.0f} tok/s{width}  "
            line += f"{seen.in_flight} in flight, {seen.completed} done, {seen.failed} failed"
            self._console.print(line.ljust(self._console.width - 1), end="\r")


def as_json(done: Benched) -> str:
    """The row, and what bench_serving has no name for: ``stderr``, ``findings``, ``valid``, ``ended``."""
    found = done.measurement.findings
    more = {
        "estimates": done.measurement.estimates,
        "findings": found,
        "valid": not done.measurement.refused,
        "ended": done.ended,
    }
    return msgspec.json.encode({**done.row, **more}).decode()


RATES = (
    ("requests", "request_throughput", "req/s"),
    ("input tokens", "input_throughput", "tok/s"),
    ("output tokens", "output_throughput", "tok/s"),
    ("all tokens", "total_throughput", "tok/s"),
    ("in flight", "concurrency", ""),
)
LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2e_latency"))
FIGURES = ("mean", "median", "p90", "p95", "p99")
STEADY_NAMES = {
    "request_throughput": "request_throughput_req_s",
    "input_throughput": "input_throughput_tok_s",
    "output_throughput": "output_throughput_tok_s",
    "total_throughput": "total_throughput_tok_s",
    "concurrency": "concurrency",
}


def as_table(done: Benched) -> str:
    """For a person: throughputs of the steady window and of the whole run, latencies, findings."""
    row, seen = done.row, done.measurement
    lines = [
        f"{row['completed']:,} requests completed, {row['failed']:,} failed in {row['duration']:.1f} s"
        f" (steady window {seen.window_s:.1f} s; ended: {done.ended})",
        "",
        f"{'per second':<16}{'steady':>14}{'stderr':>12}{'whole run':>14}",
        *(_rate_line(done, title, name, unit) for title, name, unit in RATES),
    ]
    if latencies := [_latency_line(row, title, name) for title, name in LATENCIES if f"mean_{name}_ms" in row]:
        lines += ["", f"{'ms, whole run':<16}" + "".join(f"{figure:>12}" for figure in FIGURES), *latencies]
    marks = [f"{'REFUSED' if f.fatal else 'note'}  {f.gate}: {f.message}" for f in seen.findings]
    return "\n".join([*lines, *([""] if marks else []), *marks])


def _rate_line(done: Benched, title: str, name: str, unit: str) -> str:
    steady, error = done.measurement.steady.get(STEADY_NAMES[name]), done.measurement.estimates.get(STEADY_NAMES[name])
    stderr = f"{error.stderr:,.2f}" if error else ""
    return f"{title:<16}{_number(steady):>14}{stderr:>12}{_number(done.row.get(name)):>14} {unit}".rstrip()


def _latency_line(row: dict[str, RowValue], title: str, name: str) -> str:
    return f"{title:<16}" + "".join(f"{_number(row.get(f'{figure}_{name}_ms')):>12}" for figure in FIGURES)


def _number(value: RowValue) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else "-"
