"""Validity gates: reasons why a load is no measurement (fatal), or worth a remark. Pure functions of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from autotune.load import waiting
from autotune.load.records import CANCELLED, FAILED, OK, RawRun
from autotune.load.sample import Window
from autotune.load.seen import GateLimits as GateLimits
from autotune.load.seen import Seen as Seen
from autotune.load.seen import Surroundings as Surroundings
from autotune.load.seen import fatal, gain
from autotune.load.sharing import Sharing
from autotune.load.timeline import trending
from autotune.values import Finding

# Chunks that a server may have counted and not yet sent when a stream was cut off at the end of a load.
UNSENT_TOKENS = 16
OWN_ENDS = ("max_s", "precise")
TEMPLATE_TOKENS = 96
"""Tokens that a chat template puts before every message, at most: a cache answers them whatever is asked."""
MUCH_SHARED = 0.2


def findings(seen: Seen) -> tuple[Finding, ...]:
    """What the gates found, the refusing ones first."""
    found = [finding for gate in GATES for finding in gate(seen)]
    return tuple(sorted(found, key=lambda f: not f.fatal))


def generator_gate(seen: Seen) -> Iterator[Finding]:
    """The client itself was the bottleneck."""
    client, limits = seen.raw.meta.client, seen.limits
    cpu, lag = max(client.cpu_share, default=0.0), max(client.lag_typical_s, default=0.0)
    remedy = "raise workload.workers or give the client more cores"
    if cpu > limits.cpu_share:
        yield fatal("generator_cpu", f"a load worker used {cpu:.0%} of a core; {remedy}", cpu, limits.cpu_share)
    if lag > limits.lag_typical_s:
        message = f"a load worker's event loop was typically {lag * 1e3:.0f} ms late; {remedy}"
        yield fatal("generator_lag", message, lag, limits.lag_typical_s)
    yield from _in_flight(seen)


def _in_flight(seen: Seen) -> Iterator[Finding]:
    client, limits, workload = seen.raw.meta.client, seen.limits, seen.workload
    if not workload.closed:
        late_s = max(client.late_max_s, waiting.late_s(seen.raw))
        if workload.concurrency <= 0 and late_s > limits.late_s:
            message = f"requests were sent up to {late_s:.2f} s after they were due; raise workload.workers"
            yield fatal("generator_late", message, late_s, limits.late_s)
        return
    if seen.window is None:
        return
    inside = [n for t, n in client.in_flight if seen.window.start <= t <= seen.window.end]
    share = float(np.median(inside)) / workload.concurrency if inside else 1.0
    sent = waiting.sent(seen.raw, seen.window) / workload.concurrency
    if share < limits.in_flight_share:
        message = f"only {share:.0%} of the {workload.concurrency} requests were in flight: the client did not keep up"
        yield fatal("in_flight", message, share, limits.in_flight_share)
    elif sent < limits.in_flight_share:
        message = (
            f"only {sent:.0%} of the {workload.concurrency} requests were sent, the others waited for a connection"
        )
        yield fatal("in_flight", message, sent, limits.in_flight_share)


def failed_gate(seen: Seen) -> Iterator[Finding]:
    """Failed requests, in-stream errors among them, above the workload's limit."""
    state = seen.raw.requests["state"]
    failed, answered = int((state == FAILED).sum()), int((state != CANCELLED).sum())
    if not failed:
        return
    share, limit = failed / answered, seen.workload.failed_limit
    reasons, counts = np.unique(seen.raw.requests["reason"][state == FAILED], return_counts=True)
    main = seen.raw.meta.reasons[int(reasons[np.argmax(counts)])]
    message = f"{failed} of {answered} requests failed ({share:.1%}), mostly: {main}"
    yield Finding(gate="failed_requests", message=message, fatal=share > limit, seen=share, limit=limit)


def lengths_gate(seen: Seen) -> Iterator[Finding]:
    """Outputs of another length than asked make configurations incomparable."""
    table = seen.raw.requests[(seen.raw.requests["state"] != CANCELLED) & (seen.raw.requests["status"] == 200)]
    if not len(table):
        return
    share = float((table["output_tokens"] != table["asked_out"]).mean())
    if share > max(seen.limits.output_lengths_share, seen.workload.failed_limit):
        message = f"{share:.1%} of the outputs differ in length from what was asked; does the server honour ignore_eos?"
        yield fatal("output_lengths", message, share, seen.limits.output_lengths_share)


