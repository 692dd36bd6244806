"""Loads on the simulated server, through the story of a trial: every kind of objective, and several concurrencies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from autotune import loading
from autotune.events import Event, Note
from autotune.load import records as raw_records
from autotune.load.reduce import reduce
from autotune.sim.memory import resolve
from autotune.sim.profiles import profile
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Measured, Measurement, Refused
from tests.nights import Night, rig

pytestmark = pytest.mark.timeout(300)


def write(folder: Path, night: Night) -> Path:
    """The study file, with loads that are long enough for a steady window of streams on a busy machine."""
    path, text = night.write(folder), (folder / "study.toml").read_text()
    longer = {"min_s": 1.0, "max_s": 2.0, "warmup_max_s": 3.0, "concurrency": 48}
    for key, value in longer.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1
    path.write_text(text)
    return path


def measured(folder: Path, night: Night, say: list[Event] | None = None) -> Measured:
    """The baseline of a study, measured on a simulated server."""
    shared = rig(write(folder, night), (say if say is not None else []).append)
    shared.records.trial(0).root.mkdir()
    outcome = run_trial(shared, Ticket(number=0, config=Config(params={}), role="baseline")).outcome
    assert isinstance(outcome, Measured), outcome
    return outcome


def asking(metric: str, **constraints: float) -> str:
    """The [objective] section."""
    limits = "".join(f"{name} = {value}\n" for name, value in constraints.items())
    return f'[objective]\nmetric = "{metric}"\n' + (f"[objective.constraints]\n{limits}" if limits else "")


@pytest.mark.parametrize(
    ("metric", "constraints"),
    [
        ("output_throughput_tok_s", {"ttft_p99_s": 30.0}),
        ("total_throughput_tok_s", {}),
        ("request_throughput_req_s", {}),
        ("goodput_req_s", {"ttft_p99_s": 30.0, "tpot_p99_s": 30.0}),
        ("ttft_p99_s", {}),
    ],
)
def test_every_kind_of_objective_is_scored(tmp_path: Path, metric: str, constraints: dict[str, float]) -> None:
    """The score is the figure of the steady window with its own error, and limits have errors of their own."""
    night = Night(stream=True, objective=asking(metric, **constraints))
    outcome = measured(tmp_path, night)
    steady = outcome.measurement.steady
    assert outcome.score.value == pytest.approx(steady[metric], rel=0.25)
    assert outcome.score.stderr >= 0
    assert outcome.score.batches >= 2
    assert all(outcome.measurement.estimates[name].batches >= 2 for name in constraints)


def test_goodput_counts_the_requests_that_keep_their_limits(tmp_path: Path) -> None:
    """With limits that nobody misses it is the request rate, with a tight one less than that."""
    easy = measured(made(tmp_path / "easy"), Night(stream=True, objective=asking("goodput_req_s", ttft_p99_s=60.0)))
    steady = easy.measurement.steady
    assert steady["goodput_req_s"] == pytest.approx(steady["request_throughput_req_s"])
    limit = steady["ttft_p50_s"]
    hard = measured(made(tmp_path / "hard"), Night(stream=True, objective=asking("goodput_req_s", ttft_p99_s=limit)))
    assert hard.score.value < hard.measurement.steady["request_throughput_req_s"]


def test_one_start_answers_several_concurrencies(tmp_path: Path) -> None:
    """A raw file and figures for each, other prompts in each; the score is that of the named one."""
    night = Night(stream=True, workload="levels = [48, 8, 32]")
    outcome = measured(tmp_path, night)
    assert [point.concurrency for point in outcome.curve] == [8, 32, 48]
    assert outcome.measurement.steady == outcome.curve[2].steady
    assert outcome.curve[0].steady["output_throughput_tok_s"] < outcome.curve[2].steady["output_throughput_tok_s"]
    assert all(point.refused == () for point in outcome.curve)
    folder = tmp_path / "short/trials/0000/load"
    assert sorted(path.name for path in folder.iterdir()) == ["raw-32.npz", "raw-48.npz", "raw-8.npz"]
    loads = [raw_records.load(folder / f"raw-{n}.npz") for n in (8, 32)]
    assert [raw.meta.concurrency for raw in loads] == [8, 32]
    # The server's prefix cache would have answered a prompt that was sent before.
    assert all(float(np.sum(raw.requests["cached_tokens"])) == 0 for raw in loads)


def test_what_a_start_leaves_of_the_gpu_is_on_record(tmp_path: Path) -> None:
    """Less than was free before its load."""
    outcome = measured(tmp_path, Night(stream=True, flags=("--sim-gpu-file", str(tmp_path / "gpu.json"))))
    machine = profile("demo")
    left = resolve(machine, {}).left_gb(machine)
    assert left < outcome.effective.gpu_memory_gb["available"]
    assert outcome.measurement.gpu_free_share == pytest.approx(left / machine.gpu_total_gb, abs=1e-3)


@pytest.mark.parametrize(("shares", "least"), [((0.2, 0.1), 0.1), ((0.1, 0.2), 0.1), ((0.1, None), None)])
def test_of_several_levels_the_one_that_left_least_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: tuple[float | None, ...], least: float | None
) -> None:
    """Whichever of them has the score; where one was not seen, the largest may be the one."""
    left = iter(shares)

    def reduced(*arguments: Any) -> Measurement:
        return msgspec.structs.replace(reduce(*arguments), gpu_free_share=next(left))

    monkeypatch.setattr(loading, "reduce", reduced)
    outcome = measured(tmp_path, Night(stream=True, workload="levels = [48, 8]"))
    assert outcome.measurement.gpu_free_share == least


def test_nothing_is_told_of_the_gpu_where_there_is_none(tmp_path: Path) -> None:
    """A server on processors."""
    assert measured(tmp_path, Night(stream=True)).measurement.gpu_free_share is None


def test_under_a_limit_the_best_level_that_holds_it_is_scored(tmp_path: Path) -> None:
    """At 48 in flight the queue before 24 running requests is long; the level of 8 has none."""
    shown = measured(made(tmp_path / "curve"), Night(stream=True, workload="levels = [8, 48]"))
    low, high = (point.steady["ttft_p50_s"] for point in shown.curve)
    assert low < high / 2
    objective = asking("output_throughput_tok_s", ttft_p50_s=(low * high) ** 0.5)
    limited = measured(made(tmp_path / "limited"), Night(stream=True, workload="levels = [8, 48]", objective=objective))
    assert limited.measurement.steady == limited.curve[0].steady


def made(folder: Path) -> Path:
    """The folder, created."""
    folder.mkdir()
    return folder


def test_a_level_that_fails_refuses_the_start_where_it_counts(tmp_path: Path) -> None:
    """Short outputs at the named level: no score, whatever the others say."""
    night = Night(stream=True, workload="levels = [8, 48]", flags=("--sim-fault", "short_output"))
    shared = rig(write(tmp_path, night))
    shared.records.trial(0).root.mkdir()
    outcome = run_trial(shared, Ticket(number=0, config=Config(params={}), role="baseline")).outcome
    assert isinstance(outcome, Refused), outcome
    assert outcome.findings[0].gate == "failed_requests"


def test_clamping_is_said_in_words(tmp_path: Path) -> None:
    """A trial that asks for more running requests than the KV pool holds says what runs instead."""
    heard: list[Event] = []
    shared = rig(write(tmp_path, Night(stream=True)), heard.append)
    shared.records.trial(0).root.mkdir()
    config = Config(params={"max_running_requests": 100_000})
    run_trial(shared, Ticket(number=0, config=config))
    notes = [event.text for event in heard if isinstance(event, Note)]
    assert any("trial 0: " in note and "100,000" in note for note in notes), notes


def test_a_window_without_the_figure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no request ended in the window there is no latency to hold a limit against: no score, and no error."""

    def silent(*arguments: Any) -> Measurement:
        seen = reduce(*arguments)
        steady = {name: value for name, value in seen.steady.items() if not name.startswith("ttft")}
        return msgspec.structs.replace(seen, steady=steady, estimates={})

    monkeypatch.setattr(loading, "reduce", silent)
    night = Night(stream=True, objective=asking("output_throughput_tok_s", ttft_p99_s=60.0))
    shared = rig(write(tmp_path, night))
    shared.records.trial(0).root.mkdir()
    outcome = run_trial(shared, Ticket(number=0, config=Config(params={}), role="baseline")).outcome
    assert isinstance(outcome, Refused), outcome
    assert "no ttft_p99_s" in outcome.findings[0].message
