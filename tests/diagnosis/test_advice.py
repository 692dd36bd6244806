"""Advice names flags of the engine that failed, and of no other."""

from __future__ import annotations

from autotune.diagnosis import Facts, diagnose

CONTEXT = "0.20.841.091 E llama_init_from_model: failed to initialize the context: failed to allocate a buffer\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_an_engine_that_is_not_known_gets_no_other_ones_flags() -> None:
    """A command of the user's own is not told of flags of SGLang or vLLM."""
    for engine in ("command", "mine", "llamacpp"):
        for log in (CONTEXT, OOM):
            advice = diagnose(log, Facts(engine=engine, phase="load", exit_code=1)).advice
            assert advice
            assert "--mem-fraction-static" not in advice, (engine, advice)
            assert "--gpu-memory-utilization" not in advice, (engine, advice)


def test_a_context_that_does_not_fit_is_about_the_context() -> None:
    """Whatever the allocator says behind it."""
    for said in ("std::bad_alloc", "failed to allocate buffer for kv cache"):
        line = f"0.07.111.354 E llama_init_from_model: failed to initialize the context: {said}\n"
        found = diagnose(line, Facts(engine="command", exit_code=1))
        assert (found.kind, found.action) == ("oom_kv", "prune")
        assert "--ctx-size" in found.advice
