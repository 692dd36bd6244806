"""What a script does around its server: variables it exports, folders, conditions, and what is left unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InputError
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


def test_the_path_has_no_folder_twice_and_none_of_another_environment() -> None:
    """What bin/activate would leave, in its smallest form."""
    environ = {"PATH": "/own/bin:/usr/bin:/opt/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/own"}
    [call] = read_script("source /opt/venv/bin/activate\nserver", Path("launch.sh"), environ).calls
    assert call.env["PATH"].text == "/opt/venv/bin:/usr/bin:/bin"


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


def test_a_condition_may_stand_in_one_line() -> None:
    """``[ ... ] &&`` is one; ``cd ... &&`` decides nothing."""
    script = read("A=0\n(( X > 1 )) && A=1\ncommand -v x > /dev/null || B=2\ncd /srv && C=3\nserver $A $B $C")
    assert script.calls[-1].argv == ("server", "0", "2", "3")
    assert [str(remark) for remark in script.remarks] == [
        "launch.sh:2: A is set anew under a condition; that was not followed",
        "launch.sh:3: B is set under a condition, which was taken to hold",
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server --a\n)\nserver --b", r"launch\.sh:2: not understood: \)"),
        ('\nserver --model-path "/models/a\nA=1\n', r'launch\.sh:2: not understood: "/models/a'),
        ("server --impl 'auto\n", r"launch\.sh:1: not understood: 'auto"),
        ("\nif x; then\n  server\n", r"launch\.sh:2: fi is missing behind if x; then server"),
        ("for i in 1; do\n  server\n", r"launch\.sh:1: done is missing"),
        ("server --tp $(pick\n", r"launch\.sh:1: \) is missing"),
        ("server\nfi\n", r"launch\.sh:2: fi ends nothing"),
        ("\nbash -c 'server \"x'\n", r"launch\.sh:2: not understood"),
    ],
)
def test_what_bash_would_refuse_is_an_error(text: str, message: str) -> None:
    """With its line: whatever was made of the rest would be another command line."""
    with pytest.raises(InputError, match=message) as raised:
        read(text)
    assert "bash -n" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "[[ $x =~ ^(a|b)[0-9]+$ ]] && server",
        "for ((i=0;i<3;i++)); do echo $i; done",
        'echo "${!pre@}" "${x@Q}" "${x^^}" "${arr[@]:1:2}" "${#arr[@]}"',
        "case $x in a|b) echo 1;;& c) echo 2;& *) echo;; esac",
        "exec > >(tee -a log) 2>&1",
        "if (( TP > 1 )); then X+=(--a); fi",
        'cat <<E\nan open " quote, if\nE',
    ],
)
def test_what_bash_takes_is_no_error(text: str) -> None:
    """Constructs that are read past, too."""
    read(text)


def test_what_a_terminal_runs_is_read_as_its_shell_does() -> None:
    """tmux and screen: a command in quotes, in words, or typed line by line into a shell that goes on."""
    for text in (
        "tmux new-session -d -s x 'server --a \"b c\" | tee log'",
        "tmux new -d -s x server --a 'b c'",
        "screen -dmS x bash -c 'server --a \"b c\"'",
        "screen -S x -X stuff 'server --a \"b c\"\\n'",
        "tmux new -d -s x \\; send-keys -t x 'server --a' Space \"'b c'\" C-m",
        "nohup bash -lc 'server --a \"b c\"' &",
    ):
        [call] = [call for call in read(text).calls if call.argv[0] == "server"]
        assert call.argv == ("server", "--a", "b c")
    [call] = read(
        "export A=1 B=2\ntmux new-session -d -s x -e C=3 -c /srv\n"
        "tmux send-keys -t x:0 'cd data' C-m 'export B=4' Enter\n"
        "tmux send-keys -t x 'server $B'\ntmux send-keys -t x Enter\ntmux attach -t x"
    ).calls
    assert (call.argv, call.folder and call.folder.text, call.line) == (("server", "4"), "/srv/data", 5)
    assert {name: word.text for name, word in call.env.items()} == {"A": "1", "B": "4", "C": "3"}
    assert call.changes == ("tmux was left out: autotune starts the server itself",)


def test_what_another_shell_cannot_tell_either_stays_unclear() -> None:
    """A variable that is set nowhere does not vanish in the quotes."""
    [call] = read('bash -c "server --tp $NOPE --x"').calls
    assert [word.unclear for word in call.words] == ["", "", "$NOPE", ""]


def test_settings_before_a_function_reach_what_it_starts() -> None:
    """And nothing behind it."""
    inside, behind = read('f() { server "$1"; }\nGPU=1 f a\nserver').calls
    assert ({name: word.text for name, word in inside.env.items()}, behind.env) == ({"GPU": "1"}, {})


def test_arguments_that_are_handed_on_stay_unknown() -> None:
    """``main "$@"`` does not make them empty."""
    [call] = read('main() { server "$1"; }\nmain "$@"').calls
    assert call.words[1].unclear == "$1"


def test_what_is_read_from_outside_cannot_be_told() -> None:
    """It is set, and not empty."""
    [call] = read("read -r TP < file\nserver $TP").calls
    assert (call.words[1].unclear, call.words[1].line) == ("$TP", 1)


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
    assert read("A='server; eval $A'\neval $A").calls


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ('export "A=/data/hf"', {"A": "/data/hf"}),
        ('export "PATH=/opt/bin:$PATH" "A=1"', {"PATH": "/opt/bin:/usr/bin", "A": "1"}),
        ("set -a; A=1; set +a; B=2", {"A": "1"}),
        ("set -eua\nA=1", {"A": "1"}),
        ("set -o allexport\nA=1\nset +o allexport\nB=2", {"A": "1"}),
        ("set -euo pipefail\nA=1", {}),
        ("set -- -a\nA=1", {}),
    ],
)
def test_what_is_exported_however_it_is_written(text: str, env: dict[str, str]) -> None:
    """In quotes, which are words to the grammar; and all of it, behind ``set -a``."""
    script = read(f"{text}\nserver")
    assert ({name: word.text for name, word in script.calls[-1].env.items()}, script.remarks) == (env, ())


@pytest.mark.parametrize("text", ["export $(grep -v '^#' .env | xargs)", 'eval "export $(grep A= .env)"'])
def test_exports_that_only_a_run_could_tell_are_named(text: str) -> None:
    """They are missing from the study."""
    [note] = notes(f"{text}\nserver")
    assert note.startswith("launch.sh:1: not followed: export $(grep")


def test_a_default_that_is_empty_stays_under_a_condition() -> None:
    """An empty array is a value: what a switch adds, off by default, is not in the baseline."""
    script = read('EXTRA=()\nif [ "$FP8" = 1 ]; then\n  EXTRA+=(--fp8)\nfi\nserver "${EXTRA[@]}"')
    assert script.calls[-1].argv == ("server",)
    assert "EXTRA is set anew under a condition; that was not followed" in str(script.remarks[0])


def test_arguments_made_of_unknown_ones_stay_unknown() -> None:
    """As started without any, and that is said."""
    text = 'M=/d\nwhile [[ $# -gt 0 ]]; do\n  POS+=("$1"); shift\ndone\nset -- "${POS[@]}"\nserver "$M" "$@"'
    assert read(text).calls[-1].argv == ("server", "/d")
    assert "launch.sh:5: arguments of the script are used; it was read as started without any" in notes(text)


@pytest.mark.parametrize(
    "loop",
    [
        "while [[ $# -gt 0 ]]; do if [[ $1 == --tp ]]; then TP=$2; shift 2; fi; done",
        "while getopts t: o; do case $o in t) TP=$OPTARG ;; esac; done",
        'while (($#)); do TP=$1; set -- "$@" "$@"; shift; done',
    ],
)
def test_a_loop_through_arguments_that_is_not_understood_leaves_its_variables_unclear(loop: str) -> None:
    """The default would be another server than the one that runs."""
    [call] = [c for c in read(f"f() {{ local TP=1; {loop}; server $TP; }}\nf --tp 8").calls if c.argv[0] == "server"]
    assert call.words[1].unclear == "$TP"


def test_a_functions_arguments_are_as_sure_as_its_call() -> None:
    """A condition around the call does not make its own loop unsure."""
    text = 'f() { local TP=1; while (($#)); do TP=$2; shift 2; done; server $TP; }\nif [ "$X" ]; then f --tp 8; fi'
    assert read(text).calls[-1].argv == ("server", "8")


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("pushd /a; pushd b; popd", "/a"),
        ("pushd /a; popd", None),
        ("cd /a; cd /b; cd -", "/a"),
        ("cd /a; pushd /b; pushd", "/a"),
    ],
)
def test_the_way_back_is_followed(text: str, folder: str | None) -> None:
    """popd and ``cd -``."""
    [call] = read(f"{text}\nserver").calls
    assert (call.folder.text if call.folder else None) == folder


@pytest.mark.parametrize("text", ['zsh -c "print -l **/*(.)"', 'eval "V=\\"\\${$NAME}\\""'])
def test_text_for_another_shell_may_be_anything(text: str) -> None:
    """Where no server is named in it, it is a remark and the rest is read."""
    script = read(f"{text}\nrun-it")
    assert script.calls[-1].argv == ("run-it",)
    [remark] = script.remarks
    assert remark.line == 1
    assert f"in {text[:4]}" in remark.text


def test_a_break_or_shift_under_a_condition_leaves_the_arguments_unclear() -> None:
    """What is left of them is the server's own command line."""
    for body in ("[[ $1 == --* ]] || break; shift 2", "[[ $1 == --x ]] && shift; shift"):
        [call] = list(read(f'f() {{ while (($#)); do {body}; done; server "$@"; }}\nf --a 1 b').calls)
        assert call.words[1].unclear == "$@"


def test_what_a_function_exports_for_itself_ends_with_it() -> None:
    """``local -x``; functions that are exported are no settings."""
    inside, behind = read("f() { local -x A=1; server; }\nexport -f f\nf\nserver").calls
    assert ({name: word.text for name, word in inside.env.items()}, behind.env) == ({"A": "1"}, {})


def test_cd_alone_goes_home() -> None:
    """As bash does."""
    [call] = read("cd /a; cd\nserver $PWD").calls
    assert (call.folder and call.folder.text, call.argv[1]) == ("/home/somebody", "/home/somebody")
