"""Axes and regions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.search.region import Axis, Region
from autotune.space.repair import Domain
from autotune.values import ParamValue

from .worlds import DEFAULTS, SMALL, SPACE, WIDE


@st.composite
def any_domain(draw: st.DrawFn) -> Domain:
    """A dimension of any kind."""
    kind = draw(st.sampled_from(["int", "float", "names", "numbers", "flags"]))
    low = draw(st.integers(1, 500))
    high = low + draw(st.integers(0, 5000))
    log = draw(st.booleans())
    match kind:
        case "int":
            step: float | None = None if log else draw(st.integers(1, 64))
            return Domain(name="x", parameter="x", kind="int", low=low, high=high, step=step, log=log)
        case "float":
            step = None if log else draw(st.sampled_from([None, 0.25, 1.5]))
            return Domain(name="x", parameter="x", kind="float", low=low / 10, high=high / 10, step=step, log=log)
        case "names":
            return Domain(name="x", parameter="x", kind="choice", choices=("lpm", "fcfs", "random"))
        case "numbers":
            return Domain(name="x", parameter="x", kind="choice", choices=(1, 2, 4, 8))
        case _:
            return Domain(name="x", parameter="x", kind="choice", choices=(False, True))


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(-10, 10_000), st.floats(allow_nan=True), st.sampled_from(["lpm"])
)


@given(any_domain(), VALUES)
@settings(deadline=None)
def test_the_nearest_value_is_one_that_samplers_and_storage_accept(domain: Domain, value: ParamValue) -> None:
    """Whatever a server reports is moved to a value of the axis, or left out."""
    axis = Axis.of(domain)
    encoded = axis.encode(value)
    if encoded is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert axis.distribution()._contains(axis.distribution().to_internal_repr(encoded))
        nearest = axis.value(encoded)
        assert axis.shown()._contains(axis.shown().to_internal_repr(nearest))
    assert axis.nearest(nearest) == nearest


@given(any_domain(), st.floats(0, 1))
@settings(deadline=None)
def test_places_on_an_axis_lead_to_values_and_back(domain: Domain, unit: float) -> None:
    """The value at a place lies at most one step away from that place."""
    axis = Axis.of(domain)
    value = axis.at(unit)
    assert axis.nearest(value) == value
    assert 0 <= axis.unit(value) <= 1
    assert axis.at(axis.unit(value)) == value


def test_lists_of_numbers_keep_their_order_for_the_sampler_and_their_values_for_the_reader() -> None:
    """Counts 1, 2, 4, 8 are searched by their place and shown as themselves."""
    axis = Axis.of(Domain(name="steps", parameter="steps", kind="choice", choices=(1, 2, 4, 8)))
    assert axis.encode(8) == 3
    assert axis.encode(5) == 2
    assert axis.value(3) == 8
    assert not Axis.of(Domain(name="p", parameter="p", kind="choice", choices=("a", "b"))).ordered


def test_a_point_becomes_a_valid_config_and_is_found_again() -> None:
    """The baseline's values in force lie somewhere in the region."""
    point = WIDE.point(DEFAULTS)
    assert point == {"limit": 256, "ceiling_share": 0.5, "fraction": 0.8, "policy": "lpm", "steps": 1, "overlap": True}
    assert WIDE.config(point).params == DEFAULTS


@pytest.mark.parametrize("params", [{}, {"unknown": 3}, {"limit": 10**9}, {"policy": "no such"}])
def test_values_outside_the_region_are_moved_in_or_left_out(params: dict[str, ParamValue]) -> None:
    """A server may report anything; a point has values of the axes only."""
    point = WIDE.point(params)
    assert set(point) <= {axis.name for axis in WIDE.axes()}
    if "limit" in params:
        assert point["limit"] == 4096


def test_a_region_survives_json() -> None:
    """The bounds of a study are stored once."""
    import msgspec

    assert msgspec.json.decode(msgspec.json.encode(SMALL), type=Region) == SMALL
    assert Region(space=SPACE, bounds=SMALL.bounds) == SMALL
