"""No content makes the diagnosis raise or hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.diagnosis import PHASES, Facts, diagnose
from autotune.diagnosis.rules import table

KNOWN = [
    text
    for path in sorted((Path(__file__).parent / "logs").glob("[abc]*.log"))
    for text in path.read_text(errors="replace").split("\n")
]
FACTS = st.builds(
    Facts,
    engine=st.sampled_from(["sglang", "vllm", "llamacpp", "command", ""]),
    version=st.sampled_from(["", "0.5.8", "x"]),
    phase=st.sampled_from(PHASES),
    exit_code=st.none() | st.integers(-64, 255),
    alive=st.booleans(),
    silent_seconds=st.floats(0, 1e5),
    kernel_log=st.none() | st.text(max_size=50),
    searched_flags=st.lists(st.text(max_size=10), max_size=3).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=2000), FACTS)
def test_any_bytes(log: bytes, facts: Facts) -> None:
    """Bytes that are no log at all still end in a class with an action."""
    found = diagnose(log, facts)
    assert found.kind in table().action
    assert found.advice


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(KNOWN) | st.text(max_size=80), max_size=40), FACTS)
def test_shuffled_lines_of_real_logs(lines: list[str], facts: Facts) -> None:
    """Lines of real failures in any order and mixture end in a class with an action."""
    found = diagnose("\n".join(lines), facts)
    assert found.kind in table().action
    assert all(len(text) <= 300 for text in found.evidence)


WORDS = sorted({word for rule in table().rule for word in rule.words})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("filler", ["", "Error: ", "[1", "--a_b "])
def test_repeated_words_do_not_explode(filler: str) -> None:
    """Every word of the table, repeated to the longest line, is searched in bounded time."""
    log = "\n".join(((word + filler) * 4096)[:4096] for word in WORDS)
    assert diagnose(log, Facts(phase="bench")).kind in table().action
