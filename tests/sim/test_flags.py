"""The command line: SGLang's rules by version, and the faults' names."""

from __future__ import annotations

import random

import pytest

from autotune.errors import InputError
from autotune.sim.faults import FAULTS, SOAK, FaultPlan, parse_faults, with_random_fault
from autotune.sim.flags import parse
from autotune.sim.startup import start_seed


def test_given_flags_only() -> None:
    """Only modelled flags that were given and differ from the default are passed to the model."""
    _, options, given, _ = parse(["--max-running-requests", "32", "--stream-interval", "4", "--sim-seed", "7"])
    assert given == {"max_running_requests": 32}
    assert options.seed == 7
    assert options.profile == "demo"


@pytest.mark.parametrize(
    ("version", "flag", "accepted"),
    [
        ("0.5.9", "--cuda-graph-max-bs", True),
        ("0.5.9", "--cuda-graph-max-bs-decode", False),
        ("0.5.14", "--cuda-graph-max-bs", True),
        ("0.5.14", "--cuda-graph-max-bs-decode", True),
        ("0.5.23", "--cuda-graph-max-bs", False),
        ("0.5.23", "--cuda-graph-max-bs-decode", True),
        ("0.5.14", "--max-runing-requests", False),
    ],
)
def test_flag_by_version(version: str, flag: str, accepted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Each version accepts its own spelling; the rest ends with argparse's usage and status 2."""
    argv = ["--sim-version", version, flag, "64"]
    if accepted:
        assert parse(argv)[2] in ({"cuda_graph_max_bs": 64}, {"cuda_graph_max_bs_decode": 64})
        return
    with pytest.raises(SystemExit) as stop:
        parse(argv)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "usage: sglang serve" in error
    assert ("ambiguous option" if version == "0.5.23" else "unrecognized arguments") in error


def test_a_unique_prefix_is_accepted() -> None:
    """As with SGLang a unique prefix of a flag is that flag."""
    assert parse(["--mem-fraction", "0.8"])[2] == {"mem_fraction_static": 0.8}


def test_faults_are_named_and_parsed() -> None:
    """Faults take their default argument, dashes count as underscores, unknown names and bad numbers are refused."""
    plan = parse_faults(["slow-start=2", "deaf", "crawl"])
    assert plan.number("slow_start") == 2.0
    assert plan.number("crawl") == 50.0
    assert plan.number("drift") is None
    assert "deaf" in plan
    with pytest.raises(InputError, match="no fault 'nonsense'"):
        parse_faults(["nonsense"])
    with pytest.raises(InputError, match="is not a number"):
        parse_faults(["slow_start=soon"])


def test_random_faults_come_at_their_rate() -> None:
    """About the asked share of starts gets a fault, each of a known name, the same ones for the same seed."""
    plans = [with_random_fault(FaultPlan(), 0.25, random.Random(seed)) for seed in range(1000)]
    assert 200 < sum(bool(plan) for plan in plans) < 300
    assert plans[5] == with_random_fault(FaultPlan(), 0.25, random.Random(5))
    assert all(name in FAULTS for plan in plans for name in plan.active)
    assert {fault.partition("=")[0] for fault in SOAK} == {name for plan in plans for name in plan.active}


def test_a_start_is_seeded_by_seed_port_and_flags() -> None:
    """With a seed a repeated command is the same start, a fresh port another; without one every start is."""
    one, two = (parse(["--port", port])[0] for port in ("1000", "1001"))
    assert start_seed(7, one) == start_seed(7, dict(one)) != start_seed(7, two)
    assert start_seed(8, one) != start_seed(7, one)
    assert start_seed(None, one) != start_seed(None, one)


def test_help_lists_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """The simulator's own help names each fault and ends with status 0."""
    with pytest.raises(SystemExit) as stop:
        parse(["--sim-help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in FAULTS)


def test_a_port_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started, with the range."""
    with pytest.raises(SystemExit):
        parse(["--port", "99999"])
    assert "from 1 to 65535" in capsys.readouterr().err
