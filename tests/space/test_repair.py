"""Repair, domains and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.space.bounds import Bound, BoundInputs, derive_bounds
from autotune.space.files import load_space
from autotune.space.kv import stated_kv_capacity
from autotune.space.model_config import model_shape
from autotune.space.parameters import Space, parse_space, with_defaults
from autotune.space.repair import Domain, domains, repair, to_domain_values
from autotune.study.file import ParameterOverride, Workload
from autotune.values import ParamValue
from tests.space import configs

SGLANG = load_space("sglang")
VLLM = load_space("vllm")
INPUTS = BoundInputs(
    load=Workload(concurrency=0),
    shape=model_shape(configs.GLM_5),
    kv=stated_kv_capacity(495_488, "study"),
    version="0.5.9",
)


def bounds_of(space: Space, *names: str, **changes: Any) -> tuple[Bound, ...]:
    return derive_bounds(space, msgspec.structs.replace(INPUTS, parameters=names or space.names(), **changes))


ALL = {"sglang": (SGLANG, bounds_of(SGLANG)), "vllm": (VLLM, bounds_of(VLLM, version="0.33"))}
NUMBERS = st.one_of(st.integers(-10, 10**6), st.floats(-10, 1e6, allow_nan=False))


@st.composite
def proposals(draw: st.DrawFn) -> tuple[Space, tuple[Bound, ...], dict[str, ParamValue]]:
    space, bounds = ALL[draw(st.sampled_from(sorted(ALL)))]
    names = draw(st.lists(st.sampled_from([b.name for b in bounds] + [d.name for d in domains(space, bounds)])))
    params: dict[str, ParamValue] = {}
    for name in names:
        params[name] = draw(st.floats(0.25, 1.0)) if name.endswith("_share") else draw(NUMBERS)
    return space, bounds, params


def inside(params: dict[str, ParamValue], bounds: Sequence[Bound]) -> bool:
    for bound in bounds:
        value = params.get(bound.name)
        if value is None:
            continue
        if bound.choices:
            if value not in bound.choices:
                return False
        elif not (bound.low or 0) <= float(value) <= (bound.high or 0):
            return False
    return True


@settings(deadline=None, max_examples=300)
@given(proposals())
def test_repair_is_idempotent_inside_and_keeps_names(case: tuple[Space, tuple[Bound, ...], dict[str, Any]]) -> None:
    """Whatever is proposed, the result lies inside the bounds, keeps to its parameters, and stays as it is."""
    space, bounds, params = case
    fixed = repair(params, space, bounds)
    assert inside(fixed, bounds)
    assert repair(fixed, space, bounds) == fixed
    assert {name.removesuffix("_share") for name in params} == set(fixed)
    for name, value in fixed.items():
        assert isinstance(value, int) == (space.get(name).kind == "int")


@settings(deadline=None, max_examples=300)
@given(proposals())
def test_rules_hold(case: tuple[Space, tuple[Bound, ...], dict[str, Any]]) -> None:
    """After repair followers stay below their leaders and every other rule holds."""
    space, bounds, params = case
    fixed = repair(params, space, bounds)
    for rule in space.rules:
        if rule.parameter in fixed and rule.other in fixed:
            left, right = int(fixed[rule.parameter]), int(fixed[rule.other])
            kind = type(rule).__name__
            holds = {"Follows": left <= right, "AtMost": left <= right, "AtLeast": left >= right}
            assert holds.get(kind, kind == "DivisibleBy" and left % right == 0)


@settings(deadline=None)
@given(proposals())
def test_way_back(case: tuple[Space, tuple[Bound, ...], dict[str, Any]]) -> None:
    """A configuration made from domain values goes back to domain values inside their domains, and forth again."""
    space, bounds, params = case
    raw = to_domain_values(params, space, bounds)
    for domain in domains(space, bounds):
        if domain.name in raw:
            assert in_domain(raw[domain.name], domain)
    again = to_domain_values(repair(raw, space, bounds), space, bounds)
    assert again == raw


def in_domain(value: ParamValue, domain: Domain) -> bool:
    if domain.kind == "choice":
        return value in domain.choices
    number = float(value)
    steps = (number - domain.low) / (domain.step or 1.0)
    return domain.low <= number <= domain.high and (not domain.step or abs(steps - round(steps)) < 1e-6)


def test_ceiling_goes_along_with_the_running_limit() -> None:
    """One move of the running limit takes the graph ceiling along: the good region is one share."""
    bounds = bounds_of(SGLANG, "max_running_requests", "cuda_graph_max_bs")
    for limit in (256, 1024, 2580):
        fixed = repair({"max_running_requests": limit, "cuda_graph_max_bs_share": 1.0}, SGLANG, bounds)
        assert fixed == {"max_running_requests": limit, "cuda_graph_max_bs": limit}
    half = repair({"max_running_requests": 1024, "cuda_graph_max_bs_share": 0.5}, SGLANG, bounds)
    assert half["cuda_graph_max_bs"] == 512


def test_share_without_its_leader() -> None:
    """A share whose running limit is left to the engine is a share of the upper bound."""
    bounds = bounds_of(SGLANG, "max_running_requests", "cuda_graph_max_bs")
    assert repair({"cuda_graph_max_bs_share": 0.5}, SGLANG, bounds) == {"cuda_graph_max_bs": 1288}


def test_baseline_stays_empty() -> None:
    """The baseline sets nothing, and repair adds nothing."""
    assert repair({}, SGLANG, ALL["sglang"][1]) == {}
    assert to_domain_values({}, SGLANG, ALL["sglang"][1]) == {}


def test_page_size_of_the_base_command() -> None:
    """A page size that the base command fixes binds the chunk size."""
    space = with_defaults(SGLANG, {"page_size": 192})
    fixed = repair({"chunked_prefill_size": 2000}, space, bounds_of(space, "chunked_prefill_size"))
    assert int(fixed["chunked_prefill_size"]) % 192 == 0


def test_chunk_stays_below_prefill_limit() -> None:
    """The chunk is lowered to the prefill limit, its default included."""
    bounds = bounds_of(SGLANG, "chunked_prefill_size", "max_prefill_tokens")
    fixed = repair({"chunked_prefill_size": 16384, "max_prefill_tokens": 8192}, SGLANG, bounds)
    assert fixed == {"chunked_prefill_size": 8192, "max_prefill_tokens": 8192}


def test_vllm_batched_tokens_cover_sequences() -> None:
    """vLLM's batched tokens are raised to the number of sequences."""
    bounds = ALL["vllm"][1]
    fixed = repair({"max_num_seqs": 2048, "max_num_batched_tokens": 1024}, VLLM, bounds)
    assert fixed["max_num_batched_tokens"] == 2048


