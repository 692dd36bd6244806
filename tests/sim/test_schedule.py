"""The known schedule: what is sent is what was promised, and the log says when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.sim.conftest import Start, events


def test_schedule_is_kept_and_logged(start: Start, tmp_path: Path) -> None:
    """Tokens never leave before they are due, and each write's time is in the log."""
    log = tmp_path / "schedule.csv"
    sim = start("--sim-schedule", "40:20", "--sim-schedule-log", str(log)).ready()
    chunks = events(sim.generate(6, stream=True, rid="mine")[1])
    assert [chunk["meta_info"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 5, 6]
    rid, began, *sent = log.read_text().strip().split(",")
    times = [float(text) - float(began) for text in sent]
    assert rid == "mine"
    assert len(times) == 6
    assert all(time >= 0.040 + 0.020 * index - 1e-4 for index, time in enumerate(times))
    assert all(later > earlier for earlier, later in pairwise(times))


def test_schedule_serves_completions_and_whole_answers(start: Start) -> None:
    """The double also answers /v1/completions and requests without streaming."""
    sim = start("--sim-schedule", "5:1").ready()
    ask = {"prompt": [1, 2], "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    *parts, usage = events(sim.request("POST", "/v1/completions", ask)[1])
    assert len(parts) == 4
    assert usage["usage"]["completion_tokens"] == 4
    assert sim.generate(3)[0] == 200
    assert sim.request("POST", "/generate", {})[0] == 400
    assert sim.stop() == 0
