"""The server of a launch script as a study's engine: its command line, settings, names of keys. Pure.

The command keeps every flag that the script gives, searched ones too: they are the baseline, and a trial's flags
replace them. Only what a night decides itself leaves: host, port, keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autotune.engines.argv import flag_name, value_of
from autotune.errors import InputError
from autotune.export.bundle import SECRET_FLAGS
from autotune.intake.call import Call
from autotune.intake.flags import take
from autotune.intake.nodes import refuse_several_nodes
from autotune.intake.remark import Remark
from autotune.intake.search_path import without_doubles
from autotune.intake.server import Server, kind_of, start_of, stranger
from autotune.intake.words import Word
from autotune.intake.wrapped import Wrapped
from autotune.study.environment import is_name, looks_secret
from autotune.values import Value, Wrapper

_TAG = re.compile(r":v?(\d+\.\d+[\w.]*)")
_VLLM_KEY = "VLLM_API_KEY"
_ADDRESS = (("--host",), ("--port", "-p"))
_TLS = ("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-keyfile-password", "--ssl-cert-reqs")


class Launch(Value, frozen=True, kw_only=True):
    """A server as a study starts it. ``host`` and ``port`` are those of the script, empty where it names none.

    ``place`` is its line of the script; in ``folder`` its relative paths are looked for, empty: where it is started.
    """

    kind: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    version: str = ""
    wrapper: Wrapper = Wrapper()
    api_key_env: str = ""
    admin_key_env: str = ""
    model_path: str = ""
    served_name: str = ""
    host: str = ""
    port: str = ""
    place: str = ""
    folder: str = ""
    remarks: tuple[Remark, ...] = ()


def launch_of(call: Call, server: Server, where: str) -> Launch:
    """The study's engine. Raises InputError for a command of which a part cannot be told, or that no night can run."""
    kind, wrapped = server.kind, server.wrapped
    notes = _Notes(where, call.line)
    if server.refusal:
        raise InputError(f"{notes.place}: {server.refusal}")
    for change in server.changes:
        notes.say(change)
    words = _without_unset(list(server.words), notes)
    words, keys = _without_keys(words, kind, notes)
    words, host, port = _without_address(words, notes)
    words = _without_tls(words, notes)
    settings, passed = _settings(server.env, notes)
    if kind == "vllm" and (_VLLM_KEY in server.env or "--api-key" in keys):
        keys["--api-key"] = _VLLM_KEY
    _told(wrapped.words if wrapped else (), notes)
    command = _told(words, notes)
    if kind_of(command):
        refuse_several_nodes(command[start_of(command) :], notes.place)
        if program := stranger(command):
            notes.say(f"{program} stands before the server and was kept: it must hold it, and end with it")
    _flags_elsewhere(command, notes)
    return Launch(
        kind=kind,
        command=tuple(_in_folder(command, call, wrapped, notes)),
        env=settings,
        pass_env=tuple(name for name in dict.fromkeys(passed) if name != _VLLM_KEY),
        version=_version(wrapped),
        wrapper=wrapped.wrapper if wrapped else Wrapper(),
        api_key_env=keys.get("--api-key", ""),
        admin_key_env=keys.get("--admin-api-key", ""),
        model_path=value_of(command, "--model-path", "--model") or _positional(command),
        served_name=value_of(command, "--served-model-name") or "",
        host=host,
        port=port,
        place=notes.place,
        folder=call.folder.text if call.folder and not call.folder.unclear and not _isolated(wrapped) else "",
        remarks=tuple(notes.said),
    )


def _isolated(wrapped: Wrapped | None) -> bool:
    return wrapped is not None and wrapped.isolated


def _flags_elsewhere(command: Sequence[str], notes: _Notes) -> None:
    if file := value_of(command, "--config"):
        notes.say(f"further flags stand in {file}, which was not read: what it sets is not seen here")


def _version(wrapped: Wrapped | None) -> str:
    """The engine's version by the image's tag: an image is not looked into."""
    match = _TAG.search(wrapped.wrapper.image) if wrapped else None
    return match[1] if match else ""


class _Notes:
    """Remarks on one line of the script."""

    def __init__(self, where: str, line: int) -> None:
        self.where = where
        self.line = line
        self.said: list[Remark] = []

    @property
    def place(self) -> str:
        return f"{self.where}:{self.line}"

    def say(self, text: str, line: int = 0) -> None:
        self.said.append(Remark(where=self.where, line=line or self.line, text=text))


