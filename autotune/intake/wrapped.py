"""Servers that a script starts behind another program, as a study's wrapper: containers, ``srun``, ``ssh``. Pure.

A night starts the server in the foreground, on another port each time, names it, and ends it itself. So what keeps a
container alive, names it or maps its ports goes; every other option stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath

from autotune.intake.words import Word
from autotune.study.environment import looks_secret
from autotune.values import Value, Wrapper

CONTAINERS = {"docker": "docker", "podman": "podman", "nerdctl": "docker"}
"""Programs that run containers, and the kind of wrapper that each is."""
_SWITCHES_WORDS = (
    "--detach --interactive --tty --rm --init --privileged --read-only --no-healthcheck --oom-kill-disable"
    " --publish-all --sig-proxy --quiet --disable-content-trust --replace --no-hosts --rmi"
)
_SWITCHES = frozenset(_SWITCHES_WORDS.split())
_CLUSTER = re.compile(r"-[ditPq]+")
_FOREGROUND = frozenset({"--detach", "--tty", "--interactive"})
_LEAVES = {
    "--name": "a night names its containers itself",
    "--restart": "a night ends the server itself",
    "-p": "the container shares the host's network, since every start has another port",
    "--publish": "the container shares the host's network, since every start has another port",
}
_JOINED = re.compile(r"(-[epvwum])([^-=\s].*)", re.DOTALL)
_COUNTS = ("--ntasks", "-n", "--nodes", "-N")
_SLURM_LEAVES = {
    **dict.fromkeys(_COUNTS, "a night asks for one task on one node itself"),
    **dict.fromkeys(("--job-name", "-J"), "a night names its jobs itself"),
    **dict.fromkeys(("--pty", "--input", "-i"), "a night holds the server in the foreground, without a terminal"),
}
_SLURM_JOINED = re.compile(r"(-[nNJi])([^-=\s].*)", re.DOTALL)
_DEVICES = re.compile(r'"?device=([\d,]+)"?')
_SSH_VALUES = frozenset(f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw")


class Wrapped(Value, frozen=True, kw_only=True):
    """``rest`` is what runs inside, ``env`` what the wrapper sets for it, ``words`` are all that it has itself.

    ``isolated``: the script's own environment does not reach the server. ``changes`` says what was left out, and why;
    ``several`` is the option that asks for more than one server.
    """

    wrapper: Wrapper
    rest: tuple[Word, ...]
    words: tuple[Word, ...] = ()
    env: dict[str, Word] = {}
    isolated: bool = True
    entry: str = ""
    changes: tuple[str, ...] = ()
    several: str = ""


def wrapped_of(words: Sequence[Word], starts: Collection[str]) -> Wrapped | None:
    """The wrapper that the words start with, None where there is none.

    ``starts`` are words with which a server's command line begins: they end the options of srun.
    """
    words = list(words)
    changes: list[str] = []
    program = PurePath(words[0].text).name if words else ""
    front = [word.text for word in words[1:4]]
    if program in CONTAINERS and "run" in front and "compose" not in front:
        return _container(words, CONTAINERS[program], changes)
    if program == "srun":
        return _srun(words, starts, changes)
    return _ssh(words, changes) if program == "ssh" else None


class _Container:
    """Sorts the options of ``run``."""

    def __init__(self, changes: list[str]) -> None:
        self.options: list[Word] = []
        self.env: dict[str, Word] = {}
        self.gpus = ""
        self.entry = ""
        self.changes = changes

    def take(self, option: tuple[Word, ...]) -> None:
        name, text = _name_and_value(option)
        if name in _LEAVES:
            self.changes.append(f"{name} {text} was left out: {_LEAVES[name]}")
        elif name in ("--network", "--net"):
            if text != "host":
                self.changes.append(f"{name} {text} became the host's network, since every start has another port")
        elif name in _FOREGROUND or _CLUSTER.fullmatch(name):
            self.changes.append(f"{name} was left out: a night holds the server in the foreground, without a terminal")
        elif name in ("-e", "--env"):
            self._setting(option[-1], text)
        elif name == "--entrypoint":
            self.entry = text
        elif name == "--gpus" and (text == "all" or _DEVICES.fullmatch(text)):
            self.gpus = "all" if text == "all" else text.strip('"').removeprefix("device=")
        elif name != "--rm":
            self.options += option

    def _setting(self, word: Word, text: str) -> None:
        name, equals, value = text.partition("=")
        secret = not equals or looks_secret(name, value)
        self.env[name] = Word(
            text="" if secret else value, names=(name,), unclear=f"${name}" if secret else word.unclear
        )


def _container(words: list[Word], kind: str, changes: list[str]) -> Wrapped | None:
    verb = [word.text for word in words].index("run") + 1
    options, image = _options(words[verb:])
    if image is None:
        return None
    sorted_ = _Container(changes)
    for option in options:
        sorted_.take(option)
    wrapper = Wrapper(
        kind=kind,
        program="" if words[0].text == kind else words[0].text,
        options=tuple(word.text for word in sorted_.options),
        image=image.text,
        gpus=sorted_.gpus,
    )
    at = verb + sum(map(len, options)) + 1
    return Wrapped(
        wrapper=wrapper,
        rest=tuple(words[at:]),
        words=(*sorted_.options, image),
        env=sorted_.env,
        entry=sorted_.entry,
        changes=tuple(sorted_.changes),
    )


def _options(words: Sequence[Word]) -> tuple[list[tuple[Word, ...]], Word | None]:
    """The options before the image, each with its value, and the image."""
    found: list[tuple[Word, ...]] = []
    rest = list(words)
    while rest:
        word = rest[0]
        if not word.text.startswith("-"):
            return found, word
        alone = "=" in word.text or word.text in _SWITCHES or _CLUSTER.fullmatch(word.text) or len(rest) == 1
        found.append(tuple(rest[: 1 if alone or _JOINED.fullmatch(word.text) else 2]))
        rest = rest[len(found[-1]) :]
    return found, None


def _name_and_value(option: tuple[Word, ...]) -> tuple[str, str]:
    first = option[0].text
    if len(option) == 2:
        return first, option[1].text
    if match := _JOINED.fullmatch(first):
        return match[1], match[2]
    name, _, value = first.partition("=")
    return name, value


def _srun(words: list[Word], starts: Collection[str], changes: list[str]) -> Wrapped | None:
    """All up to the word with which a server begins are srun's options; its environment is handed on."""
    at = next((i for i, word in enumerate(words) if i and _begins(words, i, starts)), None)
    if at is None:
        return None
    options = list(_slurm_options(words[1:at]))
    kept = tuple(word for option in options if _leaves(option) == "" for word in option)
    changes += [f"{_text(option)} was left out: {why}" for option in options if (why := _leaves(option))]
    return Wrapped(
        wrapper=Wrapper(kind="srun", program=_program(words[0]), options=tuple(word.text for word in kept)),
        rest=tuple(words[at:]),
        words=kept,
        isolated=False,
        changes=tuple(changes),
        several=next((_text(option) for option in options if _counted(option) not in ("", "1", "1-1")), ""),
    )


