"""The batching model in (scaled) real time: jobs in, tokens out, with noise, faults and counters."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Protocol

from autotune.sim import log
from autotune.sim.faults import FaultPlan
from autotune.sim.memory import Resolved
from autotune.sim.model import Batcher
from autotune.sim.requests import SimRequest, Step
from autotune.sim.settings import SimSettings
from autotune.values import Value

# A load has begun when so many requests are in the server at once: probes come one at a time.
LOAD_REQUESTS = 3
LAG_MAX_S = 0.5


class Job(Protocol):
    """What a route hands in; ``token`` is called at step ends, ``count`` tokens exist by then."""

    stream: bool

    def token(self, count: int) -> None: ...
    def done(self, request: SimRequest) -> None: ...


class Counters:
    """Totals since the start, as /metrics shows them."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.cached_tokens = 0
        self.requests = 0
        self.gen_throughput = 0.0
        self.eager = False


class Pace(Value, frozen=True, kw_only=True):
    """How time passes: virtual seconds per real second, noise, and the intervals of streams and log lines."""

    speed: float = 1.0
    noise: float = 0.0
    seed: str = ""
    stream_interval: int = 1
    log_interval: int = 40


class Engine:
    """Runs the scheduler. ``crash`` is called when it dies by a fault or by memory, ``loaded`` when its load begins."""

    def __init__(self, settings: SimSettings, resolved: Resolved, faults: FaultPlan, pace: Pace) -> None:
        self.settings = settings
        self.resolved = resolved
        self.faults = faults
        self.batcher = Batcher(settings, resolved.limits)
        self.counters = Counters()
        self.crash: Callable[[Callable[[], None]], None] = lambda report: report()
        self.loaded: Callable[[], None] = lambda: None
        self.load_began_s: float | None = None
        self.told_limit = resolved.limits.running
        self.told_at_s: float | None = None
        self.halted = False
        self._pace = pace
        self._speed = pace.speed
        self._rng = random.Random(pace.seed)
        self._restart_factor = math.exp(self._rng.gauss(0.0, pace.noise))
        self._wander = 0.0
        self._busy_s = 0.0
        self._decode_steps = 0
        self._logged_s = 0.0
        self._logged_tokens = 0
        self._streams = 0
        self._wake = asyncio.Event()
        self._zero_s = time.monotonic()
        self._now_s = 0.0

    def clock_s(self) -> float:
        """Virtual seconds since the engine was made."""
        return (time.monotonic() - self._zero_s) * self._speed

    @property
    def idle(self) -> bool:
        return not self.batcher.running and not self.batcher.waiting

    def submit(self, request: SimRequest) -> None:
        job: Job = request.tag
        if "prefix_cache" in self.faults:
            request.blocks = ()
            request.cached_tokens = max(0, request.prompt_tokens - 1)
        self.batcher.submit(request, self.clock_s())
        self._streams += job.stream
        if self.load_began_s is None and self.batcher.running_count + len(self.batcher.waiting) >= LOAD_REQUESTS:
            self.load_began_s = self.clock_s()
            self.loaded()
        self._wake.set()

    def abort(self, request: SimRequest) -> None:
        job: Job = request.tag
        self._streams -= job.stream
        self.batcher.abort(request)
        # It may already be part of a step that is under way.
        request.tag = None

    def tell_limit(self, value: int) -> None:
        """Run at most so many requests at once from now on."""
        self.told_limit, self.told_at_s = value, time.monotonic()
        if "live_ignored" not in self.faults:
            self.batcher.running_cap = value

    def load_s(self) -> float:
        """Real seconds since the load began, below zero before."""
        return -1.0 if self.load_began_s is None else (self.clock_s() - self.load_began_s) / self._speed

    async def run(self) -> None:
        while True:
            if self.idle or self.halted:
                self._wake.clear()
                await self._wake.wait()
                self._now_s = max(self._now_s, self.clock_s())
                continue
            if self._broken():
                self.halted = True
                continue
            self.batcher.time_factor = self._time_factor()
            step = self.batcher.step()
            if step is None:
                await asyncio.sleep(0.001)
                continue
            self._busy_s += step.duration_s
            self._now_s += step.duration_s
            await self._sleep_until(self._now_s)
            self._deliver(step)

    def _broken(self) -> bool:
        """Apply the faults of this moment; True when the scheduler takes no further step."""
        if "scheduler_dead" in self.faults:
            return True
        load_s = self.load_s()
        if load_s < 0:
            return False
        batch = self.batcher.running_count + len(self.batcher.waiting)
        if "kernel_error" in self.faults:
            self.crash(log.kernel_error)
            return True
        if self.resolved.oom == "load" or "oom_load" in self.faults:
            self.crash(lambda: log.oom_load(self.settings, batch, self.resolved.after_graphs_gb))
            return True
        share = self.faults.number("retract")
        if share is not None and self._decode_steps % 20 == 19:
            before = self.batcher.retracted_total
            self.batcher.retract_count(int(share * self.batcher.running_count))
            _log_retraction(self.batcher.retracted_total - before)
        hang_s = self.faults.number("hang_load")
        return hang_s is not None and load_s >= hang_s

    def _time_factor(self) -> float:
        """Noise between starts, a slow wander within one, the first seconds' compilation, and faults."""
        sigma = self._pace.noise / 4
        self._wander += -0.01 * self._wander + self._rng.gauss(0.0, sigma * 0.14)
        cold = 1.0 + (self.settings.cold_factor - 1.0) * math.exp(-self._busy_s / self.settings.cold_s)
        factor = self._restart_factor * (1.0 + self._wander) * cold
        load_s = self.load_s()
        if load_s >= 0:
            factor *= self.faults.number("crawl") or 1.0
            factor *= 1.0 + (self.faults.number("drift") or 0.0) * load_s / 60
        return factor

    async def _sleep_until(self, target_s: float) -> None:
        behind_s = (self.clock_s() - target_s) / self._speed
        if behind_s > LAG_MAX_S:
            self._now_s = self.clock_s()
        await asyncio.sleep(max(0.0, -behind_s))

    def _deliver(self, step: Step) -> None:
        if step.decode_steps:
            self._decode_steps += step.decode_steps
            self.counters.eager = step.eager
            self._log_decode(step)
        else:
            self._log_prefill(step)
        if self._streams:
            self._emit(step)
        for request in step.finished:
            self._finish(request)

    def _emit(self, step: Step) -> None:
        produced = self.batcher.produced_by
        requests = list(self.batcher.running.values()) if step.decode_steps else step.started
        for request in requests:
            if request.tag is None:
                continue
            count = produced(request)
            if request.tag.stream and (count % self._pace.stream_interval == 0 or count == 1):
                request.tag.token(count)

    def _finish(self, request: SimRequest) -> None:
        job: Job | None = request.tag
        if job is None:
            return
        self._streams -= job.stream
        self.counters.requests += 1
        self.counters.prompt_tokens += request.prompt_tokens
        self.counters.generation_tokens += request.output_tokens
        self.counters.cached_tokens += request.cached_tokens
        job.done(request)

    def _log_prefill(self, step: Step) -> None:
        batcher = self.batcher
        rate = step.prefill_tokens / step.duration_s
        log.line(
            f"Prefill batch, #new-seq: {len(step.started)}, #new-token: {step.prefill_tokens}, "
            f"#cached-token: {step.cached_tokens}, token usage: {self.token_usage():.2f}, "
            f"#running-req: {step.running}, #queue-req: {len(batcher.waiting)}, #pending-token: 0, "
            f"cuda graph: False, input throughput (token/s): {rate:.2f}"
        )

    def _log_decode(self, step: Step) -> None:
        self._logged_tokens += step.running * step.decode_steps
        _log_retraction(step.retracted)
        if self._decode_steps % self._pace.log_interval:
            return
        elapsed_s = max(1e-9, self._now_s - self._logged_s)
        self.counters.gen_throughput = self._logged_tokens / elapsed_s
        self._logged_s, self._logged_tokens = self._now_s, 0
        log.line(
            f"Decode batch, #running-req: {step.running}, #token: {self.batcher.used_tokens}, "
            f"token usage: {self.token_usage():.2f}, cuda graph: {not step.eager}, "
            f"gen throughput (token/s): {self.counters.gen_throughput:.2f}, #queue-req: {len(self.batcher.waiting)}"
        )

    def token_usage(self) -> float:
        return self.batcher.used_tokens / max(1, self.batcher.limits.kv_tokens)


def _log_retraction(requests: int) -> None:
    if requests:
        log.line(f"KV cache pool is full. Retract requests. #retracted_reqs: {requests}")
