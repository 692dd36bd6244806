"""How a night is told: plain lines, JSON, one live line."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from autotune.cli.live import Narrator, _Console
from autotune.cli.text import span
from autotune.events import (
    Event,
    LoadProgress,
    NightEnded,
    NightStarted,
    Note,
    PhaseEntered,
    TrialSettled,
    TrialStarted,
)
from autotune.values import Config, Diagnosis, Infeasible, Interrupted, Timings
from tests.nights import score

BETTER = Config(params={"max_running_requests": 128})
PROGRESS = LoadProgress(number=1, elapsed_s=2.0, throughput_tok_s=1234.5, in_flight=8, completed=9, failed=0, warm=True)
NIGHT: tuple[Event, ...] = (
    NightStarted(study="short", settled=0, trials=3, budget_s=5400.0, folder="/tmp/[short]"),
    Note(text="a flag [red] is frozen", level="warning"),
    TrialStarted(number=1, role="search", config=BETTER, eta_s=60.0),
    PhaseEntered(number=1, phase="load"),
    PROGRESS,
    TrialSettled(
        number=1,
        config=BETTER,
        outcome=score(3000.0),
        timings=Timings(total_s=75.0),
        best=3000.0,
        baseline=1000.0,
    ),
    TrialSettled(
        number=2,
        config=BETTER,
        outcome=Infeasible(diagnosis=Diagnosis(kind="oom_kv", action="prune", stage="kv_pool")),
        timings=Timings(total_s=5.0),
        best=3000.0,
        baseline=1000.0,
    ),
    TrialSettled(number=3, config=BETTER, outcome=Interrupted(reason="ended"), timings=Timings()),
    NightEnded(reason="done", settled=2),
)


def tell(*, json_lines: bool = False, terminal: bool = False) -> str:
    """All that is printed of ``NIGHT``."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200, highlight=False, soft_wrap=True)
    with Narrator(json=json_lines, console=console) as narrator:
        for event in NIGHT:
            narrator.hear(event)
    return file.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    """One line per settled trial, brackets kept as they are, no control characters, no progress."""
    text = tell()
    assert "\x1b" not in text
    assert "/tmp/[short]" in text
    assert "a flag [red] is frozen" in text
    assert "1,234" not in text
    lines = text.splitlines()
    assert any("3,000.0 ± 30.0" in line and "1m15s" in line and "+200.0 %" in line for line in lines)
    assert any("pruned: oom_kv at kv_pool" in line for line in lines)
    assert any("interrupted" in line for line in lines)


def test_json_lines_are_the_events() -> None:
    """Each line is one event, load progress aside."""
    found: list[dict[str, Any]] = [json.loads(line) for line in tell(json_lines=True).splitlines()]
    assert [event["type"] for event in found] == [
        "night_started",
        "note",
        "trial_started",
        "phase",
        "trial_settled",
        "trial_settled",
        "trial_settled",
        "night_ended",
    ]
    assert found[4]["outcome"]["score"]["value"] == 3000.0


def test_a_terminal_has_one_live_line() -> None:
    """Phase, speed, the end of the night and the gain so far."""
    text = tell(terminal=True)
    assert "trial 1 max_running_requests=128" in text


class Gone(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_reader_that_is_gone_does_not_end_the_night(json_lines: bool) -> None:
    """``autotune tune STUDY 2>&1 | head`` goes on when head has ended."""
    narrator = Narrator(json=json_lines, console=_Console(file=Gone(), highlight=False))
    with narrator:
        for event in NIGHT:
            narrator.hear(event)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.2s"), (42.4, "42s"), (59.6, "1m00s"), (192, "3m12s"), (7500, "2h05m")]
)
def test_spans(seconds: float, text: str) -> None:
    """Short and rounded."""
    assert span(seconds) == text