def _slurm_options(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Those that matter here with their values, all other words by themselves."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        takes = word.text in _SLURM_LEAVES and word.text != "--pty" and rest
        yield (word, rest.pop(0)) if takes else (word,)


def _slurm_name(option: tuple[Word, ...]) -> tuple[str, str]:
    if len(option) == 1 and (match := _SLURM_JOINED.fullmatch(option[0].text)):
        return match[1], match[2]
    return _name_and_value(option)


def _counted(option: tuple[Word, ...]) -> str:
    name, value = _slurm_name(option)
    return value if name in _COUNTS else ""


def _leaves(option: tuple[Word, ...]) -> str:
    """Why a night does without the option, empty where it stays."""
    return _SLURM_LEAVES.get(_slurm_name(option)[0], "")


def _text(option: tuple[Word, ...]) -> str:
    return " ".join(word.text for word in option)


def _begins(words: Sequence[Word], index: int, starts: Collection[str]) -> bool:
    name = PurePath(words[index].text).name
    following = words[index + 1].text if index + 1 < len(words) else ""
    return following == "-m" or name in starts


def _ssh(words: list[Word], changes: list[str]) -> Wrapped | None:
    """``ssh [OPTIONS] HOST COMMAND...``: a command in quotes is read as the shell there reads it."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _SSH_VALUES else 1
    if at + 1 >= len(words):
        return None
    rest = words[at + 1 :]
    if len(rest) == 1:
        rest = [Word(text="sh"), Word(text="-c"), rest[0]]
    kept = [word for word in words[1:at] if word.text not in ("-t", "-tt", "-f", "-n", "-T")]
    wrapper = Wrapper(
        kind="ssh",
        program=_program(words[0]),
        options=tuple(word.text for word in kept),
        destination=words[at].text,
    )
    return Wrapped(wrapper=wrapper, rest=tuple(rest), words=(*kept, words[at]), changes=tuple(changes))


def _program(word: Word) -> str:
    """Empty where it is the wrapper's own name."""
    return word.text if "/" in word.text else ""
