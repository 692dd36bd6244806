"""What the ``[workload]`` of a study file must satisfy beyond its types."""

from __future__ import annotations

from autotune.study.file import Study, Workload
from autotune.study.problem import Known, Problem, Rule

DEFAULTS = Workload()
USED_BY = {
    "dataset": ("sharegpt", "jsonl", "trace"),
    "tokenizer": ("sharegpt", "jsonl", "trace"),
    "output_from": ("sharegpt", "jsonl", "trace"),
    "context_tokens": ("sharegpt", "jsonl", "trace"),
    "input_tokens": ("random", "shared_prefix"),
    "range_ratio": ("random", "shared_prefix"),
    "prefix_tokens": ("shared_prefix",),
    "prefix_groups": ("shared_prefix",),
    "prompts_per_group": ("shared_prefix",),
    "timestamp_unit": ("trace",),
    "trace_speed": ("trace",),
}
"""Keys that only some kinds read, and which."""


def _kind(study: Study, known: Known) -> None:
    workload = study.workload
    for key, kinds in USED_BY.items():
        if workload.kind not in kinds and getattr(workload, key) != getattr(DEFAULTS, key):
            others = " or ".join(f'"{kind}"' for kind in kinds)
            raise Problem(
                f"workload.{key}", f'is not used by kind = "{workload.kind}"', f"remove it, or write kind = {others}"
            )
    if workload.from_file and not workload.dataset:
        raise Problem("workload.dataset", f'is missing for kind = "{workload.kind}"', "give the path of the file")
    if workload.from_file and workload.output_from == "dataset" and workload.output_tokens != DEFAULTS.output_tokens:
        raise Problem(
            "workload.output_tokens",
            "is not used where the dataset has the lengths of replies",
            'remove it, or write output_from = "fixed"',
        )


def _trace(study: Study, known: Known) -> None:
    workload = study.workload
    if workload.kind != "trace":
        return
    for key in ("request_rate", "levels"):
        if getattr(workload, key):
            raise Problem(
                f"workload.{key}",
                "is not used by a trace, which has arrival times of its own",
                'remove it, or write kind = "jsonl" to use its lengths alone',
            )
    if workload.arrival != DEFAULTS.arrival:
        raise Problem(
            "workload.arrival",
            "is not used by a trace, which has arrival times of its own",
            'remove it, or write kind = "jsonl" to use its lengths alone',
        )


def _arrival(study: Study, known: Known) -> None:
    workload = study.workload
    if workload.kind == "trace":
        return
    if workload.arrival == "open" and workload.request_rate <= 0:
        raise Problem("workload.request_rate", "is missing", 'arrival = "open" needs requests per second, such as 8.0')
    if workload.arrival == "closed" and workload.concurrency <= 0:
        raise Problem("workload.concurrency", "is missing", 'arrival = "closed" needs a number of requests in flight')
    if workload.arrival == "closed" and workload.request_rate:
        raise Problem("workload.request_rate", "is not used by a closed loop", 'remove it or write arrival = "open"')


def _levels(study: Study, known: Known) -> None:
    workload = study.workload
    if not workload.levels:
        return
    if workload.arrival != "closed":
        raise Problem("workload.levels", "are numbers of requests in flight", 'remove them or write arrival = "closed"')
    if len(set(workload.levels)) < len(workload.levels) or not all(0 < n <= 1_000_000 for n in workload.levels):
        raise Problem("workload.levels", "are not distinct numbers of requests", "write such as levels = [64, 256]")
    if workload.concurrency not in workload.levels:
        remedy = f"add {workload.concurrency}, or set workload.concurrency to the level that counts"
        raise Problem("workload.levels", "lacks workload.concurrency", remedy)


def _order(study: Study, known: Known) -> None:
    workload = study.workload
    if workload.min_s > workload.max_s:
        raise Problem("workload.min_s", f"{workload.min_s:g} is above max_s ({workload.max_s:g})", "exchange them")
    if workload.token_id_low >= workload.token_id_high:
        raise Problem(
            "workload.token_id_low",
            f"{workload.token_id_low} is not below token_id_high ({workload.token_id_high})",
            "give a range of token ids",
        )


WORKLOAD_RULES: tuple[Rule, ...] = (_kind, _trace, _arrival, _levels, _order)
