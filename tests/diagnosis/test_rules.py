"""The table of signatures is whole: every class has its action and advice, every rule can be found."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from autotune.diagnosis.rules import compiled, in_versions, known_engines, table, version_tuple
from autotune.values import FailureKind

CLASSES = {*get_args(FailureKind), "clamped", "kv_pressure", "starting", "ok"}
ACTIONS = {"prune", "retry", "stop", "discard", "score", "score_flag", "wait"}


def test_every_class_has_an_action_and_advice_for_every_engine() -> None:
    """No diagnosis ends without something to do, whatever the engine."""
    assert set(table().action) == CLASSES
    assert set(table().action.values()) <= ACTIONS
    for engine in (*known_engines(), "command", ""):
        assert {entry.kind for entry in compiled(engine, "").advice} == CLASSES, engine


def test_rules_name_known_classes_and_actions() -> None:
    """A rule's class is one of the fixed set (or oom, which the stage decides) unless it only hides or follows."""
    for rule in table().rule:
        assert rule.kind in CLASSES | {"oom"} or rule.role in ("benign", "consequence"), rule.name
        assert rule.action in ACTIONS | {""}, rule.name
    names = [rule.name for rule in table().rule]
    assert len(names) == len(set(names))


def test_words_are_lower_case_without_digits() -> None:
    """The scanner forgets lines that differ only in digits and compares in lower case."""
    words = [rule.words for rule in table().rule] + [marker.words for marker in table().marker]
    assert all(words)
    for several in words:
        for word in several:
            assert word == word.lower()
            assert not re.search(r"\d", word), word


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.5.8", (0, 5, 8)),
        ("0.4.3.post2", (0, 4, 3)),
        ("dev 2026-09", ()),
        ("0.4.x", (0, 4)),
        ("v1.2", (1, 2)),
        ("", ()),
    ],
)
def test_versions_are_read_as_far_as_they_are_numbers(version: str, numbers: tuple[int, ...]) -> None:
    """Post releases and words after the numbers do not disturb."""
    assert version_tuple(version) == numbers


def test_bounds_of_versions() -> None:
    """All bounds must hold; an unreadable version is within any."""
    assert in_versions("0.5.15", ">=0.5.12,<0.5.20")
    assert not in_versions("0.5.20", ">=0.5.12,<0.5.20")
    assert in_versions("nightly", "<0.1")


def test_advice_names_the_flag_of_the_version() -> None:
    """The ceiling of the decode graphs has another name from 0.5.15 on."""
    old = next(entry.text for entry in compiled("sglang", "0.5.9").advice if entry.kind == "oom_graph")
    new = next(entry.text for entry in compiled("sglang", "0.5.20").advice if entry.kind == "oom_graph")
    assert "--cuda-graph-max-bs-decode" in new
    assert "--cuda-graph-max-bs-decode" not in old
    assert "--cuda-graph-max-bs" in old
