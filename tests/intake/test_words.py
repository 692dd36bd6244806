"""Words of a script as bash itself would make them: compared with a real bash."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.export import render
from autotune.export.bundle import SECRET_FLAGS
from autotune.intake.script import read_script
from tests.export.bundles import HOSTILE, bundle, text

BASH = shutil.which("bash")
ENVIRON = {"HOME": "/home/somebody", "GIVEN": "from outside", "MANY": "one two"}


def argv_of(script: str) -> list[str]:
    """The arguments of the last command, without its name."""
    return list(read_script(script, Path("launch.sh"), ENVIRON).calls[-1].argv[1:])


def bash_says(script: str) -> list[str]:
    """What bash gives to ``server``."""
    assert BASH is not None
    shown = f"server() {{ [ $# = 0 ] || printf '%s\\0' \"$@\"; }}\n{script}"
    env = {**ENVIRON, "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run([BASH, "-c", shown, "launch.sh"], env=env, capture_output=True, timeout=60, check=True)
    return done.stdout.decode().split("\0")[:-1]


SCRIPTS = (
    "A=1 B=2\nserver $A $B",
    "A=1 B=2 # both\nserver $A $B",
    "if true; then\n  A=1 B=2\nelse\n  A=3 B=4\nfi\nserver $A $B",
    'A=( --a # why "so"\n  --b )\nserver "${A[@]}"',
    'A=" $GIVEN"; A+="  ${GIVEN} $GIVEN"\nserver "$A" $A " "',
    "cd /tmp\nserver $PWD",
    "cd /usr/bin; cd ..\nserver $PWD",
    "cd /\ncd tmp\nserver ${PWD}/x",
    'f() { local A=8 B; B=2; C=3; }\nA=1\nf\nserver $A $C "$B"',
    "for i in 7; do server $i; done",
    "serve() {\n  local TP=1\n  while [[ $# -gt 0 ]]; do\n    case $1 in\n      --m) M=$2; shift 2 ;;\n"
    "      --tp) TP=$2; shift 2 ;;\n      --) shift; break ;;\n    esac\n  done\n"
    '  server $M $TP "$@"\n}\nserve --m /m --tp 8 -- --x',
    'serve() { while [ -n "$1" ]; do A+=" $1"; shift; done; server $A; }\nserve a b c',
    "M=/d; POS=()\nwhile [[ $# -gt 0 ]]; do\n  case $1 in\n    -m) M=$2; shift 2 ;;\n"
    '    *) POS+=("$1"); shift ;;\n  esac\ndone\nset -- "${POS[@]}"\nserver "$M" "$@"',
    'M=/d; OPTS=$(getopt -o m: -- "$@"); eval set -- "$OPTS"; shift\nserver "$M" "$@"',
    "server --a b",
    "server 'single $GIVEN' \"double $GIVEN\" $GIVEN",
    'server --x="$GIVEN"/y${MANY}z',
    "server \\\n   --tp 8 \\\n   # a comment\n",
    "server a\\ b \\$HOME 'it'\\''s'",
    'server "a \\"b\\" \\$c \\\\ \\n" ',
    "server $'tab\\tnew\\nline'",
    'A=1\nB="$A 2"\nserver $B "$B" ${A}0',
    'A=(--x 1 "two words")\nserver "${A[@]}" end',
    'A=(--x)\nA+=(--y "$GIVEN")\nserver "${A[@]}"',
    "A=a\nA+=b\nserver $A",
    'server ${NOPE:-default} "${NOPE:-two words}" ${GIVEN:-x} "${NOPE:-$GIVEN}"',
    'server "${NOPE-}" "${GIVEN:+set}" x${NOPE:+y}',
    ': "${PORT:=30000}"\nserver --port "$PORT"',
    "server ~ ~/models a~b",
    "server \"\" ''",
    'server "$@" tail',
    'EXTRA="--a 1 --b"\nserver pre$EXTRA"$EXTRA"',
    'server --json \'{"a": "b c", "d": [1]}\'',
    "server --before 2> /dev/null",
    'server é漢 "é $GIVEN 漢"',
    "server a#b '#c'",
    'server "multi\nline"',
    "if true; then server --in branch; fi",
    "f() { server --in function; }\nf",
    "case \"${1:-}\" in\n  '') server none ;;\n  *) server some ;;\nesac",
    "export A=1 B='2 3'\nserver $A \"$B\"",
    "unset GIVEN\nserver ${GIVEN:-gone}",
    "true && server --and",
    "(server --sub)",
    "server -- -x --y=z",
    'f() { server --m "$1" --p "${2:-9}" "${3-none}" $4 end; }\nf "a b" 3000',
    'f() { local p=$1; shift; server --p "$p" "$@"; }\nf 8 --x "two words"',
    'f() { server "$*" "pre$@post"; }\nf a "b c"',
    'set -- --tp 2 "a b"\nserver "$@" $1 "${2}"',
    'set -euo pipefail\nset -- "$@" --x\nset -- "$@" --y\nserver "$@"',
    'set -- a b\nf() { : "$1"; }\nf inner\nserver "$1"',
    'f() { server "${@:2}" ${@:3}; }\nf a "b c" d',
    "CMD='server --x 3'\neval $CMD",
    "eval 'A=1; server' '\"$A b\"'",
    "server a 2> /dev/null --port 8000",
    "server a 2> /dev/null b 3>&1 c",
    "true && server a 2> /dev/null --x 1",
)


@pytest.mark.skipif(BASH is None, reason="no bash here")
@pytest.mark.parametrize("script", SCRIPTS)
def test_words_are_those_that_bash_makes(script: str) -> None:
    """Quotes, variables, arrays, defaults, splitting, control: the server gets the same arguments."""
    assert argv_of(script) == bash_says(script)


@settings(deadline=None, max_examples=60)
@given(words=st.lists(st.sampled_from(HOSTILE) | text, min_size=1, max_size=6))
def test_whatever_is_quoted_comes_back(words: list[str]) -> None:
    """Hostile strings in the quotes of a shell are read as they are."""
    assert argv_of(f"server {shlex.join(words)}") == words


@settings(deadline=None, max_examples=40)
@given(words=st.lists(st.sampled_from(HOSTILE) | text, min_size=1, max_size=6))
def test_an_exported_script_is_read_back(words: list[str]) -> None:
    """The command line of an export is the one that went in; with --baseline it is the other one."""
    assume(not any(word.partition("=")[0] in SECRET_FLAGS for word in words))
    script = render("bash", bundle(["server", *words], baseline=["server", "--base", *words]))
    calls = read_script(script, Path("launch-best.sh"), {}).calls
    assert calls[-1].argv[-len(words) :] == tuple(words)
    again = read_script(script, Path("launch-best.sh"), {}, ("--baseline",)).calls
    assert again[-1].argv[-len(words) - 1 :] == ("--base", *words)


@pytest.mark.parametrize(
    ("script", "unclear"),
    [
        ('server "$(hostname)"', "$(hostname)"),
        ("server $NOPE", "$NOPE"),
        ('server "pre-${NOPE}"', "$NOPE"),
        ("server ${GIVEN%%x}", "${GIVEN%%x}"),
        ("server $((1 + 2))", "$((1 + 2))"),
        ("server $GIVEN\\ x", "$GIVEN\\ x"),
        ("for c in 1 2; do server $c; done", "$c"),
    ],
)
def test_what_only_a_run_could_tell_is_said_to_be_unclear(script: str, unclear: str) -> None:
    """It is neither dropped nor guessed."""
    call = read_script(script, Path("launch.sh"), ENVIRON).calls[-1]
    assert [word.unclear for word in call.words if word.unclear] == [unclear]


def test_secrets_of_the_readers_environment_are_not_read() -> None:
    """Their variable is known, their value is not."""
    environ = {"SOME_API_KEY": "sk-very-secret"}
    call = read_script('server --api-key "$SOME_API_KEY"', Path("launch.sh"), environ).calls[-1]
    assert call.words[-1].names == ("SOME_API_KEY",)
    assert "secret" not in repr(call)


def test_the_scripts_own_folder_is_known(tmp_path: Path) -> None:
    """The usual ways to write it."""
    for own in ('$(dirname "$0")', '$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)', "$(dirname $0)"):
        call = read_script(f'server "{own}"/model', tmp_path / "launch.sh", {}).calls[-1]
        assert call.argv[1] == f"{tmp_path}/model"
