"""What the driver knows of a load while it runs, from the workers' heartbeats. Takes times, asks no clock."""

from __future__ import annotations

import math

import numpy as np

from autotune.load.metrics import estimate_metric, slo_limits
from autotune.load.records import ClientHealth
from autotune.load.sample import Sample, find_window, wave_s
from autotune.load.spec import Done, Heartbeat, LoadSpec, Progress
from autotune.load.stats import relative_half_width
from autotune.load.timeline import Floats, interpolated, should_end, span_counts
from autotune.values import Estimate

JUDGE_EVERY_S = 1.0
RECENT_S = 2.0
HOPELESS_FAILURES = 20
HOPELESS_SHARE = 0.5
HOPELESS_S = 5.0


class _Worker:
    """One worker's heartbeats so far."""

    def __init__(self) -> None:
        self.last: Heartbeat | None = None
        self.ticks: list[tuple[float, int]] = []
        self.lags: list[tuple[float, float]] = []
        self.cpu: list[tuple[float, float]] = [(0.0, 0.0)]
        self.in_flight: list[tuple[float, int]] = []

    def take(self, beat: Heartbeat) -> None:
        self.last = beat
        self.ticks.extend(beat.ticks)
        self.lags.append((beat.now, beat.lag_max_s))
        self.cpu.append((beat.now, beat.cpu_s))
        if not beat.finished:
            self.in_flight.append((beat.now, beat.in_flight))


