"""Whose words the simulated server uses: one scheduler behind the flags, routes and log lines of several engines."""

from __future__ import annotations

from autotune.sim.dialects.base import Dialect, Sglang
from autotune.sim.dialects.llamacpp import LlamaCpp
from autotune.sim.dialects.vllm import Vllm

DIALECTS: dict[str, type[Dialect]] = {"sglang": Sglang, "vllm": Vllm, "llamacpp": LlamaCpp}

__all__ = ["DIALECTS", "Dialect"]
