"""A night's plan as text. Pure."""

from __future__ import annotations

import shlex

from autotune.space.bounds import Bound
from autotune.space.plan import ExpertRow, KvFigures, NightPlan


def lines(plan: NightPlan) -> tuple[str, ...]:
    """The plan as text."""
    text = [f"plan of {plan.study} ({plan.engine}); nothing is started", "", "searched"]
    text += [line for bound in plan.bounds for line in _bound_lines(bound)]
    if plan.frozen:
        text += ["", "not searched", *(f"  {f.name}: {f.reason}" for f in plan.frozen)]
    text += ["", *_kv_lines(plan.kv)]
    if plan.experts:
        text += ["", f"experts (starved below {plan.min_tokens_per_expert:g} tokens each)"]
        text += [_expert_line(row) for row in plan.experts]
    if plan.command:
        text += ["", "command line of the baseline", f"  {plan.command_line or shlex.join(plan.command)}"]
    text += ["", *_time_lines(plan)]
    return (*text, "", "notes", *(f"  {note}" for note in plan.notes)) if plan.notes else tuple(text)


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def _bound_lines(bound: Bound) -> list[str]:
    if bound.choices:
        span = ", ".join(str(choice) for choice in bound.choices)
    else:
        scale = ", log" if bound.log else ""
        step = f", step {bound.step:g}" if bound.step else ""
        span = f"{bound.low:,.10g} to {bound.high:,.10g}{step}{scale}"
    return [f"  {bound.name}: {span}", f"    {bound.derivation}"]


def _kv_lines(kv: KvFigures | None) -> list[str]:
    if kv is None:
        return ["KV cache", "  capacity unknown: give model.config and model.gpu_memory_gb, or model.kv_tokens"]
    return [
        "KV cache",
        f"  {kv.capacity.derivation}",
        f"  {kv.full_length_requests:,} requests at full length ({kv.full_length_tokens:,g} tokens each)",
        f"  {kv.mean_requests:,} requests in flight ({kv.mean_tokens:,g} tokens each on average)",
    ]


def _expert_line(row: ExpertRow) -> str:
    load = f"{row.tokens_per_expert:6.4g} tokens per expert"
    return f"  {row.running:>7,} running: {load}, {row.experts_touched:.4g} experts read"


def _time_lines(plan: NightPlan) -> list[str]:
    times = plan.times
    span = f"{duration(times.trial_min_s)} to {duration(times.trial_max_s)}"
    return [
        "time (estimate)",
        f"  start {duration(times.start_s)}, trial {span}",
        f"  {plan.trials} trials: {duration(times.night_s)} (ended by the {times.night_ends_by})",
        *(f"  assumed: {note}" for note in times.assumptions),
    ]
