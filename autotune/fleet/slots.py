"""How a host is cut into slots: each has its devices and processors, and serves one trial at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.errors import InputError
from autotune.values import Value


class Slot(Value, frozen=True, kw_only=True):
    """``devices`` are numbers as in CUDA_VISIBLE_DEVICES, ``cpus`` processor numbers; empty: all there are."""

    number: int
    devices: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """In words."""
        gpus = f" (GPU {', '.join(map(str, self.devices))})" if self.devices else ""
        return f"slot {self.number}{gpus}"

    def env(self) -> dict[str, str]:
        """What a server of this slot needs in its environment."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.devices))} if self.devices else {}


class Host(Value, frozen=True, kw_only=True):
    """What there is to share. ``near`` maps a device to the processors of its NUMA node, where that is known."""

    devices: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    near: Mapping[int, tuple[int, ...]] = {}


def cut(host: Host, *, gpus_per_trial: int, slots: int) -> tuple[Slot, ...]:
    """The slots of a host, at least one.

    ``gpus_per_trial`` devices each, neighbours by number, and at most ``slots`` of them (0: as many as there are).
    Without ``gpus_per_trial`` there are ``slots`` slots that share whatever devices there are. Processors are dealt
    out only where every slot gets one: near its devices first.
    Raises ``InputError`` when the host has too few devices.
    """
    count = _count(host, gpus_per_trial, slots)
    groups = [host.devices[i * gpus_per_trial : (i + 1) * gpus_per_trial] for i in range(count)]
    dealt = _deal(host, groups)
    return tuple(Slot(number=i, devices=group, cpus=dealt[i]) for i, group in enumerate(groups))


def _count(host: Host, gpus_per_trial: int, slots: int) -> int:
    if not gpus_per_trial:
        return max(1, slots)
    room = len(host.devices) // gpus_per_trial
    if room < max(1, slots):
        wanted = f"{slots} slots of {gpus_per_trial} GPUs" if slots else f"{gpus_per_trial} GPUs for one trial"
        raise InputError(
            f"resources.gpus_per_trial: {wanted} are asked for and {len(host.devices)} are visible; "
            "lower resources.slots or gpus_per_trial, or widen CUDA_VISIBLE_DEVICES"
        )
    return slots or room


def _deal(host: Host, groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Disjoint processors for each group: an equal share, from those near its devices as far as they go."""
    share = len(host.cpus) // len(groups)
    if share < 1 or len(groups) == 1:
        return [()] * len(groups)
    free = list(host.cpus)
    dealt: list[tuple[int, ...]] = []
    for group in groups:
        near = {cpu for device in group for cpu in host.near.get(device, ())}
        taken = sorted(free, key=lambda cpu: (cpu not in near, free.index(cpu)))[:share]
        free = [cpu for cpu in free if cpu not in taken]
        dealt.append(tuple(sorted(taken)))
    return dealt
