"""A PostgreSQL of the tests' own: on loopback, with its data in a temporary folder, as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import sqlalchemy as sa

USER = "postgres"
LIMIT_S = 120


def installed() -> Path | None:
    """The folder of Debian's newest server programs, which are not in PATH; else where ``initdb`` is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    elsewhere = shutil.which("initdb")
    return found[-1].parent if found else Path(elsewhere).parent if elsewhere else None


class Database(msgspec.Struct, frozen=True):
    """A server that runs. ``url`` is for SQLAlchemy."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self._control("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """At once; every connection breaks."""
        self._control("stop", "-w", "-m", "fast")

    def ask(self, question: str) -> list[tuple[object, ...]]:
        """The rows of one statement, if it has some; it is committed."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            found = connection.execute(sa.text(question))
            return [tuple(row) for row in found] if found.returns_rows else []

    def cut(self) -> int:
        """End every connection but this one; how many there were."""
        others = f"usename = '{USER}' AND pid <> pg_backend_pid()"
        return len(self.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))

    def _control(self, *words: str) -> None:
        unprivileged([str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *words])


@contextmanager
def database() -> Iterator[Database]:
    """A fresh server, gone with all its data afterwards."""
    programs = installed()
    assert programs is not None
    # pytest's own folders are closed to other users, and the server is not root.
    with tempfile.TemporaryDirectory(prefix="autotune-pg-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", USER, "-A", "trust", "-E", "UTF8"]
        unprivileged([*initdb, "--locale=C", "--no-sync"])
        server = Database(programs, folder, _free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()


def unprivileged(argv: Sequence[str]) -> None:
    """Run it; PostgreSQL refuses to run as root."""
    user = USER if os.geteuid() == 0 else None
    subprocess.run(
        argv, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S
    )


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])
