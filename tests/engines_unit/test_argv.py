"""Putting flags into a command line."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.engines.argv import flag_name, substitute, value_of, with_flags, without

WORDS = st.lists(st.sampled_from(["--a", "--b=1", "--c-d", "x", "-1", "--a=2", "--switch", "{p}"]), max_size=6)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (["serve", "--limit", "3", "--other"], ["serve", "--other", "--limit", "9"]),
        (["serve", "--limit=3", "--other", "1"], ["serve", "--other", "1", "--limit", "9"]),
        (["serve", "--limit", "--other"], ["serve", "--other", "--limit", "9"]),
        (["serve", "--limit", "-1", "m"], ["serve", "m", "--limit", "9"]),
        (["serve", "--old-limit", "3"], ["serve", "--limit", "9"]),
        (["serve", "--limit-other", "3"], ["serve", "--limit-other", "3", "--limit", "9"]),
        (["serve", "--limit", "3", "--old_limit=4"], ["serve", "--limit", "9"]),
    ],
    ids=["two words", "one word", "no value", "negative", "alias", "longer flag", "both"],
)
def test_a_flag_replaces_itself_in_every_form(base: list[str], expected: list[str]) -> None:
    """The same flag goes, by any name and in either form, together with its value and nothing else."""
    assert with_flags(base, [("--limit", 9)], [frozenset({"--limit", "--old-limit"})]) == expected


def test_switches_are_set_and_cleared() -> None:
    """True adds a switch once, false removes it, and neither takes the word after it."""
    base = ["serve", "--fast", "model"]
    assert with_flags(base, [("--fast", True)]) == ["serve", "model", "--fast"]
    assert with_flags(base, [("--fast", False)]) == ["serve", "model"]


def test_a_switch_with_a_negative_form_is_always_said() -> None:
    """Where leaving a switch out means the default, false is written as its negative."""
    base = ["serve", "--no-fast", "model"]
    negate = "--no-{}".format
    assert with_flags(base, [("--fast", True)], negate=lambda flag: negate(flag[2:])) == ["serve", "model", "--fast"]
    assert with_flags(base, [("--fast", False)], negate=lambda flag: negate(flag[2:])) == [
        "serve",
        "model",
        "--no-fast",
    ]


def test_floats_keep_their_digits() -> None:
    """What was drawn is what is written."""
    assert with_flags(["s"], [("--f", 0.1 + 0.2)]) == ["s", "--f", "0.30000000000000004"]


@settings(deadline=None)
@given(base=WORDS, value=st.integers(0, 99))
def test_setting_a_flag_twice_is_setting_it_once(base: list[str], value: int) -> None:
    """The last value stands, once, at the end; words that are no part of the flag stay in order."""
    argv = with_flags(["prog", *base], [("--a", 1), ("--a", value)])
    assert argv == with_flags(["prog", *base], [("--a", value)])
    assert argv[-2:] == ["--a", str(value)]
    assert [word for word in argv[:-2] if flag_name(word) == "--a"] == []
    assert [word for word in argv[:-2] if flag_name(word)] == ["prog"][1:] + [
        word for word in base if flag_name(word) not in ("", "--a")
    ]


def test_the_program_is_never_taken_for_a_flag() -> None:
    """Whatever the program is called, it stays."""
    assert without(["--a", "--a", "1"], {"--a"}) == ["--a"]


def test_the_last_value_of_a_flag_counts() -> None:
    """As argument parsers read it."""
    assert value_of(["s", "--m", "a", "--m=b"], "--m") == "b"
    assert value_of(["s", "--m"], "--m") == ""
    assert value_of(["s"], "--m") is None


def test_only_known_placeholders_are_filled() -> None:
    """JSON and other braces in an argument are left as they are."""
    assert substitute(["{python}", '{"a": 1}', "{other}"], {}) == [sys.executable, '{"a": 1}', "{other}"]
