"""Trials in virtual time: reproducible, noisy as asked, and free of effect where the engine has none."""

from __future__ import annotations

import math
import statistics

import pytest

from autotune.errors import InputError
from autotune.sim.profiles import profile
from autotune.sim.virtual import VirtualLoad, simulate, steady_state

LOAD = VirtualLoad(concurrency=64, input_tokens=64, output_tokens=32)


def test_same_arguments_same_result() -> None:
    """The same seed gives the same trial, another seed another."""
    one, two = (simulate("demo", {}, LOAD, 3, 0.05) for _ in range(2))
    assert one == two
    assert simulate("demo", {}, LOAD, 4, 0.05).throughput_tok_s != one.throughput_tok_s


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_restart_noise_has_the_asked_size(noise: float) -> None:
    """The spread of the logarithm between starts is the asked one, with a quarter of it added within a start."""
    logs = []
    for seed in range(400):
        result = simulate("demo", {}, LOAD, seed, noise)
        assert result.throughput_tok_s is not None
        assert result.true_tok_s is not None
        logs.append(math.log(result.throughput_tok_s / result.true_tok_s))
    assert statistics.stdev(logs) == pytest.approx(noise * math.hypot(1, 0.25), rel=0.15)
    assert abs(statistics.mean(logs)) < 0.2 * noise


def test_dead_flag_has_no_true_effect() -> None:
    """Decode steps change the drawn noise but not the true throughput."""
    plain, dead = (simulate("demo", {"num_continuous_decode_steps": n}, LOAD) for n in (1, 8))
    assert plain.true_tok_s == dead.true_tok_s
    assert plain.throughput_tok_s != dead.throughput_tok_s


def test_oom_costs_time_but_has_no_throughput() -> None:
    """Out of memory during the start ends it early, under load it costs the whole start and the time to die."""
    graph = simulate("demo", {"cuda_graph_max_bs": 400}, LOAD)
    load = simulate("demo", {"mem_fraction_static": 0.93}, LOAD)
    assert (graph.oom, graph.load_s, graph.throughput_tok_s) == ("graph_capture", 0.0, None)
    assert (load.oom, load.load_s, load.throughput_tok_s) == ("load", LOAD.death_s, None)


def test_random_lengths_are_close_to_their_mean() -> None:
    """A load of uniform lengths around a mean serves about as many tokens as one of that fixed length."""
    spread = VirtualLoad(concurrency=64, input_tokens=80, output_tokens=80, range_ratio=0.6)
    fixed = VirtualLoad(concurrency=64, input_tokens=64, output_tokens=64)
    one, two = (simulate("demo", {}, load, 0, 0.0).true_tok_s for load in (spread, fixed))
    assert one == pytest.approx(two, rel=0.25)


def test_latency_figures_follow_the_queue() -> None:
    """With more requests than may run, waiting shows in the time to the first token."""
    crowded = simulate("demo", {"max_running_requests": 8}, LOAD, 0, 0.0)
    roomy = simulate("demo", {"max_running_requests": 64, "cuda_graph_max_bs": 64}, LOAD, 0, 0.0)
    assert crowded.ttft_mean_s > 2 * roomy.ttft_mean_s
    assert crowded.tpot_mean_s < roomy.tpot_mean_s


def test_unknown_profile_names_the_known() -> None:
    """An unknown machine is an input error that lists the known ones."""
    with pytest.raises(InputError, match="demo, qwen3-30b-h200, glm5-nvfp4"):
        simulate("h300", {}, LOAD)


def test_effective_values_are_reported() -> None:
    """The result carries what is in force: the hook's limit and the GPU's ceiling for a default start."""
    effective = simulate("demo", {}, LOAD).effective
    assert (effective["max_running_requests"], effective["cuda_graph_max_bs"]) == (24, 24)


def test_a_lowered_limit_changes_the_batch_and_nothing_else() -> None:
    """Throughput is that of a fresh start at the limit with the same graphs; a limit above the one in force is none."""
    settings, load = profile("demo"), VirtualLoad(concurrency=64, input_tokens=32, output_tokens=24)
    high = frozenset({("max_running_requests", 48), ("cuda_graph_max_bs", 48)})
    low = frozenset({("max_running_requests", 16), ("cuda_graph_max_bs", 48)})
    lowered_state, fresh = steady_state(settings, high, load, 16), steady_state(settings, low, load)
    assert lowered_state.throughput_tok_s == pytest.approx(fresh.throughput_tok_s, rel=1e-3)
    assert steady_state(settings, high, load, 500) == steady_state(settings, high, load)
    assert steady_state(settings, high, load).throughput_tok_s > 1.2 * fresh.throughput_tok_s
