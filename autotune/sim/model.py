"""Continuous batching in virtual time, after SGLang's scheduler: prefill first, then one decode step for all.

Nothing here reads a clock: ``Batcher.step`` says how long the step takes and what it yields, the caller lets
the time pass. A request may stand for ``count`` identical ones, and a call may advance many decode steps at once,
so that whole loads run in milliseconds; the server uses single requests and single steps.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque

from autotune.sim.prefix import PrefixCache
from autotune.sim.requests import SimRequest, Step
from autotune.sim.settings import Limits, SimSettings

# SGLang reserves at most this much output per request when it admits (CLIP_MAX_NEW_TOKENS).
RESERVED_OUTPUT_MAX = 4096
# Initial and least share of the remaining output that is reserved per running request, and the steps between them.
RATIO_INIT, RATIO_MIN_FACTOR, RATIO_DECAY_STEPS = 0.7, 0.14, 600
# After a retraction every remaining request can decode this many steps.
RETRACT_STEPS = 20
# How many steps are taken at once, at most, while requests wait for KV memory.
BLOCKED_STEPS = 8


def experts_touched(settings: SimSettings, batch: int) -> float:
    """Expected share of experts that one decode step reads under uniform routing, 1.0 for a dense model."""
    if not settings.experts:
        return 1.0
    return 1.0 - (1.0 - settings.experts_per_token / settings.experts) ** batch


class Batcher:
    """The scheduler's state. ``time_factor`` stretches every step (noise between starts, drift, faults)."""

    def __init__(self, settings: SimSettings, limits: Limits) -> None:
        self.settings = settings
        self.limits = limits
        self.running_cap = limits.running
        self.time_factor = 1.0
        self.waiting: deque[SimRequest] = deque()
        self.running: dict[int, SimRequest] = {}
        self.running_count = 0
        self.used_tokens = 0
        self.retracted_total = 0
        self.prefix = PrefixCache(limits.kv_tokens) if limits.radix_cache else None
        self._paced = settings.admission_steps > 0
        self._just_prefilled = False
        self._remaining = 0
        self._index = 0
        self._finishing: list[tuple[int, int, SimRequest]] = []
        self._sequence = 0
        self._ratio = self._ratio_start = min(RATIO_INIT * limits.conservativeness, 1.0)

    def submit(self, request: SimRequest, now_s: float) -> None:
        request.arrived_s = now_s
        self.waiting.append(request)

    def abort(self, request: SimRequest) -> None:
        """Forget a request whose client went away."""
        if id(request) in self.running:
            self._leave(request)
        elif request in self.waiting:
            self.waiting.remove(request)
            self.used_tokens -= request.prefilled

    def produced_by(self, request: SimRequest) -> int:
        """Output tokens so far, also in the middle of decoding."""
        if request.finish_index < 0:
            return request.produced
        return request.output_tokens - (request.finish_index - self._index)

    def step(self, max_decode_steps: int = 1) -> Step | None:
        """Advance by one prefill batch or up to ``max_decode_steps`` decode steps; None when there is no work."""
        if self.waiting and not (self._paced and self.running_count and self._just_prefilled):
            step = self._prefill()
            if step is not None:
                self._just_prefilled = True
                return step
        self._just_prefilled = False
        return self._decode(max_decode_steps) if self.running_count else None

    def _prefill(self) -> Step | None:
        step = Step(0.0, self.running_count)
        budget = self._prefill_budget()
        free = self.limits.kv_tokens - self.used_tokens - int(self._ratio * self._remaining)
        slots = self.running_cap - self.running_count
        if self._paced:
            slots = min(slots, -(-self.running_cap // self.settings.admission_steps))
        while self.waiting and budget > 0 and slots > 0:
            request = self._admissible(budget, free, slots, alone=not (self.running_count or step.started))
            if request is None:
                break
            cost = self._uncached(request)
            tokens = min(cost * request.count, budget)
            budget -= tokens
            step.prefill_tokens += tokens
            step.cached_tokens += request.cached_tokens * request.count
            if tokens < cost * request.count:
                self._prefill_part(request, tokens)
                break
            free -= request.count * (cost + int(self._ratio * self._reserve(request)))
            slots -= request.count
            step.started.append(request)
        if not step.prefill_tokens:
            return None
        for request in step.started:
            self._join(request, step)
        step.duration_s = self.time_factor * (
            self.settings.prefill_base_s + self.settings.prefill_per_token_s * step.prefill_tokens
        )
        return step

    def _prefill_budget(self) -> int:
        limits = self.limits
        budget = min(limits.chunk_tokens or limits.max_prefill_tokens, limits.max_prefill_tokens)
        # Without chunking the longest prompt still has to pass in one piece.
        return budget if limits.chunk_tokens else max(budget, self._uncached(self.waiting[0]))

    def _admissible(self, budget: int, free: int, slots: int, *, alone: bool) -> SimRequest | None:
        """The next request (or part of a group) that fits, taken from the queue."""
        head = self.waiting[0]
        if self.prefix is not None and head.blocks and not head.prefilled:
            head.cached_tokens = self.prefix.match(head.blocks, head.prompt_tokens)
        cost = self._uncached(head)
        fit = min(head.count, slots, int(free // max(1.0, cost + self._ratio * self._reserve(head))))
        if fit < 1:
            fit = 1 if alone else 0
        whole = min(fit, budget // cost)
        if whole < 1 and fit >= 1 and self.limits.chunk_tokens:
            whole = 1
        if whole < 1:
            return None
        return self.waiting.popleft() if whole == head.count else head.split(whole)

    def _prefill_part(self, request: SimRequest, tokens: int) -> None:
        request.prefilled += tokens
        self.used_tokens += tokens
        self.waiting.appendleft(request)

    @staticmethod
    def _uncached(request: SimRequest) -> int:
        return max(1, request.prompt_tokens + request.produced - request.cached_tokens - request.prefilled)

    @staticmethod
    def _reserve(request: SimRequest) -> int:
        return min(request.output_tokens - request.produced, RESERVED_OUTPUT_MAX)

    @staticmethod
    def _held(request: SimRequest, produced: int) -> int:
        return request.prompt_tokens - request.cached_tokens + produced

    def _join(self, request: SimRequest, step: Step) -> None:
        """A prefill ended: its request has one more token, and decodes from now on."""
        if self.prefix is not None and request.blocks:
            self.prefix.insert(request.blocks)
        self.used_tokens -= request.prefilled
        request.prefilled = 0
        request.produced += 1
        if request.produced >= request.output_tokens:
            step.finished.append(request)
            return
        self._rejoin(request)

    def _leave(self, request: SimRequest) -> None:
        produced = self.produced_by(request)
        del self.running[id(request)]
        self.running_count -= request.count
        self.used_tokens -= request.count * self._held(request, produced)
        self._remaining -= request.count * (request.output_tokens - produced)
        request.produced = produced
        request.finish_index = -1

    def _decode(self, max_steps: int) -> Step:
        retracted = self._retract() if self.used_tokens + self.running_count > self.limits.kv_tokens else 0
        batch = self.running_count
        steps = self._steps_at_once(max_steps)
        step = Step(0.0, batch)
        step.decode_steps = steps
        step.retracted = retracted
        step.eager = batch > self.limits.graph_max
        context = self.used_tokens + batch * (steps - 1) / 2
        step.duration_s = self.time_factor * steps * self.decode_cost_s(batch, context)
        self._index += steps
        self.used_tokens += steps * batch
        self._remaining -= steps * batch
        self._ratio = max(
            self._ratio_start * RATIO_MIN_FACTOR,
            self._ratio - steps * self._ratio_start * (1 - RATIO_MIN_FACTOR) / RATIO_DECAY_STEPS,
        )
        self._collect_finished(step)
        return step

    def decode_cost_s(self, batch: int, context_tokens: float) -> float:
        """Seconds of one decode step; a batch within the graphs is padded to the next captured size."""
        s, sizes = self.settings, self.limits.graph_sizes
        eager = batch > self.limits.graph_max
        padded = batch if eager else sizes[bisect_left(sizes, batch)]
        base = s.step_base_s * (1.0 - 0.1 * (1.0 - 1.0 / self.limits.decode_steps))
        return (
            base
            + s.expert_weights_s * experts_touched(s, batch)
            + s.decode_per_seq_s * padded
            + s.decode_per_context_token_s * context_tokens
            + (s.eager_s + s.eager_per_seq_s * batch if eager else 0.0)
        )

    def _steps_at_once(self, max_steps: int) -> int:
        while self._finishing[0][2].finish_index != self._finishing[0][0]:
            heapq.heappop(self._finishing)
        if self.waiting and self.running_count < self.running_cap:
            max_steps = min(max_steps, 1 if self._paced else BLOCKED_STEPS)
        until_full = (self.limits.kv_tokens - self.used_tokens) // self.running_count
        return max(1, min(max_steps, self._finishing[0][0] - self._index, until_full))

    def _collect_finished(self, step: Step) -> None:
        while self._finishing and self._finishing[0][0] <= self._index:
            index, _, request = heapq.heappop(self._finishing)
            if request.finish_index == index and id(request) in self.running:
                self._leave(request)
                step.finished.append(request)

    def _retract(self) -> int:
        """Send the youngest requests back to the queue until the others can decode for some steps."""
        total = 0
        while len(self.running) > 1 or self.running_count > 1:
            deficit = self.used_tokens + self.running_count * RETRACT_STEPS - self.limits.kv_tokens
            if deficit <= 0:
                break
            youngest = next(reversed(self.running.values()))
            each = self._held(youngest, self.produced_by(youngest)) + RETRACT_STEPS
            count = min(youngest.count, self.running_count - 1, -(-deficit // each))
            if count == 0:
                break
            total += count
            self._send_back(youngest, count)
        self.retracted_total += total
        if total:
            self._ratio = min(1.0, self._ratio + 0.3)
        return total

    def retract_count(self, count: int) -> None:
        """Send the youngest single requests back, whatever memory is left (a fault)."""
        for _ in range(min(count, len(self.running) - 1)):
            youngest = next(reversed(self.running.values()))
            self._send_back(youngest, youngest.count)
            self.retracted_total += youngest.count

    def _send_back(self, request: SimRequest, count: int) -> None:
        self._leave(request)
        if count < request.count:
            stays = request.split(request.count - count)
            self._rejoin(stays)
        request.cached_tokens = 0
        self.waiting.append(request)

    def _rejoin(self, request: SimRequest) -> None:
        request.finish_index = self._index + request.output_tokens - request.produced
        self._sequence += 1
        heapq.heappush(self._finishing, (request.finish_index, self._sequence, request))
        self.running[id(request)] = request
        self.running_count += request.count
        self.used_tokens += request.count * self._held(request, request.produced)
        self._remaining += request.count * (request.output_tokens - request.produced)
