"""Servers that are a part of one server on several nodes: a night starts one process tree, on one node. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.engines.argv import flag_name, value_of
from autotune.errors import InputError

_REMEDY = (
    "a night starts one server and cannot start the others with each trial; "
    "give a script of a server that fits one node"
)


def refuse_several_nodes(command: Sequence[str], place: str) -> None:
    """Raises InputError for the flag that says so. The command begins with the server itself."""
    flag = _flag(command)
    if flag:
        raise InputError(f"{place}: {flag}: every start would need its other ranks started elsewhere; {_REMEDY}")


_NODES = (
    ("--nnodes", "-n", "1"),
    ("--node-rank", "-r", "0"),
    ("--data-parallel-rank", "-dpn", "0"),
    ("--data-parallel-start-rank", "-dpr", "0"),
)


def _flag(command: Sequence[str]) -> str:
    for *names, one in _NODES:
        value = value_of(command, *names)
        if value is not None and value != one:
            return f"{names[0]} {value}"
    if any(flag_name(word) == "--headless" for word in command):
        return "--headless"
    here, all_ = (value_of(command, *names) for names in _DATA_PARALLEL)
    if value_of(command, "--data-parallel-rank", "-dpn") is not None and (all_ or "1") != "1":
        return f"--data-parallel-size {all_} with --data-parallel-rank"
    return f"--data-parallel-size-local {here}" if here is not None and here != (all_ or "1") else ""


_DATA_PARALLEL = (("--data-parallel-size-local", "-dpl"), ("--data-parallel-size", "-dp"))
