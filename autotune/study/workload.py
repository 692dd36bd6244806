"""The ``[workload]`` of a study file: what is asked of the server, how, and for how long."""

from __future__ import annotations

from typing import Literal

import msgspec

from autotune.values import Value

Kind = Literal["random", "sharegpt", "jsonl", "trace", "shared_prefix"]
Route = Literal["generate", "completions", "chat"]

KIND_ALIASES: dict[str, Kind] = {
    "random-ids": "random",
    "synthetic": "random",
    "custom": "jsonl",
    "mooncake": "trace",
    "timed_trace": "trace",
    "generated-shared-prefix": "shared_prefix",
    "prefix_repetition": "shared_prefix",
}
"""What sglang.bench_serving, vllm bench serve and guidellm call the same thing."""


class Workload(Value, frozen=True, kw_only=True):
    """What is asked of the server, and for how long.

    ``kind`` is where prompts and lengths come from: ``random`` token ids; the ``dataset`` file of a ``sharegpt``,
    ``jsonl`` or ``trace`` workload; or ``shared_prefix``, random questions of ``input_tokens`` behind one of
    ``prefix_groups`` prefixes of ``prefix_tokens``, each of which is replaced after ``prompts_per_group`` prompts
    (0: never).
    ``output_from`` "dataset" takes the lengths of replies from the dataset, "fixed" is ``output_tokens`` for all.
    ``tokenizer`` is a tokenizer.json, or a folder with one; only texts whose length matters need it.
    ``context_tokens`` above 0 leaves out what is longer, input and output together.
    A trace is sent at its own times, ``trace_speed`` times as fast; its numbers are in ``timestamp_unit``.
    ``range_ratio`` r draws lengths uniformly from [max(1, len * r), len]; 1.0 is a fixed length.
    ``arrival`` "closed" keeps ``concurrency`` requests in flight; "open" sends ``request_rate`` per second
    (Poisson) and never more than ``concurrency`` at once where that is set.
    ``levels`` are several concurrencies of a closed loop that one server start answers, one load each, ``concurrency``
    among them: the objective is taken there, or at the best level that holds the objective's constraints.
    A load ends when the relative half-width of the 95 % interval of the objective is at most ``precision``,
    not before ``min_s`` and not after ``max_s`` seconds of steady window; warm-up comes before, at most
    ``warmup_max_s``.
    A load is refused when more than ``failed_limit`` of its requests failed, other programs used more than
    ``host_busy_limit`` of the host's processors (a share of all of them; 1 never refuses), or a prefix cache answered
    more than ``cached_limit`` of the prompt tokens beyond what the workload itself shares.
    """

    kind: Kind = "random"
    dataset: str = ""
    tokenizer: str = ""
    output_from: Literal["dataset", "fixed"] = "dataset"
    context_tokens: int = 0
    input_tokens: int = 128
    output_tokens: int = 128
    range_ratio: float = 1.0
    prefix_tokens: int = 2048
    prefix_groups: int = 64
    prompts_per_group: int = 16
    timestamp_unit: Literal["ms", "s"] = "ms"
    trace_speed: float = 1.0
    arrival: Literal["closed", "open"] = "closed"
    concurrency: int = 0
    levels: list[int] = []
    request_rate: float = 0.0
    route: Route = "generate"
    stream: bool = True
    min_s: float = 10.0
    max_s: float = 60.0
    warmup_max_s: float = 60.0
    precision: float = 0.02
    failed_limit: float = 0.01
    host_busy_limit: float = 0.5
    cached_limit: float = 0.05
    token_id_low: int = 1000
    token_id_high: int = 30000
    workers: int = 0

    @property
    def peak(self) -> int:
        """The most requests that are in flight at once."""
        return max(self.concurrency, *self.levels) if self.levels else self.concurrency

    @property
    def from_file(self) -> bool:
        """Whether a dataset says what is asked."""
        return self.kind in ("sharegpt", "jsonl", "trace")

    @property
    def closed(self) -> bool:
        """Whether a reply brings the next request. A trace has times of its own, whatever ``arrival`` says."""
        return self.arrival == "closed" and self.kind != "trace"

    def loads(self) -> tuple[Workload, ...]:
        """The loads that one start answers, from the lightest to the heaviest."""
        if not self.levels:
            return (self,)
        return tuple(msgspec.structs.replace(self, concurrency=level, levels=[]) for level in sorted(self.levels))

    def asked(self) -> str:
        """What is asked, in words: ``128 tokens in, 128 out``."""
        out = f"{self.output_tokens} out"
        if self.from_file:
            return f"{self.kind} {self.dataset}" + (f", {out}" if self.output_from == "fixed" else "")
        if self.kind == "shared_prefix":
            return f"{self.prefix_groups} shared prefixes of {self.prefix_tokens} tokens, {self.input_tokens} in, {out}"
        return f"{self.input_tokens} tokens in, {out}"

    def paced(self) -> str:
        """When it is asked, in words: ``256 in flight``."""
        if self.kind == "trace":
            return "at the times of the trace" + (f" x {self.trace_speed:g}" if self.trace_speed != 1 else "")
        return f"{self.concurrency} in flight" if self.closed else f"{self.request_rate:g} requests per second"
