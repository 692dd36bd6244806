"""Ports: a fresh one per start, and whose listener is on it. A listener that is not ours is never adopted."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

import psutil

from autotune.errors import InputError
from autotune.values import Value

_LOWEST = 20000
# Engines derive further ports from theirs; SGLang adds up to 1,000 for its rendezvous.
_DERIVED = 1100
_TRIES = 64


class Listener(Value, frozen=True, kw_only=True):
    """Who listens; ``pid`` is None when it belongs to another user and the kernel does not tell."""

    address: str
    port: int
    pid: int | None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'a process of another user'}{f' (pid {self.pid})' if self.pid else ''}"


def is_free(host: str, port: int) -> bool:
    """Whether a server could bind there now (with SO_REUSEADDR, as servers do: TIME_WAIT does not count)."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError:
            return False
    return True


def fresh_port(host: str, avoid: Collection[int] = ()) -> int:
    """A free port below the kernel's ephemeral range: a model loads for minutes before its server binds,
    and within that range any outgoing connection could take the port meanwhile.

    Raises InputError when this machine cannot listen on ``host``.
    """
    try:
        return _fresh_port(host, avoid)
    except (OSError, UnicodeError) as error:  # a name with an empty or a long part is asked of no name server
        raise InputError(f"engine.host: cannot listen on {host} ({error}); use an address of this machine") from error


def _fresh_port(host: str, avoid: Collection[int]) -> int:
    candidates = range(_LOWEST, max(_LOWEST + 1, _ephemeral_low() - _DERIVED))
    for port in random.sample(candidates, min(_TRIES, len(candidates))):
        if port not in avoid and is_free(host, port):
            return port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _ephemeral_low() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768


def listeners(port: int) -> tuple[Listener, ...]:
    """Every listening TCP socket on the port, on any address."""
    found = [
        Listener(address=c.laddr.ip, port=port, pid=c.pid, name=_name(c.pid))
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
    ]
    return tuple(found)


def _name(pid: int | None) -> str:
    try:
        return psutil.Process(pid).name() if pid else ""
    except psutil.Error:
        return ""


def foreign_listener(port: int, our_pids: Collection[int], unseen: bool = False) -> Listener | None:
    """A listener on the port that is none of ours; None when there is no such one.

    ``unseen``: ours may belong to another user, so that one whose process the kernel does not tell is no stranger.
    """
    ours = {*our_pids, None} if unseen else our_pids
    return next((listener for listener in listeners(port) if listener.pid not in ours), None)


def is_listening(port: int) -> bool:
    """Whether anything listens on the port; reads the kernel's table and opens no connection."""
    return any(_in_table(table, port) for table in ("tcp", "tcp6"))


def _in_table(table: str, port: int) -> bool:
    # Columns: sl local_address rem_address st ...; state 0A is LISTEN, ports are hexadecimal (proc_net(5)).
    try:
        with open(f"/proc/net/{table}") as file:
            return any(_listens(line.split(), f":{port:04X}") for line in file)
    except OSError:
        return False


def _listens(fields: list[str], suffix: str) -> bool:
    return len(fields) > 3 and fields[3] == "0A" and fields[1].endswith(suffix)
