"""Log lines and crash reports in SGLang's form, on standard error; a dialect may say them in other words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from autotune.sim.settings import SimSettings

SRT = "/opt/sglang/python/sglang/srt"
FAILED_AT_START = "Received sigquit from a child process. It usually means the child failed."
FAILED_RUNNING = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."


Voice = Callable[[str], str | None]


def native(message: str) -> str:
    """A line with SGLang's prefix."""
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}\n"


class Manner:
    """How this process speaks: ``voice`` turns a message into what is written, None: nothing is."""

    voice: Voice = staticmethod(native)


def speak(voice: Voice) -> None:
    """From now on ``voice`` says it."""
    Manner.voice = staticmethod(voice)


def line(message: str) -> None:
    """One log line, with its prefix."""
    if said := Manner.voice(message):
        raw(said)


def raw(text: str) -> None:
    """Text without a prefix (progress bars, tracebacks). A reader that went away is no error."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return


def access(peer: str, method: str, path: str, status: int, reason: str) -> None:
    """A line as uvicorn's access log."""
    line(f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {reason}')


def scheduler_exception(frames: list[tuple[str, int, str, str]], error: str) -> None:
    """A traceback from the scheduler process; frames are (file below srt, line, function, source)."""
    body = "".join(f'  File "{SRT}/{file}", line {no}, in {name}\n    {code}\n' for file, no, name, code in frames)
    line(f"Scheduler hit an exception: Traceback (most recent call last):\n{body}{error}\n")


def cuda_oom(
    settings: SimSettings, tried_gb: float, free_gb: float, *, exception: str = "torch.OutOfMemoryError"
) -> str:
    """The message of torch's allocator."""
    total = settings.gpu_total_gb
    free = min(max(free_gb, 0.02), total)
    used = total - free
    tried = f"{tried_gb:.2f} GiB" if tried_gb >= 1 else f"{tried_gb * 1024:.2f} MiB"
    left = f"{free:.2f} GiB" if free >= 1 else f"{free * 1024:.2f} MiB"
    return (
        f"{exception}: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total:.2f} GiB of "
        f"which {left} is free. Including non-PyTorch memory, this process has {used:.2f} GiB memory in use. Of the "
        f"allocated memory {used * 0.98:.2f} GiB is allocated by PyTorch, and {used * 0.008:.2f} GiB is reserved by "
        "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )


RUN = ("managers/scheduler.py", 4227, "run_scheduler_process", "scheduler.run_event_loop()")
INIT = ("managers/scheduler.py", 4198, "run_scheduler_process", "scheduler = Scheduler(server_args, port_args, gpu_id)")
FORWARD = [
    RUN,
    ("managers/scheduler.py", 1570, "event_loop_overlap", "batch_result = self.run_batch(batch)"),
    ("managers/tp_worker.py", 507, "forward_batch_generation", "out = self.model_runner.forward("),
    ("model_executor/model_runner.py", 2939, "forward", "output = self._forward_raw("),
]


def oom_weights(settings: SimSettings, free_gb: float) -> None:
    load = ("model_executor/model_runner.py", 1221, "load_model", "self.model = self.loader.load_model(")
    create = ("layers/quantization/unquant.py", 214, "create_weights", "torch.empty(num_experts, 2 * size, hidden)")
    scheduler_exception([INIT, load, create], cuda_oom(settings, settings.weight_gb / 64, free_gb))


def oom_kv(settings: SimSettings, kv_gb: float, free_gb: float) -> None:
    init = ("model_executor/model_runner.py", 1873, "initialize", "self.init_memory_pool()")
    pool = ("mem_cache/memory_pool.py", 741, "_create_buffers", "torch.zeros((self.size + self.page_size, heads, dim))")
    scheduler_exception([INIT, init, pool], cuda_oom(settings, max(kv_gb, 1.0) / 48, free_gb))


def no_kv() -> None:
    init = ("model_executor/model_runner.py", 1873, "init_memory_pool", "raise RuntimeError(")
    scheduler_exception([INIT, init], "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")


def oom_graph(settings: SimSettings, graph_gb: float, free_gb: float) -> None:
    capture = ("model_executor/runner/cuda_graph_runner.py", 352, "capture", "self.capture_one_batch_size(bs, forward)")
    inner = cuda_oom(settings, max(graph_gb / 8, 0.25), free_gb)
    failed = inner.replace("torch.OutOfMemoryError", "Exception: Capture cuda graph failed")
    scheduler_exception(
        [INIT, capture],
        f"{inner}\n\nDuring handling of the above exception, another exception occurred:\n\n{failed}\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n3. disable torch compile by not using "
        "--enable-torch-compile\n4. disable CUDA graph by --disable-cuda-graph. (Not recommended)",
    )


def oom_load(settings: SimSettings, batch: int, free_gb: float) -> None:
    logits = ("layers/logits_processor.py", 983, "_copy_logits_to_buffer", "logits[:, : self.vocab_size].float()")
    tried_gb = max(batch * settings.vocab_size * 4 / (1 << 30), 0.25)
    scheduler_exception([*FORWARD, logits], cuda_oom(settings, tried_gb, min(free_gb, tried_gb * 0.7)))


def kernel_error() -> None:
    scheduler_exception(
        FORWARD,
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be "
        "asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    )


def nccl_error() -> None:
    init = ("distributed/parallel_state.py", 402, "init_distributed_environment", "torch.distributed.barrier()")
    scheduler_exception(
        [INIT, init],
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\nncclSystemError: System call failed or "
        "device error.",
    )
