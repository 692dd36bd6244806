"""From the command line to a loaded model: SGLang's log lines in order, with its stages and their failures."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from autotune.sim import log
from autotune.sim.faults import FaultPlan
from autotune.sim.gpufile import GpuMemory
from autotune.sim.memory import Resolved, parse_version
from autotune.sim.settings import SimSettings
from autotune.values import Stage, Value

SHARDS = 8
# Shares of the time before graph capture.
LAUNCH_SHARE, WEIGHTS_SHARE, POOL_SHARE = 0.3, 0.6, 0.1


class Plan(Value, frozen=True, kw_only=True):
    """Everything that a start needs to know."""

    settings: SimSettings
    resolved: Resolved
    faults: FaultPlan
    speed: float
    failed_exit: int | None = None


def fail(status: int | None = None) -> None:
    """End as the engine does on any failure. SGLang's parent (None) sends SIGKILL to itself: exit status -9."""
    log.line(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
    if status is not None:
        os._exit(status)
    os.kill(os.getpid(), signal.SIGKILL)


class Startup:
    """``run`` returns when the model is loaded; a start that fails ends the process there."""

    def __init__(self, plan: Plan, args: dict[str, Any], gpu: GpuMemory) -> None:
        self._plan = plan
        self._args = args
        self._gpu = gpu
        self._before_0514 = parse_version(plan.settings.version) < (0, 5, 12)

    async def run(self) -> None:
        await self._launch()
        await self._weights()
        await self._pool()
        await self._graphs()
        self._summary()

    async def _pause(self, virtual_s: float) -> None:
        await asyncio.sleep(virtual_s / self._plan.speed)

    async def _stage(self, stage: Stage) -> None:
        faults = self._plan.faults
        if "die_start" in faults and faults.text("die_start") == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hang_start" in faults and faults.text("hang_start") == stage:
            await asyncio.Event().wait()

    def _fail(self, report: Callable[[], None]) -> None:
        report()
        log.line(log.FAILED_AT_START)
        fail(self._plan.failed_exit)

    async def _launch(self) -> None:
        faults, settings = self._plan.faults, self._plan.settings
        shown = ", ".join(f"{name}={_hidden(name, value)!r}" for name, value in self._args.items())
        log.line(f"server_args=ServerArgs({shown})")
        if "exit_start" in faults:
            log.raw('Traceback (most recent call last):\n  File "<launch>", line 1\nRuntimeError: simulated exit\n')
            sys.exit(int(faults.number("exit_start") or 0))
        await self._stage("launch")
        await self._pause(settings.start_base_s * LAUNCH_SHARE)
        log.line("Init torch distributed begin.")
        if "nccl" in faults:
            self._fail(log.nccl_error)
        log.line("Init torch distributed ends. elapsed=0.18 s, mem usage=0.09 GB")

    async def _weights(self) -> None:
        faults, settings, resolved = self._plan.faults, self._plan.settings, self._plan.resolved
        log.line(f"Load weight begin. avail mem={settings.gpu_free_gb:.2f} GB")
        await self._stage("weights")
        extra_s = (faults.number("slow_start") or 0.0) * self._plan.speed
        seconds = settings.start_base_s * WEIGHTS_SHARE + extra_s
        for shard in range(SHARDS):
            log.raw(
                f"\rLoading safetensors checkpoint shards: {100 * shard // SHARDS:3d}% Completed | {shard}/{SHARDS}"
            )
            await self._pause(seconds / SHARDS)
            self._gpu.use(settings.context_gb + min(settings.weight_gb, settings.gpu_free_gb) * (shard + 1) / SHARDS)
            if shard == SHARDS // 2 and "oom_host" in faults:
                log.line(
                    "Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
                    "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
                )
                sys.exit(1)
        log.raw(f"\rLoading safetensors checkpoint shards: 100% Completed | {SHARDS}/{SHARDS}\n")
        if "oom_weights" in faults or resolved.oom == "weights":
            self._fail(lambda: log.oom_weights(settings, settings.gpu_free_gb - settings.weight_gb))
        log.line(
            f"Load weight end. elapsed={seconds:.2f} s, type={settings.architecture}, "
            f"avail mem={resolved.after_weights_gb:.2f} GB, mem usage={settings.weight_gb:.2f} GB."
        )

    async def _pool(self) -> None:
        faults, settings, resolved = self._plan.faults, self._plan.settings, self._plan.resolved
        await self._stage("kv_pool")
        await self._pause(settings.start_base_s * POOL_SHARE)
        if "no_kv" in faults or resolved.limits.kv_tokens <= 0:
            self._fail(log.no_kv)
        if "oom_kv" in faults or resolved.oom == "kv_pool":
            self._fail(lambda: log.oom_kv(settings, resolved.kv_gb, resolved.after_pool_gb))
        half = resolved.kv_gb / 2
        log.line(
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {resolved.limits.kv_tokens}, "
            f"K size: {half:.2f} GB, V size: {half:.2f} GB"
        )
        log.line(f"Memory pool end. avail mem={resolved.after_pool_gb:.2f} GB")
        self._gpu.use(settings.gpu_total_gb - resolved.after_pool_gb)
        if resolved.reduced_from is not None:
            log.line(
                f"max_running_requests was reduced from the requested {resolved.reduced_from} to "
                f"{resolved.limits.running} (per dp worker) due to the available KV cache capacity."
            )

    async def _graphs(self) -> None:
        faults, settings, resolved = self._plan.faults, self._plan.settings, self._plan.resolved
        sizes = list(resolved.limits.graph_sizes)
        await self._stage("graph_capture")
        if not sizes:
            return
        avail = resolved.after_pool_gb
        if self._before_0514:
            log.line(f"Capture cuda graph begin. This can take up to several minutes. avail mem={avail:.2f} GB")
            log.line(f"Capture cuda graph bs {sizes}")
        else:
            log.line(
                "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, "
                f"bs={sizes}, avail mem={avail:.2f} GB"
            )
        failing = "oom_graph" in faults or resolved.oom == "graph_capture"
        for done, size in enumerate(reversed(sizes)):
            left = avail - resolved.graph_gb * (done + 1) / len(sizes)
            percent = 100 * done // len(sizes)
            log.raw(
                f"\rCapturing batches (bs={size} avail_mem={max(left, 0):.2f} GB): {percent:3d}%| {done}/{len(sizes)}"
            )
            await self._pause(settings.capture_per_size_s)
            if failing and (done >= len(sizes) // 3 or left <= 0):
                log.raw("\n")
                self._fail(lambda: log.oom_graph(settings, resolved.graph_gb, 0.2))
        log.raw("\n")
        seconds = settings.capture_per_size_s * len(sizes)
        name, words = (
            ("cuda graph", "Time elapsed: ") if self._before_0514 else ("target decode CUDA graph", "elapsed=")
        )
        log.line(
            f"Capture {name} end. {words}{seconds:.2f} s. mem usage={resolved.graph_gb:.2f} GB. "
            f"avail mem={resolved.after_graphs_gb:.2f} GB."
        )
        self._gpu.use(settings.gpu_total_gb - resolved.after_graphs_gb)

    def _summary(self) -> None:
        resolved, limits = self._plan.resolved, self._plan.resolved.limits
        if resolved.hook_running is not None:
            log.line(f"Max running requests is reset to {resolved.hook_running} for this model.")
        log.line(
            f"max_total_num_tokens={limits.kv_tokens}, chunked_prefill_size={limits.chunk_tokens or -1}, "
            f"max_prefill_tokens={limits.max_prefill_tokens}, max_running_requests={limits.running}, "
            f"context_len={self._plan.settings.context_tokens}, available_gpu_mem={resolved.after_graphs_gb:.2f} GB"
        )


def _hidden(name: str, value: Any) -> Any:
    return "******" if value is not None and name in ("api_key", "admin_api_key") else value


def start_seed(seed: int | None, args: dict[str, Any]) -> str:
    """What the noise of one start is drawn from: the seed, the port and every flag; without a seed, chance.

    A tuner takes a fresh port for each start, so starts of one study differ and a repeated command does not.
    """
    return f"{seed}|{sorted(args.items(), key=str)}" if seed is not None else str(random.SystemRandom().random())
