"""Programs that start a server elsewhere: containers, a batch system, another host.

A new one is one file with a class that satisfies ``base.Wrapping`` and one line in ``WRAPPERS``.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.engines.base import Where
from autotune.study.file import EngineSpec
from autotune.values import Wrapper
from autotune.wrappers import container, slurm, ssh
from autotune.wrappers.base import (
    ANY_ADDRESS,
    LOOPBACK,
    MARK_NAME,
    SERVER_ENV,
    SERVICE_ENV,
    Inquiry,
    Launch,
    Listens,
    Wrapping,
    name_of,
)
from autotune.wrappers.container import Container
from autotune.wrappers.slurm import Slurm
from autotune.wrappers.ssh import Ssh

LOCAL = "local"
WRAPPERS: dict[str, Callable[[Wrapper], Wrapping]] = {
    **dict.fromkeys(container.KINDS, Container),
    slurm.KIND: Slurm,
    ssh.KIND: Ssh,
}


def wrapping(wrapper: Wrapper) -> Wrapping | None:
    """How a server is started and found behind this wrapper; None: it is a process of this machine."""
    return None if wrapper.kind == LOCAL else WRAPPERS[wrapper.kind](wrapper)


def listens(wrapper: Wrapper) -> Listens:
    """Whose socket the server's port is on this machine."""
    there = wrapping(wrapper)
    return there.listens if there else "here"


def is_here(wrapper: Wrapper) -> bool:
    """Whether the server runs on this machine, so that its GPUs, files and listeners can be seen."""
    return wrapper.kind != ssh.KIND and not wrapper.address


def shares_files(wrapper: Wrapper) -> bool:
    """Whether the server sees the files that this machine has."""
    return wrapper.kind in (LOCAL, slurm.KIND)


def gpu_choice(wrapper: Wrapper) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES for the GPUs that a container is given; empty where it gets all, or options say it."""
    chosen = wrapper.kind in container.KINDS and wrapper.gpus not in ("", "all")
    return {"CUDA_VISIBLE_DEVICES": wrapper.gpus} if chosen else {}


def place(spec: EngineSpec, port: int) -> Where:
    """Where a server of this study is reached, and which address it must bind for that."""
    wrapper = spec.wrapper
    if wrapper.address:
        return Where(host=wrapper.address, port=port, listen=ANY_ADDRESS)
    if wrapper.kind == ssh.KIND:
        return Where(host=spec.host, port=port, listen=LOOPBACK)
    inside = wrapper.kind in container.KINDS and wrapper.network == "bridge"
    return Where(host=spec.host, port=port, listen=ANY_ADDRESS if inside else "")


def port_host(spec: EngineSpec) -> str:
    """The address of this machine on which a port must be free for a start."""
    return LOOPBACK if spec.wrapper.address else spec.host


__all__ = [
    "LOCAL",
    "MARK_NAME",
    "SERVER_ENV",
    "SERVICE_ENV",
    "WRAPPERS",
    "Inquiry",
    "Launch",
    "Listens",
    "Wrapping",
    "gpu_choice",
    "is_here",
    "listens",
    "name_of",
    "place",
    "port_host",
    "shares_files",
    "wrapping",
]