class Monitor:
    """Merges heartbeats; finds the steady window; says when the load may end."""

    def __init__(self, spec: LoadSpec, workers: int) -> None:
        self.spec = spec
        self.estimate: Estimate | None = None
        self.window_from = math.inf
        self.window_s = 0.0
        self.now = 0.0
        self._workers = [_Worker() for _ in range(workers)]
        self._done: list[Done] = []
        self._judged = 0.0

    def take(self, worker: int, beat: Heartbeat) -> None:
        self._workers[worker].take(beat)
        self._done.extend(beat.done)
        self.now = max(self.now, beat.now)

    def finished(self, worker: int) -> bool:
        last = self._workers[worker].last
        return last is not None and last.finished

    def ended(self, now: float) -> str:
        """Why the load is over, or an empty text. Judges at most once a second."""
        if all(self.finished(i) for i in range(len(self._workers))):
            return "requests"
        if self._hopeless(now):
            return "failing"
        workload = self.spec.workload
        if now - self._judged < JUDGE_EVERY_S or self.spec.requests:
            return ""
        self._judged = now
        self._judge()
        width = relative_half_width(self.estimate) if self.estimate else math.inf
        if reason := should_end(self.window_s, self.estimate, width, workload):
            return reason
        # Without streaming the window trails one latency behind; allow for it once. A window holds a whole wave.
        wave = wave_s(self._sample(), workload)
        latest = workload.warmup_max_s + max(workload.max_s, wave) + self._trail(now)
        return "max_s" if now > latest else ""

    def progress(self, now: float) -> Progress:
        lasts = self._lasts()
        last_token = max((b.last_token for b in lasts), default=0.0)
        return Progress(
            elapsed_s=now,
            phase="measure" if self.window_s > 0 else "warmup",
            output_tokens=self._tokens(),
            throughput_tok_s=self._recent(),
            in_flight=sum(b.in_flight for b in lasts),
            completed=sum(b.completed for b in lasts),
            failed=sum(b.failed for b in lasts),
            silent_s=max(0.0, now - last_token),
            window_s=self.window_s,
            estimate=self.estimate,
            half_width=relative_half_width(self.estimate) if self.estimate else None,
            last_error=next((b.last_error for b in lasts if b.last_error), ""),
        )

    def health(self) -> ClientHealth:
        """Figures of the generator over the steady window (over the whole load where there is none)."""
        start = self.window_from if math.isfinite(self.window_from) else 0.0
        lasts = self._lasts()
        return ClientHealth(
            lag_max_s=tuple(max((lag for t, lag in w.lags if t >= start), default=0.0) for w in self._workers),
            lag_typical_s=tuple(
                float(np.median([lag for t, lag in w.lags if t >= start] or [0.0])) for w in self._workers
            ),
            cpu_share=tuple(_share(w.cpu, start) for w in self._workers),
            events=tuple(b.events for b in lasts),
            late_max_s=max((b.late_max_s for b in lasts), default=0.0),
            in_flight=self._in_flight(),
        )

    def _judge(self) -> None:
        """Find the steady window as far as the reports reach, and the metric's interval inside it."""
        sample = self._sample()
        window = find_window(sample, self.spec.workload)
        if window is None:
            return
        self.window_from, self.window_s = window.start, window.length_s
        self.estimate = estimate_metric(sample, window, self.spec.metric, slo_limits(self.spec.slo))

    def _sample(self) -> Sample:
        lasts = self._lasts()
        end = min((b.now for b in lasts), default=0.0) if len(lasts) == len(self._workers) else 0.0
        stream = self.spec.workload.stream
        if not stream:
            end = min([end, *(b.oldest_send for b in lasts)])
        rows = np.array([(d.send, d.first, d.end, d.prompt_tokens, d.output_tokens, d.ok) for d in self._done], float)
        send, first, done, tokens_in, tokens_out, ok = rows.reshape(-1, 6).T
        good = ok > 0
        ticks = [(np.array([t for t, _ in w.ticks]), np.array([n for _, n in w.ticks], float)) for w in self._workers]
        spans = send[good], done[good], tokens_out[good]

        def output(edges: Floats) -> Floats:
            return interpolated(ticks, edges) if stream else span_counts(*spans, edges)

        return Sample(
            end=end,
            send=send,
            first=np.where(first < 0, np.nan, first),
            done=done,
            ok=good,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            output=output,
        )

    def _lasts(self) -> list[Heartbeat]:
        return [w.last for w in self._workers if w.last is not None]

    def _tokens(self) -> int:
        return sum(w.ticks[-1][1] for w in self._workers if w.ticks)

    def _recent(self) -> float:
        """Output tokens per second over the last two seconds."""
        total = 0.0
        for worker in self._workers:
            recent = [tick for tick in worker.ticks[-int(4 * RECENT_S / 0.05) :] if tick[0] >= self.now - RECENT_S]
            if len(recent) > 1 and recent[-1][0] > recent[0][0]:
                total += (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])
        return total

    def _trail(self, now: float) -> float:
        """How far the known part of the load is behind now."""
        if self.spec.workload.stream:
            return 0.0
        return max([0.0, *(now - b.oldest_send for b in self._lasts())])

    def _hopeless(self, now: float) -> bool:
        """Most requests fail: more of them would teach nothing."""
        failed, completed = sum(b.failed for b in self._lasts()), sum(b.completed for b in self._lasts())
        return now > HOPELESS_S and failed >= HOPELESS_FAILURES and failed > HOPELESS_SHARE * (failed + completed)

    def _in_flight(self) -> tuple[tuple[float, int], ...]:
        """Requests in flight over all workers, at the times of the first worker's heartbeats."""
        base = self._workers[0].in_flight
        times = np.array([t for t, _ in base])
        total = np.zeros(len(base))
        for worker in self._workers:
            if worker.in_flight:
                total += np.interp(times, *np.array(worker.in_flight, float).T)
        return tuple((float(t), round(float(n))) for t, n in zip(times, total, strict=True))


def _share(cpu: list[tuple[float, float]], start: float) -> float:
    """CPU seconds per second since ``start``."""
    inside = [point for point in cpu if point[0] >= start] or cpu
    (t0, c0), (t1, c1) = inside[0], inside[-1]
    return (c1 - c0) / (t1 - t0) if t1 > t0 else 0.0
