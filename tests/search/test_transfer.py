"""Another study's trials in the terms of this one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.search.region import Region
from autotune.search.transfer import bridge, first_config, fits
from autotune.space.bounds import Bound
from autotune.space.files import load_space
from autotune.study.transfer import Transfer
from autotune.values import Effective, Measured, ParamValue, TrialResult

from .worlds import NOW, infeasible, measured, result

RUN = Bound(name="max_running_requests", kind="int", low=128, high=2048, step=8, log=True)
GRAPH = Bound(name="cuda_graph_max_bs", kind="int", low=8, high=2048, step=8, log=True)
MEMORY = Bound(name="mem_fraction_static", kind="float", low=0.7, high=0.97, step=0.005)
REGION = Region(space=load_space("sglang"), bounds=(RUN, GRAPH, MEMORY))
ASKED: dict[str, ParamValue] = {"max_running_requests": 512, "cuda_graph_max_bs": 512, "mem_fraction_static": 0.9}


def told(values: dict[str, ParamValue], gpu_gb: float = 80.0, kv_tokens: int = 100_000) -> Measured:
    """A measured start of a server on a GPU of that size, whose weights take 20 GB."""
    pool_gb = float(values["mem_fraction_static"]) * gpu_gb - 20.0
    effective = Effective(
        source="server_info",
        kv_tokens=kv_tokens,
        running_limit=int(values["max_running_requests"]),
        values={"chunked_prefill_size": 8192, **values},
        gpu_memory_gb={"weight": 20.0, "kvcache": pool_gb},
    )
    return msgspec.structs.replace(measured(100.0), effective=effective)


def base(gpu_gb: float = 80.0) -> TrialResult:
    """This study's baseline."""
    values: dict[str, ParamValue] = {
        "max_running_requests": 2048,
        "cuda_graph_max_bs": 256,
        "mem_fraction_static": 0.85,
    }
    return result(0, {}, told(values, gpu_gb))


def left(*results: TrialResult, best: int | None = None, peak: int = 0, tokens: float = 100.0) -> Transfer:
    """What another study left."""
    return Transfer(
        source="elder",
        source_began=NOW,
        taken_at=NOW,
        request_tokens=tokens,
        peak=peak,
        best=best,
        results=results,
    )


def brought_over(
    transfer: Transfer, region: Region, history: list[TrialResult], tokens: float
) -> tuple[TrialResult, ...]:
    """All that has a place here."""
    return bridge(transfer, region, history, tokens).all_brought(transfer)


def test_a_failure_moves_to_the_fraction_that_leaves_as_many_gigabytes() -> None:
    """8 GB of 80 are 5 GB less of 30: out of memory at 0.9 there is out of memory at 0.733 here."""
    there = left(base(80.0), result(1, ASKED, infeasible()))
    found = brought_over(there, REGION, [base(30.0)], 100.0)
    assert found[-1].config.params["mem_fraction_static"] == pytest.approx(1 - 0.1 * 80 / 30)


def test_gpus_that_are_alike_keep_their_fractions() -> None:
    """Rounding in what a server tells moves nothing."""
    there = left(base(80.5), result(1, ASKED, infeasible()))
    assert brought_over(there, REGION, [base(80.0)], 100.0)[-1].config.params["mem_fraction_static"] == 0.9


def test_machines_are_alike_where_both_servers_say_so() -> None:
    """GPU and weights as large; of a server that does not tell nothing is known."""
    assert bridge(left(base(80.0)), REGION, [base(80.5)], 0.0).alike
    assert not bridge(left(base(80.0)), REGION, [base(60.0)], 0.0).alike
    assert not bridge(left(result(0, {}, measured(1.0))), REGION, [base(80.0)], 0.0).alike


def test_the_first_start_never_leaves_less_memory_than_the_other_did() -> None:
    """On a smaller GPU the fraction is lowered, on a larger one it stays."""
    there = left(base(80.0), result(1, ASKED, told(ASKED)), best=1)
    small = first_config(there, REGION, [base(40.0)])
    large = first_config(there, REGION, [base(141.0)])
    assert small is not None
    assert large is not None
    assert small.params["mem_fraction_static"] == pytest.approx(0.8)
    assert large.params == ASKED


