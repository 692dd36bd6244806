"""A server behind a command that speaks the chat route and no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autotune.values import Measured
from tests.conformance.subjects import COMMAND
from tests.nights import autotune, left, result

SERVER = """
import sys
from autotune.sim.__main__ import main
from autotune.sim.dialects.llamacpp import LlamaCpp

whole = LlamaCpp.routes
LlamaCpp.routes = lambda *asked: {path: route for path, route in whole(*asked).items() if path != "/v1/completions"}
sys.exit(main(sys.argv[1:]))
"""


def study(folder: Path, route: str) -> Path:
    """A study of one trial, whose load takes this route."""
    server = folder / "server.py"
    server.write_text(SERVER)
    python, module, name, *flags = COMMAND.command
    assert (module, name) == ("-m", "autotune.sim")
    subject = msgspec.structs.replace(COMMAND, command=(python, str(server), *flags), route=route)
    return subject.write(folder / "study", trials=1)


def test_a_server_without_completions_gets_ready_by_chats(tmp_path: Path) -> None:
    """Readiness asks by the route of the load, so that the baseline is measured."""
    path = study(tmp_path, "chat")
    done = autotune("tune", path)
    assert done.returncode == 0, done.stderr
    assert isinstance(result(path, 0).outcome, Measured)
    assert left(path) == []


@pytest.mark.slow
def test_a_route_that_the_server_does_not_have_is_said(tmp_path: Path) -> None:
    """The night ends at the baseline, with the answer that the server gave."""
    path = study(tmp_path, "completions")
    done = autotune("tune", path)
    assert done.returncode != 0
    assert "the server refuses to generate: HTTP 404" in done.stderr
    assert left(path) == []
