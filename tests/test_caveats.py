"""What a study leaves open, as plan and doctor say it, and what the first start's answer makes of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autotune.bounding import derive_region, frozen_since
from autotune.brief import Brief, read_brief
from autotune.caveats import objective_caveat, version_caveat
from autotune.doctor import look
from autotune.engines.inspect import Installed
from autotune.planning import plan_night
from autotune.space.plan_text import lines
from autotune.values import Config, Effective
from tests.nights import Night, put, records, rig, score

NAMES = ("max_running_requests", "num_continuous_decode_steps", "cuda_graph_max_bs")


def unknown(path: Path) -> Brief:
    """The study behind a wrapper that nobody looks into, without a version."""
    brief = read_brief(path)
    engine = msgspec.structs.replace(brief.study.engine, version="")
    return msgspec.structs.replace(
        brief,
        study=msgspec.structs.replace(brief.study, engine=engine),
        installed=Installed(package="sglang", reason="it runs behind docker"),
    )


def told(version: str) -> Effective:
    return Effective(source="server_info", version=version, kv_tokens=20000)


def test_a_version_that_nobody_tells_is_flagged_with_what_is_assumed(tmp_path: Path) -> None:
    """Plan and doctor say in one line what follows from it, and which key to write."""
    brief = unknown(Night(parameters=NAMES).write(tmp_path))
    text = version_caveat(brief)
    for part in ("it runs behind docker", "newest spelling", "reads num_continuous_decode_steps", "engine.version"):
        assert part in text
    (check,) = [check for check in look(brief) if check.name == "engine version"]
    assert (check.ok, check.text) == (False, text)
    assert f"  {text}" in lines(plan_night(brief))


def test_where_nothing_depends_on_it_nothing_is_said(tmp_path: Path) -> None:
    """A version that changes nothing is nobody's concern; neither is one that is known."""
    assert version_caveat(unknown(Night(parameters=("max_running_requests",)).write(tmp_path))) == ""
    assert version_caveat(read_brief(Night(parameters=NAMES).write(tmp_path))) == ""


def test_the_first_start_tells_it_and_freezes_what_that_version_ignores(tmp_path: Path) -> None:
    """The server's own version decides for all later trials what is searched."""
    brief = unknown(Night(parameters=NAMES).write(tmp_path))
    region = derive_region(brief, told("0.5.14"))
    assert {bound.name for bound in region.bounds} == {"max_running_requests", "cuda_graph_max_bs"}
    (frozen,) = frozen_since(brief, told("0.5.14"))
    assert (frozen.name, "0.5.14" in frozen.reason) == ("num_continuous_decode_steps", True)


@pytest.mark.parametrize("version", ["", "0.0.0.dev1+g123"])
def test_an_answer_without_a_release_tells_nothing(version: str, tmp_path: Path) -> None:
    """An image built from a checkout calls itself 0.0.0: that is no old version."""
    brief = unknown(Night(parameters=NAMES).write(tmp_path))
    assert len(derive_region(brief, told(version)).bounds) == len(NAMES)
    assert frozen_since(brief, told(version)) == []


def test_a_version_that_was_written_is_not_overruled(tmp_path: Path) -> None:
    """What its owner says, and what was found, was there first."""
    brief = read_brief(Night(parameters=NAMES).write(tmp_path))
    assert frozen_since(brief, told("0.3.0")) == []


@pytest.mark.parametrize(("version", "flag"), [("0.5.9", "--cuda-graph-max-bs"), ("", "--cuda-graph-max-bs-decode")])
def test_flags_are_spelled_as_the_running_server_takes_them(version: str, flag: str, tmp_path: Path) -> None:
    """From the second trial on."""
    path = Night(parameters=NAMES).write(tmp_path)
    put(path, 0, {}, msgspec.structs.replace(score(1000.0), effective=told(version)))
    shared = msgspec.structs.replace(rig(path), version="", records=records(path))
    assert shared.flags(Config(params={"cuda_graph_max_bs": 64})) == [(flag, 64)]
    assert (version_caveat(unknown(path)) == "") is bool(version)


@pytest.mark.parametrize(
    ("arrival", "metric", "says"),
    [
        ("open", "output_throughput_tok_s", True),
        ("open", "request_throughput_req_s", True),
        ("open", "goodput_req_s", False),
        ("open", "ttft_p90_s", False),
        ("closed", "output_throughput_tok_s", False),
    ],
)
def test_a_throughput_that_the_arrivals_decide(arrival: str, metric: str, says: bool, tmp_path: Path) -> None:
    """Below saturation it is the request rate: said, not forbidden."""
    brief = read_brief(Night().write(tmp_path))
    workload = msgspec.structs.replace(brief.study.workload, arrival=arrival, request_rate=4.0)
    objective = msgspec.structs.replace(brief.study.objective, metric=metric)
    study = msgspec.structs.replace(brief.study, workload=workload, objective=objective)
    brief = msgspec.structs.replace(brief, study=study)
    assert ("workload.request_rate" in objective_caveat(brief)) is says
    checks = [check for check in look(brief) if check.name == "objective"]
    assert [check.ok for check in checks] == [True] * says
    assert plan_night(brief).notes == tuple(check.text for check in checks)
