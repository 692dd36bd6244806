"""Readers that follow the rules of the formats, to get back what was written."""

from __future__ import annotations

import re
from typing import Any

import yaml

C_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\", b'"': b'"'}


def unit(text: str) -> dict[str, list[str]]:
    """The settings of a unit file: comments skipped, continued lines joined with a space (systemd.syntax)."""
    found: dict[str, list[str]] = {}
    lines = [line for line in text.split("\n") if not line.startswith(("#", ";"))]
    for line in "\n".join(lines).replace("\\\n", " ").split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key, []).append(value)
    return found


def unquoted(value: str) -> list[str]:
    """The double-quoted words of a setting, C escapes and ``%%`` resolved."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', value)

    def resolve(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1][1:], 16)]) if match[1].startswith(b"x") else LETTERS[match[1]]

    return [C_ESCAPE.sub(resolve, word.encode()).decode().replace("%%", "%") for word in words]


def exec_start(text: str) -> list[str]:
    """The argv that systemd would hand to env(1)."""
    return argv_of(unit(text)["ExecStart"][-1])


def argv_of(value: str) -> list[str]:
    """The argv of one ExecStart."""
    assert value.startswith("/usr/bin/env -- ")
    return [word.replace("$$", "$") for word in unquoted(value)]


def drop_in(text: str) -> str:
    """The lines of the unit's comments that going back asks to put into a drop-in."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("#     [Service]"))
    return "\n".join(line.removeprefix("#     ") for line in lines[start : start + 3])


def interpolated(text: str, env: dict[str, str]) -> str:
    """A string as compose reads it: ``$$`` is one, ``$NAME`` and ``${NAME...}`` are values, else an error."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name = match[2] or match[3]
        assert name, f"compose refuses {text!r}"
        return env.get(name, "")

    return re.sub(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)[^}]*\}|)", value, text)


def expanded(text: str, env: dict[str, str]) -> str:
    """A string as Kubernetes reads it: ``$$`` is one, ``$(NAME)`` is a value where there is one."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] else env.get(match[2], match[0])

    return re.sub(r"\$(?:(\$)|\(([^)]*)\))", value, text)


def service_argv(service: dict[str, Any], env: dict[str, str]) -> list[str]:
    """What a service of a compose file starts."""
    return [interpolated(word, env) for word in [*service["entrypoint"], *service.get("command", [])]]


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """The one container of a Deployment."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def documents(text: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all(text))