def test_a_best_that_is_the_defaults_is_not_started() -> None:
    """Nor one whose parameters are all unknown here."""
    assert first_config(left(base()), REGION, [base()]) is None
    odd: dict[str, ParamValue] = {"schedule_policy": "lpm"}
    assert first_config(left(base(), result(1, odd, told(ASKED)), best=1), REGION, [base()]) is None


def test_the_first_start_is_inside_the_bounds() -> None:
    """What lies outside is moved to the edge, what this space lacks is left out."""
    wide: dict[str, ParamValue] = {"max_running_requests": 4096, "cuda_graph_max_bs": 4096, "schedule_policy": "lpm"}
    config = first_config(left(base(), result(1, wide, measured(9.0)), best=1), REGION, [base()])
    assert config is not None
    assert config.params == {"max_running_requests": 2048, "cuda_graph_max_bs": 2048}


def test_trials_far_outside_the_bounds_are_left_out() -> None:
    """A running limit of 16 says nothing of 128; one of 120 stands for it."""
    far = result(1, {**ASKED, "max_running_requests": 16}, told({**ASKED, "max_running_requests": 16}))
    near = result(2, {**ASKED, "max_running_requests": 120}, told({**ASKED, "max_running_requests": 120}))
    assert [r.number for r in brought_over(left(far, near), REGION, [base()], 100.0)] == [2]


def test_parameters_that_the_other_did_not_report_stand_as_in_this_baseline() -> None:
    """It had left them alone."""
    plain = result(1, {"max_running_requests": 512, "cuda_graph_max_bs": 512}, measured(9.0))
    found = brought_over(left(plain), REGION, [base()], 100.0)
    assert found[0].config.params == {
        "max_running_requests": 512,
        "cuda_graph_max_bs": 512,
        "mem_fraction_static": 0.85,
    }


def test_requests_are_counted_as_this_study_sends_them() -> None:
    """Tokens of the pool by the length of requests, and no more in flight than there were clients."""
    there = left(result(1, ASKED, told(ASKED)), peak=300, tokens=200.0)
    found = brought_over(there, REGION, [base()], 100.0)[0]
    assert isinstance(found.outcome, Measured)
    assert found.outcome.effective.kv_tokens == 50_000
    assert found.outcome.effective.running_limit == 300
    assert found.config.params["max_running_requests"] == 300


@given(st.floats(20, 200), st.floats(20, 200), st.floats(0.5, 0.99))
def test_as_many_gigabytes_stay_free(there_gb: float, here_gb: float, fraction: float) -> None:
    """Whatever the sizes of the two GPUs."""
    values = {**ASKED, "mem_fraction_static": 0.9}
    way = bridge(left(result(0, {}, told(values, there_gb))), REGION, [base(here_gb)], 100.0)
    kept_gb = (1 - way.fraction(fraction)) * here_gb
    assert kept_gb == pytest.approx((1 - fraction) * there_gb, rel=0.025)


@pytest.mark.parametrize(
    ("bound", "value", "inside"),
    [
        (RUN, 2200, True),
        (RUN, 4096, False),
        (MEMORY, 0.69, True),
        (MEMORY, 0.5, False),
        (Bound(name="p", kind="choice", choices=("lpm", "fcfs")), "lof", False),
        (Bound(name="p", kind="choice", choices=("lpm", "fcfs")), "lpm", True),
        (Bound(name="n", kind="int", choices=(1, 2, 4)), 3, True),
        (Bound(name="n", kind="int", choices=(1, 2, 4)), 16, False),
        (Bound(name="b", kind="bool", choices=(False, True)), True, True),
    ],
)
def test_what_fits_the_bounds(bound: Bound, value: ParamValue, inside: bool) -> None:
    """A little outside is the edge, names must be there."""
    assert fits(bound, value) is inside