def prompts_gate(seen: Seen) -> Iterator[Finding]:
    """Prompts that were sent as token ids: a server that counts others has cut them, or counts wrongly."""
    table = seen.raw.requests
    good = table[seen.raw.ok & (table["prompt_tokens"] > 0) & (table["asked_in"] > 0)]
    asked, counted = int(good["asked_in"].sum()), int(good["prompt_tokens"].sum())
    if not asked:
        return
    off, limit = abs(counted / asked - 1), seen.limits.prompt_tokens_share
    if off > limit:
        message = f"{asked} prompt tokens were sent and the server counts {counted}: does it truncate prompts?"
        yield fatal("prompt_lengths", message, off, limit)


def starved_gate(seen: Seen) -> Iterator[Finding]:
    """Requests that were passed over all the time: the latencies of those that were answered leave them out."""
    limits, window, wanted = seen.limits, seen.window, seen.workload.concurrency
    if window is None:
        return
    count, of = waiting.starved(seen.raw, window, limits.starved_times)
    if count > max(1, limits.starved_share * of):
        message = f"{count} of the last {of} requests waited in vain, and much longer than those answered"
        yield fatal("starved", message, count / of, limits.starved_share)
    elif seen.workload.closed and seen.raw.meta.ended in OWN_ENDS:
        share = waiting.accounted(seen.raw, window) / wanted
        if share < limits.accounted_share:
            message = f"rate and latency account for {share:.0%} of the {wanted} in flight: the others wait in vain"
            yield fatal("starved", message, share, limits.accounted_share)


def cache_gate(seen: Seen) -> Iterator[Finding]:
    """What the prefix cache answered beyond what the workload's own prompts share is not work that was measured."""
    good, asked = seen.raw.requests[seen.raw.ok], seen.raw.meta.sharing
    prompts, cached = float(good["prompt_tokens"].sum()), float(good["cached_tokens"].sum())
    told = gain(seen.around, lambda c: c.cached_tokens), gain(seen.around, lambda c: c.prompt_tokens)
    # Some servers count only the prompt tokens that no cache answered; the replies then know how many there were.
    share = max(cached, told[0] or 0) / max(prompts, told[1] or 0, 1.0)
    template = TEMPLATE_TOKENS * len(good) / prompts if prompts and seen.workload.route == "chat" else 0.0
    limit = min(1.0, seen.workload.cached_limit + asked.shared + template)
    answered = f"the prefix cache answered {share:.0%} of the prompt tokens"
    if share > limit:
        yield fatal("prefix_cache", answered + _why_cached(asked), share, limit)
    elif told[0] is not None and asked.shared > MUCH_SHARED and share < asked.shared / 4:
        message = f"{answered}, although the prompts share {asked.shared:.0%}: is it off, or too small?"
        yield Finding(gate="prefix_cache", message=message, fatal=False, seen=share, limit=asked.shared)


def _why_cached(asked: Sharing) -> str:
    shared = f", of which {asked.shared:.0%} are the workload's own" if asked.shared > 0 else ""
    if not asked.repeated:
        return shared
    return f"{shared}; {asked.repeated:.0%} were in prompts asked before: the dataset is smaller than the load"


def retraction_gate(seen: Seen) -> Iterator[Finding]:
    """Requests thrown out of a full KV pool and computed again."""
    count = gain(seen.around, lambda c: c.retractions)
    completed = int(seen.raw.ok.sum())
    if count is None or not completed:
        return
    share = count / completed
    if share > seen.limits.retractions_note:
        message = f"the server retracted {count} requests for {completed} completed: the KV pool is overcommitted"
        fatal = share > seen.limits.retractions
        yield Finding(gate="retractions", message=message, fatal=fatal, seen=share, limit=seen.limits.retractions)


