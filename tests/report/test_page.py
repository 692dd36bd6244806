"""Tests of the page as text."""

import re

import msgspec
import pytest

from autotune.report.facts import Facts
from autotune.report.page import page
from autotune.study.file import Objective
from tests.report.builders import curved_night, drifting_night, facts, measured, out_of_memory, trial, whole_night

PLOTS = {
    "history",
    "contour",
    "response-limit",
    "response-fraction",
    "importance",
    "tradeoff",
    "confirmation",
    "night",
    "drift",
}


def drawn(text: str) -> set[str]:
    return set(re.findall(r'data-plot="([^"]+)"><svg', text))


@pytest.fixture(scope="module")
def whole() -> str:
    """The page of a night with everything in it."""
    return page(whole_night())


def test_a_whole_night_has_every_plot(whole: str) -> None:
    """History, response per parameter, contour, front, importance, confirmation, times and drift are drawn."""
    assert drawn(whole) == PLOTS


def test_the_page_loads_nothing(whole: str) -> None:
    """No address outside the page, no style sheet, script or picture to fetch."""
    assert "http://" not in whole
    assert "https://" not in whole
    assert not re.findall(r'(?:src|href)="(?!#|data:,|\.\./trials)[^"]*"', whole)
    assert len(whole) < 600_000


def test_names_cannot_break_the_page(whole: str) -> None:
    """Whatever a study or a command is called, it is text."""
    assert "&lt;night&gt; &amp; co" in whole
    assert "<night>" not in whole
    assert "server --name &#x27;&lt;b&gt;&#x27;" in whole


def test_colours_are_the_readers(whole: str) -> None:
    """No stand-in colour is left; dark and light are told apart by the style sheet."""
    assert not re.findall(r"#0[1-9]0\d0\d", whole)
    assert "prefers-color-scheme:dark" in whole


def test_the_table_tells_failures_and_links(whole: str) -> None:
    """Every trial is a row with its state; a log that exists is linked; clamping is said."""
    assert len(re.findall(r"<tr class=", whole)) == 12
    assert 'href="../trials/0000/server.log"' in whole
    assert "768 runs 700" in whole
    for state in ("oom_kv", "oom_graph", "refused", "interrupted"):
        assert state in whole


@pytest.mark.parametrize("count", range(6))
def test_few_trials_make_a_page(count: int) -> None:
    """A page can be made at every moment of a night, and draws no curve through two points."""
    night = facts(*whole_night().results[:count])
    text = page(night)
    assert "<h1>" in text
    assert ("history" in drawn(text)) == (count > 0)
    assert ("contour" in drawn(text)) == (count >= 4)


def test_all_infeasible_makes_a_page() -> None:
    """A night in which nothing could be served shows what failed."""
    night = facts(*(trial(n, {"limit": 64 * (n + 1)}, out_of_memory()) for n in range(4)))
    text = page(night)
    assert "Nothing was measured" in text
    assert drawn(text) == {"history", "night"}


def test_no_baseline_makes_a_page() -> None:
    """Without the defaults there is no gain to speak of, and the rest is there."""
    night = facts(*(trial(n, {"limit": 64 * (n + 1), "fraction": 0.8}, measured(1000.0 + n)) for n in range(5)))
    assert "No baseline" in page(night)


@pytest.mark.parametrize("metric", ["tpot_p99_s", "request_throughput_req_s"])
def test_other_objectives_have_their_unit(metric: str) -> None:
    """A latency is minimised and told in seconds."""
    night = msgspec.structs.replace(whole_night(), objective=Objective(metric=metric))
    unit = "s" if metric.startswith("tpot") else "req/s"
    assert f", {unit}</text>" in page(night)


def test_words_as_values_are_columns() -> None:
    """A parameter whose values are names has a column for each; one that never varied has no picture."""
    results = [trial(n, {"limit": "lpm" if n % 2 else "fcfs", "fraction": "x"}, measured(1000.0 + n)) for n in range(4)]
    night: Facts = facts(*results, bounds=())
    text = page(night)
    assert {"response-limit", "response-fraction"} & drawn(text) == {"response-limit"}
    assert ">fcfs</text>" in text


def test_limits_are_told_by_side() -> None:
    """Mean, the same with confidence, and whether it is held, for every side of the confirmation; and who fell away."""
    text = page(curved_night())
    assert "<td>finalist 1</td><td>tpot_p99_s 0.05 s</td><td>0.04</td><td>0.043</td><td>yes</td>" in text
    assert "<td>finalist 2</td><td>tpot_p99_s 0.05 s</td><td>0.052</td><td>0.055</td><td>no</td>" in text
    assert "finalist 2: tpot_p99_s is beyond its limit" in text


def test_curves_have_names_and_the_limit() -> None:
    """The tradeoff shows a curve for baseline and choice, the front, and the limit of the study."""
    text = page(curved_night())
    plot = text[text.index('data-plot="tradeoff"') :]
    plot = plot[: plot.index("</svg>")]
    for name in ("baseline", "chosen", "Pareto front", "limit"):
        assert f">{name}</text>" in plot


def test_drift_is_said_and_drawn() -> None:
    """The page says that scores are against the baseline of their time, and shows what was measured."""
    text = page(drifting_night())
    assert "configurations are compared with the baseline of their time" in text
    assert ">before drift was taken out</text>" in text
    assert ">as measured</button>" in text
    assert ">as measured</button>" not in page(whole_night())


def test_failures_have_their_evidence() -> None:
    """What failed is listed with its trials and the words of the gate or of the diagnosis."""
    text = page(whole_night())
    assert "<td>at kv_pool: lower it</td>" in text
    assert "<td>others used the host</td>" in text


def picture(text: str, name: str) -> str:
    """The drawing of this name."""
    start = text.index(f'data-plot="{name}"')
    return text[start : text.index("</svg>", start)]


def test_bounds_are_drawn_where_there_are_some() -> None:
    """A dotted line at each end of the search, in the response and on the map as far as it reaches."""
    night = whole_night()
    for name in ("response-limit", "contour"):
        assert "stroke-dasharray" in picture(page(night), name)
        assert "stroke-dasharray" not in picture(page(msgspec.structs.replace(night, bounds=())), name)


def test_failures_are_on_the_history_with_their_kind(whole: str) -> None:
    """What became of a trial without a score is written where its score would be."""
    for state in ("oom_kv", "oom_graph", "refused", "interrupted"):
        assert f">{state}</text>" in picture(whole, "history")