def _without_unset(words: list[Word], notes: _Notes) -> list[Word]:
    """Variables that are set nowhere and stand alone: bash makes nothing of them. Behind a flag one is missing."""
    kept: list[Word] = []
    for word in words:
        wanted = bool(kept) and (flag_name(kept[-1].text) or kept[-1].text == "serve")
        alone = word.unclear and not word.text and not word.line and not wanted
        if alone and not any(looks_secret(name) for name in word.names):
            notes.say(f"{word.unclear} is set nowhere and was taken as empty")
        else:
            kept.append(word)
    return kept


def _without_keys(words: list[Word], kind: str, notes: _Notes) -> tuple[list[Word], dict[str, str]]:
    """Secrets leave the command line; their variables are named where the script has them in one."""
    names: dict[str, str] = {}
    for flag in SECRET_FLAGS:
        words, value = take(words, {flag})
        if value is None or flag in _TLS:
            continue
        variable = next((name for name in value.names if is_name(name)), "")
        names[flag] = variable
        if kind == "vllm" and flag == "--api-key":
            notes.say(f"{flag} was left out: export its key as {_VLLM_KEY}, which vLLM reads")
        elif variable:
            notes.say(f"{flag} was left out, since a command line is stored; the study names its variable {variable}")
        else:
            notes.say(f"{flag} stands in the script itself and was left out: during a night the server needs no key")
    return words, names


def _without_address(words: list[Word], notes: _Notes) -> tuple[list[Word], str, str]:
    found = []
    at = start_of([word.text for word in words]) or 0
    front, words = words[:at], words[at:]
    for flags in _ADDRESS:
        words, value = take(words, flags)
        found.append(value.text if value else "")
    if any(found):
        address = ":".join(part or "(default)" for part in found)
        notes.say(f"listens on {address}; a night listens on loopback and a free port, so put it back when you export")
    return [*front, *words], found[0], found[1]


def _without_tls(words: list[Word], notes: _Notes) -> list[Word]:
    for flag in _TLS:
        words, value = take(words, {flag})
        if value is not None:
            notes.say(f"{flag} was left out: a night speaks plain HTTP on loopback; put it back when you export")
    return words


def _settings(env: Mapping[str, Word], notes: _Notes) -> tuple[dict[str, str], list[str]]:
    """Literal settings, and the names of those whose values stay outside of the study."""
    literal: dict[str, str] = {}
    passed: list[str] = []
    for name, word in env.items():
        if not is_name(name):
            notes.say(f"not followed: the setting {name}")
        elif looks_secret(name, word.text) or (word.unclear == f"${name}" and word.text in ("", word.unclear)):
            passed.append(name)
            if not word.unclear:
                notes.say(f"{name} looks like a secret: export it before a night; its value was not taken", word.line)
        elif word.unclear == f"${name}" and word.unclear not in word.text:
            # A path that goes on with what was there before: nothing, here.
            literal[name] = word.text
            notes.say(f"{word.unclear} is set nowhere and was taken as empty", word.line)
        elif word.unclear:
            notes.say(f"{name} was left out: {word.unclear} cannot be told without running the script", word.line)
        else:
            literal[name] = without_doubles(word.text) if name == "PATH" else word.text
    return literal, passed


def _told(words: Sequence[Word], notes: _Notes) -> list[str]:
    """The texts of words that are all clear. Raises InputError naming the first that is not."""
    for before, word in zip([Word(text=""), *words], words, strict=False):
        if word.unclear:
            behind = f" (behind {before.text})" if flag_name(before.text) else ""
            raise InputError(
                f"{notes.place}: {word.unclear}{behind} cannot be told without running the script; "
                f"{_remedy(word, notes)}"
            )
    return [word.text for word in words]


def _remedy(word: Word, notes: _Notes) -> str:
    """An export helps only where the script itself does not set the variable."""
    name = word.unclear.removeprefix("$")
    write = f"write the value into line {word.line or notes.line} of a copy of the script"
    return write if word.line or not is_name(name) else f"export {name} with its value and run again, or {write}"


def _in_folder(command: list[str], call: Call, wrapped: Wrapped | None, notes: _Notes) -> list[str]:
    """A script that changes its folder: the command does the same, by env(1)."""
    if call.folder is None:
        return command
    if _isolated(wrapped):
        notes.say(f"the folder {call.folder.text} is not taken over; relative paths of the wrapper's options meant it")
        return command
    if call.folder.unclear:
        notes.say(f"the folder {call.folder.unclear} cannot be told; start nights in it")
        return command
    return ["env", f"--chdir={call.folder.text}", *command]


def _positional(argv: Sequence[str]) -> str:
    """The model of ``vllm serve MODEL``."""
    if "serve" not in argv[:-1]:
        return ""
    following = argv[argv.index("serve") + 1]
    return "" if following.startswith("-") else following
