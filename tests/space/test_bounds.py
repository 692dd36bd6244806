"""Bounds and their derivations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from autotune.errors import InputError
from autotune.space.bounds import Bound, BoundInputs, derive_bounds, frozen_parameters
from autotune.space.files import load_space
from autotune.space.kv import Room, stated_kv_capacity
from autotune.space.model_config import model_shape
from autotune.study.file import ParameterOverride, Workload
from tests.space import configs

SGLANG = load_space("sglang")
GLM = model_shape(configs.GLM_5)
INPUTS = BoundInputs(
    load=Workload(concurrency=4096), shape=GLM, kv=stated_kv_capacity(495_488, "study"), version="0.5.9"
)


def derive(**changes: Any) -> dict[str, Bound]:
    found = derive_bounds(SGLANG, msgspec.structs.replace(INPUTS, **changes))
    return {bound.name: bound for bound in found}


def running(**changes: Any) -> Bound:
    return derive(**changes)["max_running_requests"]


def test_founding_case() -> None:
    """GLM-5 runs from 256 (8 tokens per expert) to 2,580 (in flight on average), and both figures are named."""
    bound = running()
    assert (bound.low, bound.high, bound.log, bound.step) == (256, 2580, True, 8)
    for figure in ("1,935", "2,580", "495,488", "8 tokens per expert x 256 experts / top-8", "study"):
        assert figure in bound.derivation


def test_concurrency_caps_the_running_limit() -> None:
    """More running requests than clients are the same configuration, so the clients are the bound."""
    bound = running(load=Workload(concurrency=1000))
    assert bound.high == 1000
    assert "same configuration" in bound.derivation


def test_floor_never_crosses() -> None:
    """A floor above the upper bound is lowered to it, and the derivation says so."""
    bound = running(min_tokens_per_expert=500.0)
    assert bound.low == bound.high == 2580
    assert "never crosses" in bound.derivation


def test_dense_and_unknown() -> None:
    """A dense model has no expert floor, an unknown model neither, an unknown capacity falls back."""
    dense = running(shape=model_shape(configs.LLAMA_8B))
    unknown = running(shape=None, kv=None, load=Workload())
    assert (dense.low, "dense" in dense.derivation) == (16, True)
    assert (unknown.low, unknown.high) == (16, 4096)
    assert "unknown" in unknown.derivation


def test_source_of_the_capacity_is_said() -> None:
    """The server's own number replaces the study's, and the derivation names it."""
    bound = running(kv=stated_kv_capacity(100_000, "server"))
    assert bound.high == 520
    assert "(server)" in bound.derivation


ROOM = Room(parameter="mem_fraction_static", fraction=0.80, weights=0.40)
BOTH = ("max_running_requests", "mem_fraction_static")


def test_a_larger_memory_fraction_holds_more_requests() -> None:
    """Where larger fractions are searched, the largest says how many requests fit; both capacities are named."""
    kv = stated_kv_capacity(100_000, "server", ROOM)
    bound = running(kv=kv, parameters=BOTH, overrides={BOTH[1]: ParameterOverride(high=0.9)})
    assert bound.high == int(125_000 / 192)
    for figure in ("125,000 KV tokens", "0.9", "server: 100,000 at 0.8"):
        assert figure in bound.derivation


@pytest.mark.parametrize(
    ("parameters", "room", "override"),
    [
        (("max_running_requests",), ROOM, {}),
        (BOTH, None, {}),
        (BOTH, ROOM, {"low": 0.6, "high": 0.75}),
    ],
)
def test_a_capacity_that_no_fraction_raises(parameters: tuple[str, ...], room: Room | None, override: Any) -> None:
    """Not searched, of unknown room, or searched below the default alone: the bound is the default's capacity."""
    kv = stated_kv_capacity(100_000, "server", room)
    overrides = {BOTH[1]: ParameterOverride(**override)} if override else {}
    assert running(kv=kv, parameters=parameters, overrides=overrides).high == 520


def test_choices_of_the_memory_fraction() -> None:
    """Of listed fractions the largest counts, and the order of the study's parameters does not matter."""
    kv = stated_kv_capacity(100_000, "server", ROOM)
    overrides = {BOTH[1]: ParameterOverride(choices=[0.7, 0.9, 0.8])}
    assert running(kv=kv, parameters=BOTH[::-1], overrides=overrides).high == int(125_000 / 192)


