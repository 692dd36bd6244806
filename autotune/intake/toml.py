"""A draft as the text of a study file, with comments for whoever reads it next. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import tomlkit
from tomlkit.items import Array, Table

from autotune.engines.argv import flag_name
from autotune.export.bundle import one_line
from autotune.intake.draft import Draft
from autotune.intake.remark import Remark
from autotune.values import Wrapper

WIDTH = 116
_SETTINGS = {
    "input_tokens": "Tokens of a prompt; prompts are fresh random token ids.",
    "output_tokens": "Tokens of a reply.",
    "range_ratio": "Lengths are drawn from this share of the length up to it; 1 is fixed.",
    "concurrency": "Requests in flight.",
    "request_rate": "Requests per second (Poisson).",
    "token_id_low": "The model's vocabulary is smaller than what is assumed of one.",
}


def render_study(draft: Draft) -> str:
    """The study file. What was not taken over, or not understood, stands in its comments."""
    document = tomlkit.document()
    for text in (draft.description, "All keys and their defaults are in docs/study.md.", *_remarks(draft.remarks)):
        for line in textwrap.wrap(one_line(text), WIDTH):
            document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    document.add("name", tomlkit.item(draft.name))
    document.add("description", tomlkit.item(one_line(draft.description)))
    document.add("seed", tomlkit.item(1))
    for name, section in _sections(draft):
        document.add(tomlkit.nl())
        document.add(name, section)
    return tomlkit.dumps(document)


def _remarks(remarks: Sequence[Remark]) -> list[str]:
    return [f"Note: {remark}" for remark in remarks]


def _sections(draft: Draft) -> Iterable[tuple[str, Table]]:
    yield "engine", _engine(draft)
    if draft.model_path or draft.served_name:
        yield "model", _model(draft)
    yield "space", _space(draft)
    yield "workload", _workload(draft)
    yield "objective", _plain({"metric": draft.metric}, "Throughputs are maximised, latencies minimised.")
    budget = {"trials": draft.trials, "wall_clock": draft.wall_clock}
    yield "budget", _plain(budget, "A night ends at whichever comes first; the confirmation is inside of it.")


def _engine(draft: Draft) -> Table:
    engine = draft.engine
    table = tomlkit.table()
    table.add("kind", engine.kind)
    _say(
        table, "The baseline is this command line as it stands; a trial's flags replace the same ones. Host and port of"
    )
    _say(table, "each start are put in by autotune, {python} is the interpreter that runs it.")
    table.add("command", _command(engine.command))
    if engine.env:
        env = tomlkit.inline_table()
        env.update(engine.env)
        table.add("env", env)
    if engine.pass_env:
        _say(table, "Taken from the environment of the night; their values are never stored.")
        table.add("pass_env", engine.pass_env)
    for key in ("version", "api_key_env", "admin_key_env"):
        if name := getattr(engine, key):
            table.add(key, name)
    if engine.wrapper != Wrapper():
        table.add("wrapper", _wrapper(engine.wrapper))
    return table


def _command(command: Sequence[str]) -> Array:
    """A flag and its value on one line."""
    array = tomlkit.array()
    rest = list(command)
    while rest:
        words = [rest.pop(0)]
        while rest and (len(words) == 1 or not flag_name(words[0])) and not flag_name(rest[0]):
            words.append(rest.pop(0))
        array.add_line(*words, indent="  ")
    array.add_line(indent="")
    return array


def _wrapper(wrapper: Wrapper) -> Table:
    table = tomlkit.table()
    _say(table, "Where the server runs; autotune names it, holds it in the foreground and ends it there.")
    for key, value in msgspec.to_builtins(wrapper).items():
        if value != getattr(Wrapper(), key) and value != ():
            table.add(key, _command(value) if isinstance(value, tuple | list) else value)
    return table


def _model(draft: Draft) -> Table:
    table = tomlkit.table()
    _say(table, "Its config.json gives the arithmetic of the bounds.")
    table.add("path", draft.model_path)
    if draft.served_name:
        table.add("served_name", draft.served_name)
    return table


def _space(draft: Draft) -> Table:
    table = tomlkit.table()
    table.add("parameters", list(draft.parameters))
    others = f"Further ones: {', '.join(draft.others)}."
    for line in textwrap.wrap(others, WIDTH):
        _say(table, line)
    if draft.overrides:
        _say(table, "Ranges that the sweep tried; without them the bounds follow from model and load.")
        overrides = tomlkit.table(is_super_table=True)
        for name, override in draft.overrides.items():
            overrides.add(
                name, _plain({k: v for k, v in msgspec.to_builtins(override).items() if v not in (None, False)})
            )
        table.add("override", overrides)
    return table


def _workload(draft: Draft) -> Table:
    table = tomlkit.table()
    for key, value in draft.workload.items():
        if key in _SETTINGS:
            _say(table, _SETTINGS[key])
        table.add(key, value)
    return table


def _plain(values: dict[str, Any], comment: str = "") -> Table:
    table = tomlkit.table()
    if comment:
        _say(table, comment)
    for key, value in values.items():
        table.add(key, value)
    return table


def _say(table: Table, text: str) -> None:
    table.add(tomlkit.comment(text))
