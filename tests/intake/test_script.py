"""What a script does around its server: variables it exports, folders, conditions, and what is left unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.intake.script import Script, read_script

ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/somebody"}


def read(text: str) -> Script:
    return read_script(text, Path("launch.sh"), ENVIRON)


def notes(text: str) -> list[str]:
    return [str(remark) for remark in read(text).remarks]


def test_only_what_is_exported_reaches_the_server() -> None:
    """Plain variables stay in the script; assignments before a command go with it."""
    [call] = read("A=1\nexport B=2\nC=3\nexport C\nD=4 server").calls
    assert {name: word.text for name, word in call.env.items()} == {"B": "2", "C": "3", "D": "4"}


def test_an_export_without_a_value_comes_from_outside() -> None:
    """By its name."""
    [call] = read("export TOKENIZERS_PARALLELISM\nserver").calls
    assert call.env["TOKENIZERS_PARALLELISM"].unclear == "$TOKENIZERS_PARALLELISM"


def test_cd_says_where_the_server_runs() -> None:
    """One after the other, and no further than a subshell."""
    assert [
        c.folder.text if c.folder else None for c in read("cd /a\ncd b\nserver\n(cd /c; server)\nserver").calls
    ] == [
        "/a/b",
        "/c",
        "/a/b",
    ]


def test_a_virtual_environment_is_activated() -> None:
    """What its script does is known: PATH begins with its folder."""
    [call] = read("source /opt/venv/bin/activate\nserver").calls
    assert call.env["PATH"].text == "/opt/venv/bin:/usr/bin"
    assert call.env["VIRTUAL_ENV"].text == "/opt/venv"


def test_a_file_that_is_sourced_is_named() -> None:
    """What it sets is unknown."""
    assert notes("source ./env.sh\nserver") == [
        "launch.sh:1: not read: source ./env.sh; what it sets is not in the study"
    ]


def test_conditions_are_not_decided() -> None:
    """A value that is set under one counts where there was none, and never replaces another silently."""
    text = 'if [ -n "$X" ]; then\n  A=1\n  B=2\nfi\nserver $A $B'
    script = read(f"A=0\n{text}")
    assert script.calls[-1].argv == ("server", "0", "2")
    assert [str(remark) for remark in script.remarks] == [
        "launch.sh:3: A is set anew under a condition; that was not followed",
        "launch.sh:4: B is set under a condition, which was taken to hold",
    ]


def test_a_command_under_a_condition_is_not_sure() -> None:
    """In an if, a loop or a case that cannot be decided."""
    assert [call.sure for call in read("if x; then server; fi\nserver").calls] == [False, False, True]
    assert [call.sure for call in read("while x; do server; done").calls] == [False, False]
    assert [call.sure for call in read('case "$(uname)" in\n a) server ;;\n b) server ;;\nesac').calls] == [
        False,
        False,
    ]


def test_arguments_of_the_script_are_named() -> None:
    """They are not known here."""
    assert "arguments of the script are used" in notes('server "$@"')[0]


def test_what_bash_would_not_understand_is_named() -> None:
    """With its line; the rest is read all the same."""
    script = read("server --a\n)\nserver --b")
    assert script.calls[0].argv == ("server", "--a")
    assert any("launch.sh:2: not understood" in str(remark) for remark in script.remarks)


@pytest.mark.parametrize(
    "text", ["echo hello", "mkdir -p logs", "set -euo pipefail", "# nothing", "", "[ -d x ] || exit 1"]
)
def test_what_does_nothing_to_a_server_is_passed_over(text: str) -> None:
    """No call, no remark."""
    script = read(text)
    assert script.calls == ()
    assert script.remarks == ()


def test_a_function_that_calls_itself_ends() -> None:
    """A script that cannot end is read to an end."""
    assert read("f() { f; server; }\nf").calls