def test_domains_of_sglang() -> None:
    """Log counts have no step, the graph ceiling is a share in even steps, choices stay choices."""
    found = {d.name: d for d in domains(*ALL["sglang"])}
    assert found["max_running_requests"] == Domain(
        name="max_running_requests", parameter="max_running_requests", kind="int", low=256, high=2580, log=True
    )
    share = found["cuda_graph_max_bs_share"]
    assert (share.parameter, share.kind, share.low, share.high, share.step) == (
        "cuda_graph_max_bs",
        "float",
        0.25,
        1.0,
        0.25,
    )
    assert found["page_size"].choices == (1, 16, 32, 64)


@pytest.mark.parametrize("engine", sorted(ALL))
def test_steps_divide_domains(engine: str) -> None:
    """A stepped domain is a whole number of steps long, as samplers want it."""
    for domain in domains(*ALL[engine]):
        assert not (domain.log and domain.step)
        if domain.step:
            steps = (domain.high - domain.low) / domain.step
            assert steps == pytest.approx(round(steps), abs=1e-6)


def test_ceiling_alone_is_searched_in_its_own_units() -> None:
    """Without the running limit in the study the ceiling is searched as a number."""
    (domain,) = domains(SGLANG, bounds_of(SGLANG, "cuda_graph_max_bs"))
    assert (domain.name, domain.low, domain.high) == ("cuda_graph_max_bs", 8, 1024)


def test_choices_of_the_study_replace_shares() -> None:
    """A ceiling with choices of its own is searched by them, and still never exceeds the running limit."""
    overrides = {"cuda_graph_max_bs": ParameterOverride(choices=[256, 512, 2048])}
    bounds = bounds_of(SGLANG, "max_running_requests", "cuda_graph_max_bs", overrides=overrides)
    assert domains(SGLANG, bounds)[1].choices == (256, 512, 2048)
    fixed = repair({"max_running_requests": 600, "cuda_graph_max_bs": 2048}, SGLANG, bounds)
    assert fixed == {"max_running_requests": 600, "cuda_graph_max_bs": 512}


def test_uneven_shares_and_switches() -> None:
    """Shares at uneven distances become choices; a switch becomes true or false."""
    text = """
engine = "x"
[parameters.a]
kind = "int"
flags = [{ flag = "--a" }]
low = 10
high = 100
[parameters.b]
kind = "int"
flags = [{ flag = "--b" }]
low = 1
high = 100
[parameters.c]
kind = "bool"
flags = [{ flag = "--c" }]
[parameters.d]
kind = "choice"
flags = [{ flag = "--d" }]
choices = ["fcfs", "lpm"]
[[rules]]
kind = "follows"
parameter = "b"
leader = "a"
shares = [0.1, 0.5, 1.0]
"""
    space = parse_space(text, "x.toml")
    bounds = bounds_of(space)
    assert [d.choices for d in domains(space, bounds)] == [(), (0.1, 0.5, 1.0), (False, True), ("fcfs", "lpm")]
    fixed = repair({"a": 50, "b_share": 0.1, "c": 1, "d": "none"}, space, bounds)
    assert fixed == {"a": 50, "b": 5, "c": True, "d": "fcfs"}
    assert to_domain_values(fixed, space, bounds) == {"a": 50, "b_share": 0.1, "c": True, "d": "fcfs"}


def test_words_where_numbers_belong() -> None:
    """A server may report a word for a number ("auto"): such an axis is unknown, not an error."""
    bounds = bounds_of(SGLANG, "max_running_requests", "cuda_graph_max_bs")
    assert to_domain_values({"max_running_requests": "auto", "cuda_graph_max_bs": 64}, SGLANG, bounds) == {}


def test_unknown_parameter() -> None:
    """A name that the space lacks is refused, not passed on."""
    with pytest.raises(InputError, match="did you mean 'max_running_requests'"):
        repair({"max_running_request": 1}, SGLANG, ())


def test_not_searched_values_are_kept() -> None:
    """A parameter without a bound keeps its value."""
    assert repair({"stream_interval": 77}, SGLANG, ()) == {"stream_interval": 77}
