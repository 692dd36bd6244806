"""The plan of a night, and the shipped studies seen through it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from autotune.space.bounds import BoundInputs
from autotune.space.files import find_shipped, load_model_shape, load_space
from autotune.space.kv import KvCapacity, Memory, estimate_kv_capacity, stated_kv_capacity, weight_gb
from autotune.space.plan import NightInputs, NightPlan, build_plan, expected_times
from autotune.space.plan_text import duration, lines
from autotune.study.file import Study, Workload
from autotune.study.load import load_study

SHIPPED = ("demo", "qwen3-30b-a3b-h200", "glm5-nvfp4-tp8")


def plan_of(name: str, **night: Any) -> tuple[Study, NightPlan]:
    path = find_shipped("studies", name)
    study = load_study(path)
    shape = load_model_shape(study.model.config, path)
    inputs = BoundInputs(
        load=study.workload,
        parameters=tuple(study.space.parameters),
        overrides=study.space.override,
        min_tokens_per_expert=study.space.min_tokens_per_expert,
        shape=shape,
        kv=capacity(study),
        version=study.engine.version,
        where=path.name,
    )
    command = tuple(study.engine.command)
    times: dict[str, Any] = {"trials": study.budget.trials, "wall_clock_s": 36000.0, "command": command, **night}
    return study, build_plan(
        load_space(study.engine.kind), inputs, NightInputs(study=name, load=study.workload, **times)
    )


def capacity(study: Study) -> KvCapacity:
    if study.model.kv_tokens:
        return stated_kv_capacity(study.model.kv_tokens, "study")
    shape = load_model_shape(study.model.config, find_shipped("studies", study.name))
    weights = study.model.weight_gb or weight_gb(shape)
    return estimate_kv_capacity(
        shape, Memory(gpu_memory_gb=study.model.gpu_memory_gb or 0, weight_gb=weights, mem_fraction=0.85)
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_studies_plan(name: str) -> None:
    """Every shipped study is named as its file, loads, and has bounds with derivations."""
    study, plan = plan_of(name)
    assert study.name == name
    assert {b.name for b in plan.bounds} >= {"max_running_requests", "cuda_graph_max_bs"}
    assert all(bound.derivation for bound in plan.bounds)


def test_founding_case_figures() -> None:
    """GLM-5 shows 1,935 and 2,580 requests, 32 and 64 tokens per expert at 1,024 and 2,048, and 256 to 2,580."""
    _, plan = plan_of("glm5-nvfp4-tp8")
    assert plan.kv is not None
    assert (plan.kv.full_length_requests, plan.kv.mean_requests) == (1935, 2580)
    rows = {row.running: row.tokens_per_expert for row in plan.experts}
    assert (rows[1024], rows[2048]) == (32, 64)
    assert (plan.bounds[0].low, plan.bounds[0].high) == (256, 2580)
    text = "\n".join(lines(plan))
    for figure in ("1,935", "2,580", "1,024 running:     32", "2,048 running:     64", "--quantization modelopt_fp4"):
        assert figure in text


def test_estimate_is_called_one() -> None:
    """A capacity from memory arithmetic is called an estimate, one of the study is not."""
    estimated, stated = ("\n".join(lines(plan_of(name)[1])) for name in ("qwen3-30b-a3b-h200", "glm5-nvfp4-tp8"))
    assert "(estimate)" in estimated
    assert "baseline trial replaces it" in estimated
    assert "(study)" in stated


def test_demo_freezes_the_dead_flag() -> None:
    """The demo shows a dead flag as not searched."""
    _, plan = plan_of("demo")
    assert [f.name for f in plan.frozen] == ["num_continuous_decode_steps"]
    assert "not searched" in "\n".join(lines(plan))


def test_demo_has_room_to_fail_and_to_win() -> None:
    """The demo's range reaches past the largest batch that fits its memory, and its night fits three minutes."""
    _, plan = plan_of("demo")
    running = plan.bounds[0]
    assert (running.low, running.high) == (64, 256)
    assert plan.times.night_s <= 180


def test_json() -> None:
    """The JSON form carries the same figures."""
    _, plan = plan_of("glm5-nvfp4-tp8")
    data = json.loads(msgspec.json.encode(plan))
    assert data["kv"]["mean_requests"] == 2580
    assert data["kv"]["capacity"]["source"] == "study"
    assert data["times"]["night_s"] == plan.times.night_s


def test_dense_or_unknown_model() -> None:
    """Without a model config there are no expert rows, and an unknown capacity says what to give."""
    inputs = BoundInputs(load=Workload(concurrency=64))
    night = NightInputs(study="x", load=Workload(), trials=2, wall_clock_s=60)
    plan = build_plan(load_space("sglang"), inputs, night)
    assert plan.experts == ()
    assert "model.kv_tokens" in "\n".join(lines(plan))


def test_times() -> None:
    """A trial is start, warm-up, load and stop; the night is the trials or the wall clock, whichever is shorter."""
    load = Workload(min_s=10, max_s=50, warmup_max_s=60)
    times = expected_times(NightInputs(study="x", load=load, trials=10, wall_clock_s=1e6, weight_gb=60))
    assert times.start_s == 60
    assert (times.trial_min_s, times.trial_max_s) == (60 + 5 + 15 + 10, 60 + 5 + 15 + 50)
    assert times.night_s == 10 * times.trial_s
    short = expected_times(NightInputs(study="x", load=load, trials=10, wall_clock_s=100, weight_gb=60))
    assert (short.night_s, short.night_ends_by) == (100, "wall clock")


def test_measured_times_replace_assumptions() -> None:
    """Times of an earlier night are used and said to be measured."""
    load = Workload()
    times = expected_times(
        NightInputs(study="x", load=load, trials=4, confirm_starts=2, wall_clock_s=1e6, start_s=7, trial_s=50)
    )
    assert (times.start_s, times.trial_s, times.night_s) == (7, 50, 300)
    assert all("before" in note for note in times.assumptions)


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (600, "10 min"), (7200, "2 h"), (12000, "3 h 20 min"), (3570, "60 min")]
)
def test_duration(seconds: float, text: str) -> None:
    """Durations read as a person would say them."""
    assert duration(seconds) == text
