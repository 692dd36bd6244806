"""All that a report is made from, and what is derived from it. Pure; no pandas, no plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from autotune.space.inputs import Bound
from autotune.standing import state_of
from autotune.study.file import Objective, Workload
from autotune.values import Config, Infeasible, Interrupted, Measured, ParamValue, Refused, TrialResult, Value
from autotune.verdict.confirm import Judgement
from autotune.verdict.drift import Drift, detect_drift
from autotune.verdict.fit import Start
from autotune.verdict.importance import Importance, equal_within_noise, importance
from autotune.verdict.noise import NoiseModel, Tried, estimate_noise, group_trials
from autotune.verdict.objective import METRICS, Metric, gain
from autotune.verdict.schedule import BASELINE

MEMORY_KINDS = ("oom_weights", "oom_kv", "oom_graph", "oom_runtime", "oom_host")
FEW_TRIALS = 4


class Confirmed(Value, frozen=True, kw_only=True):
    """What the confirmation left. ``arms[0]`` is the baseline; ``trials`` are its own server starts."""

    sentence: str
    judgement: Judgement | None
    arms: tuple[Config, ...]
    starts: tuple[Start, ...]
    trials: tuple[TrialResult, ...] = ()


class Facts(Value, frozen=True, kw_only=True):
    """One study. ``command`` starts the chosen configuration; ``logs`` maps trial numbers to links."""

    study: str
    description: str
    objective: Objective
    workload: Workload
    engine: str
    model: str
    gpu: str
    made_at: str
    autotune_version: str
    results: tuple[TrialResult, ...]
    bounds: tuple[Bound, ...] = ()
    baseline: int | None = None
    chosen: int | None = None
    command: str = ""
    confirmed: Confirmed | None = None
    running: bool = False
    logs: dict[int, str] = {}

    @property
    def metric(self) -> Metric:
        return METRICS[self.objective.metric]

    @property
    def measured(self) -> tuple[TrialResult, ...]:
        return tuple(r for r in self.results if isinstance(r.outcome, Measured))

    def trial(self, number: int | None) -> TrialResult | None:
        return next((r for r in self.results if r.number == number), None)

    def score(self, number: int | None) -> float | None:
        found = self.trial(number)
        return found.outcome.score.value if found and isinstance(found.outcome, Measured) else None

    def names(self) -> tuple[str, ...]:
        """The searched parameters, else all that any trial set."""
        if self.bounds:
            return tuple(bound.name for bound in self.bounds)
        return tuple(sorted({name for r in self.results for name in r.config.params}))

    def bound(self, name: str) -> Bound | None:
        return next((b for b in self.bounds if b.name == name), None)


class Headline(Value, frozen=True, kw_only=True):
    """The first thing to read. ``tone`` is good, bad or plain."""

    title: str
    detail: str
    tone: str


def headline(facts: Facts) -> Headline:
    """The verdict: confirmed where it is, else as searched and said to be so."""
    judgement = facts.confirmed.judgement if facts.confirmed else None
    if judgement is None:
        return _searched(facts)
    best = judgement.headline
    defaults = sum(start.arm == BASELINE for start in facts.confirmed.starts) if facts.confirmed else 0
    against = f"{best.starts} against {defaults} of the defaults"
    inside = f"{against}, noise of one start {100 * judgement.noise:.1f} %"
    span = f"{100 * best.low:.1f} to {100 * best.high:.1f} %"
    match best.kind:
        case "gain":
            title, tone = f"Reliable gain of {100 * best.gain:.1f} %", "good"
        case "worse":
            title, tone = f"The finalist is worse by {-100 * best.gain:.1f} %: keep the defaults", "bad"
        case _:
            title, tone = "No reliable difference from the defaults", "plain"
    return Headline(
        title=title, detail=f"95 % interval {span}, confirmed on fresh server starts ({inside}).", tone=tone
    )


def _searched(facts: Facts) -> Headline:
    base, best = facts.score(facts.baseline), facts.score(facts.chosen)
    if base is not None and best is not None and facts.chosen != facts.baseline:
        relative = 100 * gain(best, base, facts.objective.metric)
        detail = "The best of many noisy values flatters itself. `autotune confirm` measures it against the defaults."
        if facts.confirmed is not None:
            detail = f"The confirmation has no verdict: {facts.confirmed.sentence}."
        return Headline(title=f"Not confirmed: {relative:+.1f} % as searched", detail=detail, tone="plain")
    if base is not None:
        detail = f"{len(facts.results)} trials; none is believed to be better than the server's defaults."
        return Headline(title="Nothing better than the defaults was found", detail=detail, tone="plain")
    if best is not None:
        detail = "There is nothing to compare the best configuration with: the defaults gave no measurement."
        return Headline(title="No baseline", detail=detail, tone="bad")
    return Headline(title="Nothing was measured", detail=_what_failed(facts), tone="bad")


def _what_failed(facts: Facts) -> str:
    kinds = Counter(state(r) for r in facts.results)
    told = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"What became of the trials: {told}." if told else "No trial is settled yet."


def state(result: TrialResult) -> str:
    """See ``standing.state_of``."""
    return state_of(result.outcome)


def reason(result: TrialResult) -> str:
    """Why a trial has no score, or what was remarked, in one sentence."""
    match result.outcome:
        case Measured(measurement=seen):
            return "; ".join(f.message for f in seen.findings)
        case Infeasible(diagnosis=found):
            return " ".join(filter(None, (f"at {found.stage}:" if found.stage else "", found.advice)))
        case Refused(findings=findings):
            return "; ".join(f.message for f in findings)
        case Interrupted(reason=why):
            return why


def asked_or_in_force(facts: Facts, result: TrialResult) -> dict[str, ParamValue]:
    """The searched parameters of a trial: as asked, else as the server reported them."""
    effective = getattr(result.outcome, "effective", None)
    in_force = effective.values if effective else {}
    both = {**in_force, **result.config.params}
    return {name: both[name] for name in facts.names() if name in both}


def tried(facts: Facts) -> list[Tried]:
    """Configurations with explicit values of the searched parameters, repeats joined."""
    explicit = [msgspec.structs.replace(r, config=Config(params=asked_or_in_force(facts, r))) for r in facts.measured]
    return group_trials(explicit)


def noise(facts: Facts) -> NoiseModel:
    return estimate_noise(group_trials(facts.measured))


def what_matters(facts: Facts) -> list[Importance]:
    """Per parameter; empty where nothing was measured."""
    groups = tried(facts)
    return importance(groups, noise(facts), facts.objective.metric) if groups else []


def as_good(facts: Facts) -> list[Tried]:
    """Settings that cannot be told from the best, the safer first."""
    groups = tried(facts)
    return equal_within_noise(groups, noise(facts), facts.objective.metric) if len(groups) > 1 else []


class Clamp(Value, frozen=True, kw_only=True):
    """A parameter that ran at another value than was asked."""

    trial: int
    parameter: str
    asked: ParamValue
    runs: ParamValue


def clamps(facts: Facts) -> list[Clamp]:
    return [
        Clamp(trial=r.number, parameter=name, asked=asked, runs=r.outcome.effective.values[name])
        for r in facts.measured
        if isinstance(r.outcome, Measured)
        for name, asked in r.config.params.items()
        if name in r.outcome.effective.values and r.outcome.effective.values[name] != asked
    ]


TIME_PARTS = ("start", "warm-up", "measure", "stop", "lost to failures", "refused or cut off", "confirmation")


def where_time_went(facts: Facts) -> dict[str, float]:
    """Seconds per part of the night; the whole time of a trial without a score is lost."""
    parts = dict.fromkeys(TIME_PARTS, 0.0)
    for result in facts.results:
        times = result.timings
        if isinstance(result.outcome, Measured):
            seen = result.outcome.measurement
            warm = min(seen.warmup_s, times.load_s)
            parts["start"] += times.prepare_s + times.start_s
            parts["warm-up"] += warm
            parts["measure"] += times.load_s - warm
            parts["stop"] += times.stop_s
        else:
            lost = "lost to failures" if isinstance(result.outcome, Infeasible) else "refused or cut off"
            parts[lost] += times.total_s
    if facts.confirmed:
        parts["confirmation"] = sum(r.timings.total_s for r in facts.confirmed.trials)
    return parts


def baselines(facts: Facts) -> list[tuple[float, float]]:
    """(seconds since the first trial, score) of every measured start of the defaults, in order."""
    everything = [*facts.results, *(facts.confirmed.trials if facts.confirmed else ())]
    first = min((_when(r.started_at) for r in everything), default=0.0)
    found = [
        (_when(r.started_at) - first, r.outcome.score.value)
        for r in everything
        if not r.config.params and isinstance(r.outcome, Measured)
    ]
    return sorted(found)


def _when(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def drift(facts: Facts, starts: Sequence[tuple[float, float]]) -> Drift:
    return detect_drift([t for t, _ in starts], [v for _, v in starts], noise(facts))


LATENCIES = ("tpot_p50_s", "e2e_p50_s", "ttft_p50_s")


class Tradeoff(Value, frozen=True, kw_only=True):
    """Throughput against one latency, a point per measured trial; ``front`` are those that no other beats in both."""

    latency: str
    trials: tuple[int, ...]
    throughput: tuple[float, ...]
    latency_s: tuple[float, ...]
    front: tuple[int, ...]


def tradeoff(facts: Facts) -> Tradeoff | None:
    """None where no latency was measured."""
    steadies = {r.number: r.outcome.measurement.steady for r in facts.measured if isinstance(r.outcome, Measured)}
    for name in LATENCIES:
        points = [
            (number, s["output_throughput_tok_s"], s[name])
            for number, s in steadies.items()
            if s.get(name, 0.0) > 0 and "output_throughput_tok_s" in s
        ]
        if points:
            front = [
                n
                for n, rate, wait in points
                if not any((r >= rate and w < wait) or (r > rate and w <= wait) for _, r, w in points)
            ]
            numbers, rates, waits = zip(*points, strict=True)
            return Tradeoff(latency=name, trials=numbers, throughput=rates, latency_s=waits, front=tuple(front))
    return None


def main_parameters(facts: Facts) -> tuple[str, str] | None:
    """The two numeric parameters with the largest effects, else the first two that vary."""
    varying = [name for name in facts.names() if len(set(_numbers(facts, name))) > 1]
    ranked = [found.parameter for found in what_matters(facts) if found.parameter in varying]
    order = [*ranked, *(name for name in varying if name not in ranked)]
    return (order[0], order[1]) if len(order) > 1 else None


def _numbers(facts: Facts, name: str) -> list[float]:
    values = [asked_or_in_force(facts, r).get(name) for r in facts.results]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def ran_out_of_memory(result: TrialResult) -> bool:
    return isinstance(result.outcome, Infeasible) and result.outcome.diagnosis.kind in MEMORY_KINDS
