"""Report, export and status say the same of one night, on a machine that changed during it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.brief import read_brief
from autotune.exporting import export_best
from autotune.overview import overview
from autotune.report.headline import headline
from autotune.reporting import as_json, gather
from autotune.values import ParamValue
from tests.nights import Night, put, score

RATIOS = {1: 1.3, 6: 1.2, 10: 1.25, 13: 1.4}
"""By how much these trials are better than the defaults at their time; all others are the defaults."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machine loses 2 % of its speed from trial to trial: trial 1 has the best figure, trial 13 is the best."""
    path = Night(trials=20).write(tmp_path_factory.mktemp("drifting"))
    for number in range(17):
        params: dict[str, ParamValue] = {"max_running_requests": 64 + 8 * number} if number in RATIOS else {}
        value = 1000.0 * RATIOS.get(number, 1.0) * (1 - 0.02 * number)
        put(path, number, params, score(value), at_s=60.0 * number)
    return path


def test_all_choose_the_best_for_its_time(study: Path) -> None:
    """Not the configuration that was measured while the machine was fast."""
    brief = read_brief(study)
    seen, facts = overview(brief), gather(brief)
    script = export_best(brief)
    assert script is not None
    assert (seen.best_number, facts.chosen) == (13, 13)
    assert "# trial:           13" in script.read_text()
    assert seen.best == facts.score(13)
    assert seen.gain == pytest.approx(0.4, abs=0.01)
    assert headline(facts).title.startswith("Not confirmed: +40")


def test_the_script_has_what_was_measured_and_what_counted(study: Path) -> None:
    """Somebody who starts the script compares with the measured figure, and learns why it is not the highest."""
    script = export_best(read_brief(study))
    assert script is not None
    text = script.read_text()
    assert "output_throughput_tok_s 1,036.0 +-" in text
    assert "1,400." in next(line for line in text.splitlines() if line.startswith("# ranked by:"))


def test_json_has_both(study: Path) -> None:
    """Scripts get the records as they are, the scores that count, and what the baselines say."""
    told = json.loads(as_json(gather(read_brief(study))))
    assert told["facts"]["results"][13]["outcome"]["score"]["value"] == pytest.approx(1036.0)
    assert told["ranked_scores"]["13"] == pytest.approx(1400.0, rel=0.01)
    assert told["drift"]["corrected"] is True