def test_graph_ceiling_follows() -> None:
    """The graph ceiling's upper bound is the running limit's, or the space's number when that is not searched."""
    assert derive()["cuda_graph_max_bs"].high == 2580
    assert derive(parameters=("cuda_graph_max_bs",))["cuda_graph_max_bs"].high == 1024


def test_order_is_the_study_s() -> None:
    """Bounds come in the order in which the study names the parameters, each once."""
    names = ("cuda_graph_max_bs", "max_running_requests", "cuda_graph_max_bs")
    assert list(derive(parameters=names)) == ["cuda_graph_max_bs", "max_running_requests"]


def test_dead_flag_is_frozen() -> None:
    """A flag that the version does not read is not searched and reported with its remedy."""
    assert "num_continuous_decode_steps" not in derive()
    (frozen,) = frozen_parameters(SGLANG, INPUTS)
    assert frozen.name == "num_continuous_decode_steps"
    assert "default 1" in frozen.reason
    assert "force = true" in frozen.reason


def test_force_searches_a_dead_flag() -> None:
    """With force the flag is searched, and its derivation says that it does nothing."""
    overrides = {"num_continuous_decode_steps": ParameterOverride(force=True)}
    assert "(force)" in derive(overrides=overrides)["num_continuous_decode_steps"].derivation
    assert frozen_parameters(SGLANG, msgspec.structs.replace(INPUTS, overrides=overrides)) == ()


@pytest.mark.parametrize(("version", "seen", "searched"), [("0.5.9", True, True), ("", False, False), ("", None, True)])
def test_inspection_beats_the_table(version: str, seen: bool | None, searched: bool) -> None:
    """What was found in the installed package wins over the versions table; knowing nothing means searching."""
    inspected = {} if seen is None else {"num_continuous_decode_steps": seen}
    assert ("num_continuous_decode_steps" in derive(version=version, inspected=inspected)) is searched


def test_override() -> None:
    """The study's numbers replace the rules and are named as the study's."""
    bound = running(overrides={"max_running_requests": ParameterOverride(low=64, high=512, step=32)})
    assert (bound.low, bound.high, bound.step) == (64, 512, 32)
    assert "study file" in bound.derivation


def test_override_choices() -> None:
    """Choices of the study replace the range, each once."""
    bound = running(overrides={"max_running_requests": ParameterOverride(choices=[256, 512, 256])})
    assert bound.choices == (256, 512)
    assert bound.low is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (ParameterOverride(low=5000), r"max_running_requests: low 5,000 is above high 2,580"),
        (ParameterOverride(low=0), r"low = 0.*log scale"),
        (ParameterOverride(step=0), r"step = 0; it must be greater than 0"),
        (ParameterOverride(step=1.5), r"step = 1\.5"),
        (ParameterOverride(high=99.5), r"high = 99\.5; write a whole number"),
        (ParameterOverride(choices=[]), r"choices: empty"),
        (ParameterOverride(choices=["x"]), r"choices: 'x' is no int"),
        (ParameterOverride(choices=[True]), r"choices: True is no int"),
    ],
)
def test_bad_overrides(override: ParameterOverride, message: str) -> None:
    """An override that makes no range is refused with file, key and remedy."""
    with pytest.raises(InputError, match=message) as caught:
        running(overrides={"max_running_requests": override}, where="x.toml")
    assert str(caught.value).startswith("x.toml: space.override.max_running_requests")


def test_unknown_names() -> None:
    """A parameter or an override that the space lacks is refused with the nearest name."""
    with pytest.raises(InputError, match=r"space\.parameters: .*did you mean 'max_running_requests'"):
        derive(parameters=("max_runing_requests",))
    with pytest.raises(InputError, match=r"space\.override: .*did you mean 'stream_interval'"):
        derive(overrides={"stream_intervall": ParameterOverride()})


def test_nothing_left() -> None:
    """A study whose only parameter is dead is refused."""
    with pytest.raises(InputError, match="nothing is left to search"):
        derive(parameters=("num_continuous_decode_steps",))


def test_choices_of_the_space_and_an_override_range() -> None:
    """A parameter with choices keeps them unless the study lists others."""
    assert derive(parameters=("page_size",))["page_size"].choices == (1, 16, 32, 64)
    other = {"page_size": ParameterOverride(choices=[1, 128])}
    assert derive(parameters=("page_size",), overrides=other)["page_size"].choices == (1, 128)