def counter_gate(seen: Seen) -> Iterator[Finding]:
    """The server's own count of generated tokens against the client's.

    Between the two are the requests that were cut off or failed, whose tokens a server may count at once, at the end
    or never; so the server's count is held against the least and the most that fits.
    """
    served = gain(seen.around, lambda c: c.generated_tokens if c.source == "metrics" else None)
    table = seen.raw.requests
    counted = int(table["output_tokens"][table["state"] == OK].sum())
    if served is None or not counted:
        return
    most = counted + _open_tokens(seen.raw)
    limit = seen.limits.counters_share
    off = max(1 - served / counted, served / most - 1)
    if off > limit:
        message = f"the server counted {served} output tokens, the client {counted} to {most}: {off:.1%} apart"
        yield fatal("token_counters", message, off, limit)


def _open_tokens(raw: RawRun) -> int:
    """Tokens that a server may have made for requests that did not succeed."""
    table = raw.requests[raw.requests["state"] != OK]
    left = table["asked_out"] - table["output_tokens"]
    cut = (table["state"] == CANCELLED) & raw.meta.stream
    return int((table["output_tokens"] + np.where(cut, np.minimum(left, UNSENT_TOKENS), left)).sum())


def window_gate(seen: Seen) -> Iterator[Finding]:
    """Too little was seen, or it did not hold still."""
    own_end = seen.raw.meta.ended in OWN_ENDS
    window, limits, workload = seen.window, seen.limits, seen.workload
    if window is None:
        remedy = _longer(seen, "workload.warmup_max_s or workload.max_s")
        message = f"no steady window in {seen.raw.meta.duration_s:.0f} s; {remedy}"
        yield Finding(gate="window", message=message, fatal=seen.raw.meta.ended != "requests")
        return
    least_s = limits.window_share * workload.min_s
    if window.length_s < least_s:
        message = f"the steady window is {window.length_s:.1f} s long; {_longer(seen, 'workload.max_s')}"
        yield Finding(gate="window", message=message, fatal=own_end, seen=window.length_s, limit=least_s)
    done = int((seen.sample.ok & (seen.sample.done >= window.start) & (seen.sample.done <= window.end)).sum())
    least = max(limits.requests, limits.generations * (workload.concurrency if workload.closed else 0))
    if done < least:
        remedy = _longer(seen, "workload.min_s and workload.max_s")
        message = f"{done} requests completed in the steady window; {remedy}"
        yield Finding(gate="requests", message=message, fatal=own_end, seen=done, limit=least)
    yield from _drift(seen, window)


def _longer(seen: Seen, keys: str) -> str:
    """What makes a load longer."""
    return "send more requests" if seen.raw.meta.ended == "requests" else f"raise {keys}"


def _drift(seen: Seen, window: Window) -> Iterator[Finding]:
    rates = seen.sample.output(window.edges())
    half = len(rates) // 2
    if half < 1 or not trending(rates, window.period):
        return
    early, late = float(rates[:half].mean()), float(rates[-half:].mean())
    change, limits = (late / early - 1 if early else float("inf")), seen.limits
    if abs(change) > limits.drift_note:
        message = f"throughput changed by {change:+.0%} from the first to the second half of the steady window"
        # A trace is not meant to hold still.
        refused = abs(change) > limits.drift and seen.workload.kind != "trace"
        yield Finding(gate="drift", message=message, fatal=refused, seen=abs(change), limit=limits.drift)


def surroundings_gate(seen: Seen) -> Iterator[Finding]:
    """Others used the machine, or the GPU held its clocks down."""
    around, limits = seen.around, seen.limits
    if around.host_busy is not None and around.host_busy > limits.host_busy_note:
        message = f"other processes used {around.host_busy:.0%} of the host's CPU"
        fatal = around.host_busy > limits.host_busy
        yield Finding(gate="host_load", message=message, fatal=fatal, seen=around.host_busy, limit=limits.host_busy)
    if around.throttled is not None and around.throttled > limits.throttled_note:
        message = f"the GPU's clocks were held down for {around.throttled:.0%} of the load (heat or power)"
        fatal = around.throttled > limits.throttled
        yield Finding(gate="gpu_clocks", message=message, fatal=fatal, seen=around.throttled, limit=limits.throttled)
    if around.gpu_others:
        yield Finding(gate="gpu_load", message=f"others on the GPU: {', '.join(around.gpu_others)}", fatal=True)


GATES: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    generator_gate,
    failed_gate,
    lengths_gate,
    prompts_gate,
    starved_gate,
    cache_gate,
    retraction_gate,
    counter_gate,
    window_gate,
    surroundings_gate,
)
