"""``docker run`` and ``podman run`` as people write them for a service, and as a night needs them.

A night starts the server in the foreground, on another port each time, and ends it itself. So what keeps a container
alive, names it or maps its ports goes; everything else of the command stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from autotune.intake.words import Word
from autotune.study.environment import looks_secret
from autotune.values import Value

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES_WORDS = (
    "--detach --interactive --tty --rm --init --privileged --read-only --no-healthcheck --oom-kill-disable"
    " --publish-all --sig-proxy --quiet --disable-content-trust --replace --no-hosts --rmi"
)
_SWITCHES = frozenset(_SWITCHES_WORDS.split())
_CLUSTER = re.compile(r"-[ditPq]+")
_LEAVES = {
    "--name": "a fixed name would stand in the way of the next start",
    "--restart": "a night ends the server itself",
    "-p": "the container shares the host's network, since every start has another port",
    "--publish": "the container shares the host's network, since every start has another port",
}
_NETWORK = frozenset({"--network", "--net"})
_ENV = frozenset({"-e", "--env"})


class Container(Value, frozen=True, kw_only=True):
    """``head`` is all up to the image and ``rest`` what runs inside; ``changes`` says what left, and why."""

    head: tuple[Word, ...]
    image: str
    rest: tuple[Word, ...]
    changes: tuple[str, ...]
    pass_env: tuple[str, ...]


def container_of(words: Sequence[Word]) -> Container | None:
    """The container that the words run, None where they run none."""
    texts = [word.text for word in words]
    if not texts or PurePath(texts[0]).name not in PROGRAMS or "run" not in texts[:4]:
        return None
    verb = texts.index("run") + 1
    options, image = _options(words[verb:])
    if image is None:
        return None
    head, changes, passed = _suited(options)
    at = verb + sum(map(len, options))
    return Container(
        head=(*words[:verb], *head, words[at]),
        image=image.text,
        rest=tuple(words[at + 1 :]),
        changes=tuple(changes),
        pass_env=tuple(passed),
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
        # ``-p8000:8000`` and ``-eNAME=value`` carry their value.
        alone = alone or bool(re.match(r"-[epvwum][^-=\s]", word.text))
        found.append(tuple(rest[: 1 if alone else 2]))
        rest = rest[len(found[-1]) :]
    return found, None


def _suited(options: Sequence[tuple[Word, ...]]) -> tuple[list[Word], list[str], list[str]]:
    """The options that stay; what was changed; the variables that come from outside."""
    kept: list[Word] = []
    changes: list[str] = []
    passed: list[str] = []
    for option in options:
        name, text = _name_and_value(option)
        if name in _LEAVES:
            changes.append(f"{name} {text} was left out: {_LEAVES[name]}")
        elif name in _NETWORK:
            if text != "host":
                changes.append(f"{name} {text} became --network host, since every start has another port")
        elif name in ("--detach", "--tty", "--interactive", "--rm") or _CLUSTER.fullmatch(name):
            if name != "--rm":
                changes.append(f"{name} was left out: a night holds the server in the foreground, without a terminal")
        elif name in _ENV:
            variable, _, value = text.partition("=")
            if "=" not in text or looks_secret(variable, value):
                kept += [Word(text="--env"), Word(text=variable)]
                passed.append(variable)
            else:
                kept += option
        else:
            kept += option
    return [Word(text="--rm"), Word(text="--network"), Word(text="host"), *kept], changes, passed


def _name_and_value(option: tuple[Word, ...]) -> tuple[str, str]:
    first = option[0].text
    if len(option) == 2:
        return first, option[1].text
    if match := re.match(r"(-[epvwum])([^-=\s].*)", first):
        return match[1], match[2]
    name, _, value = first.partition("=")
    return name, value
