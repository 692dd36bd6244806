"""What is known beside the log changes the verdict where it should."""

from __future__ import annotations

import pytest

from autotune.diagnosis import Facts, diagnose

AMBIGUOUS = "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has 704.94 MiB free.\n"


def test_a_refused_flag_prunes_only_when_it_is_searched() -> None:
    """A refused flag that the study varies condemns the trial, another one the study."""
    searched = Facts(engine="sglang", exit_code=2, searched_flags=("cuda_graph_max_bs",))
    fixed = Facts(engine="sglang", exit_code=2, searched_flags=("stream-interval",))
    assert diagnose(AMBIGUOUS, searched).action == "prune"
    assert diagnose(AMBIGUOUS, fixed).action == "stop"
    assert diagnose(AMBIGUOUS, Facts(engine="sglang", exit_code=2)).action == "stop"


def test_a_constraint_between_searched_knobs_prunes() -> None:
    """A clash of values is matched with the searched names in whatever spelling."""
    log = "Value error, max_num_batched_tokens (32) must be greater than or equal to max_num_seqs (64).\n"
    assert diagnose(log, Facts(engine="vllm", exit_code=1, searched_flags=("--max-num-seqs",))).action == "prune"
    assert diagnose(log, Facts(engine="vllm", exit_code=1, searched_flags=("block-size",))).action == "stop"


@pytest.mark.parametrize(
    ("facts", "head", "kind"),
    [
        (Facts(phase="load"), "", "oom_runtime"),
        (Facts(phase="startup"), "[2026-01-01 00:00:00] Load weight begin. avail mem=70 GB\n", "oom_weights"),
        (Facts(phase="startup"), "[2026-01-01 00:00:00] Load weight end. avail mem=9 GB\n", "oom_kv"),
        (Facts(phase="startup"), "[2026-01-01 00:00:00] Capture cuda graph begin. avail mem=9 GB\n", "oom_graph"),
        (Facts(phase="startup"), "[2026-01-01 00:00:00] The server is fired up and ready to roll!\n", "oom_runtime"),
    ],
)
def test_memory_is_classed_by_stage(facts: Facts, head: str, kind: str) -> None:
    """The same error has the class of the stage in which it happened."""
    assert diagnose(head + OOM, facts).kind == kind


def test_the_kernel_log_proves_a_host_out_of_memory() -> None:
    """A kill that left no trace in the log is explained by the kernel's."""
    kernel = "[1.0] audit: x\n[2.0] Out of memory: Killed process 99 (llama-server) total-vm:9kB\n"
    found = diagnose("model loaded\n", Facts(phase="startup", exit_code=137, kernel_log=kernel))
    assert (found.kind, found.action) == ("oom_host", "stop")
    assert any("Killed process 99" in text for text in found.evidence)


def test_the_kernel_log_does_not_outrank_a_traceback() -> None:
    """A cause in the server's own log comes before the kernel's line about some process."""
    kernel = "[2.0] Out of memory: Killed process 99 (chrome)\n"
    assert diagnose(OOM, Facts(phase="load", exit_code=-9, kernel_log=kernel)).kind == "oom_runtime"


@pytest.mark.parametrize("code", [-9, 137, 1, 0, -11, 134, None])
def test_an_exit_status_alone_proves_nothing(code: int | None) -> None:
    """Without any text the class is crash_other, whatever the status."""
    assert diagnose("", Facts(phase="load", exit_code=code)).kind == "crash_other"


def test_a_command_that_is_not_there() -> None:
    """127 and 126 are the shell's and systemd's words for a command that cannot run."""
    assert diagnose("", Facts(exit_code=127)).kind == "env_error"


@pytest.mark.parametrize(("silent", "kind"), [(5.0, "ok"), (59.0, "ok"), (61.0, "hang")])
def test_silence_under_load(silent: float, kind: str) -> None:
    """A server under load that says nothing for a minute hangs, though its process lives."""
    log = "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 6, #token: 1936, #queue-req: 5,\n"
    assert diagnose(log, Facts(engine="sglang", phase="load", alive=True, silent_seconds=silent)).kind == kind


def test_alive_and_recovered() -> None:
    """An out-of-memory error that a probe got over does not fail a server that serves afterwards."""
    log = OOM + "INFO:     Application startup complete.\n"
    found = diagnose(log, Facts(engine="vllm", phase="ready", alive=True))
    assert (found.kind, found.action) == ("ok", "score")


def test_the_first_cause_in_time_wins() -> None:
    """Of two causes the earlier stamp counts, even if its line was written later."""
    log = (
        "[2026-02-12 09:01:58 TP0] RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "[2026-02-12 09:01:57 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.\n"
    )
    found = diagnose(log, Facts(engine="sglang", phase="load", exit_code=-9))
    assert found.kind == "oom_runtime"
    assert "TP3" in " ".join(found.evidence)


def test_evidence_is_the_original_line() -> None:
    """Evidence keeps the prefix, so that it can be found in the log."""
    log = "[2026-02-12 09:01:57 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.\n"
    assert log.strip() in diagnose(log, Facts(engine="sglang", phase="load")).evidence


def test_advice_names_a_knob_and_its_direction() -> None:
    """Too small a pool and too full a card ask for opposite moves of the same flag."""
    small = diagnose(
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", Facts(engine="sglang")
    )
    full = diagnose(OOM, Facts(engine="sglang", phase="load"))
    assert "raise --mem-fraction-static" in small.advice
    assert "lower --mem-fraction-static" in full.advice


def test_an_iterable_of_lines_is_read_once() -> None:
    """A generator of lines does as well as a text."""
    assert diagnose((text for text in [OOM]), Facts(phase="load")).kind == "oom_runtime"


def test_a_stalled_engine_behind_a_living_front_end() -> None:
    """Requests wait while nothing is generated: the log itself says that it hangs, however short the silence."""
    line = (
        "(APIServer pid=1) INFO 04-15 02:10:{second:02d} [loggers.py:259] Engine 000: "
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
        "Running: 0 reqs, Waiting: 3 reqs, GPU KV cache usage: 0.0%\n"
    )
    log = "".join(line.format(second=second) for second in (3, 13, 23))
    assert diagnose(log, Facts(engine="vllm", phase="load", alive=True, silent_seconds=5)).kind == "hang"


def test_a_process_that_held_the_memory_before() -> None:
    """Weights that do not fit because another process holds the card are tried again after a clean-up."""
    head = "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=20 GB\n"
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB of which 0.50 GiB is free. Of the allocated memory {own} GiB is allocated by PyTorch, and 0.10 GiB "
        "is reserved by PyTorch but unallocated.\n"
    )
    facts = Facts(engine="sglang", phase="startup", exit_code=-9)
    assert diagnose(head + text.format(own="20.00"), facts).action == "retry"
    assert diagnose(head + text.format(own="77.00"), facts).action == "stop"
