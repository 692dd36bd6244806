"""A host cut into slots."""

import pytest

from autotune.errors import InputError
from autotune.fleet.slots import Host, Slot, cut

EIGHT = Host(devices=tuple(range(8)), cpus=tuple(range(16)))


def test_devices_are_dealt_out_in_order_and_none_twice() -> None:
    """Two of eight GPUs a trial make four slots of neighbours."""
    slots = cut(EIGHT, gpus_per_trial=2, slots=0)
    assert [slot.devices for slot in slots] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert slots[2].env() == {"CUDA_VISIBLE_DEVICES": "4,5"}
    cpus = [cpu for slot in slots for cpu in slot.cpus]
    assert sorted(cpus) == list(EIGHT.cpus)


def test_processors_near_the_devices_come_first() -> None:
    """Where the driver tells which node a GPU hangs on, its slot gets that node's processors."""
    near = {0: (4, 5, 6, 7), 1: (0, 1, 2, 3)}
    slots = cut(Host(devices=(0, 1), cpus=tuple(range(8)), near=near), gpus_per_trial=1, slots=0)
    assert [slot.cpus for slot in slots] == [(4, 5, 6, 7), (0, 1, 2, 3)]


def test_fewer_slots_than_there_is_room_for() -> None:
    """``slots`` bounds them; the rest of the GPUs stays idle."""
    assert [slot.devices for slot in cut(EIGHT, gpus_per_trial=2, slots=3)] == [(0, 1), (2, 3), (4, 5)]


def test_nothing_asked_is_one_slot_with_everything() -> None:
    """The host as it is: no device is hidden, no processor bound."""
    assert cut(EIGHT, gpus_per_trial=0, slots=0) == (Slot(number=0),)
    assert cut(EIGHT, gpus_per_trial=0, slots=0)[0].env() == {}


def test_more_slots_than_processors_share_them() -> None:
    """A slot without a processor of its own is bound to none."""
    slots = cut(Host(cpus=(0, 1)), gpus_per_trial=0, slots=4)
    assert len(slots) == 4
    assert all(slot.cpus == () for slot in slots)


@pytest.mark.parametrize(("per_trial", "slots"), [(16, 0), (4, 3)])
def test_too_few_devices_are_an_error_with_its_remedy(per_trial: int, slots: int) -> None:
    """What was asked, what is there, and what to change."""
    with pytest.raises(InputError, match=r"resources\.gpus_per_trial: .* 8 are visible; lower resources\.slots"):
        cut(EIGHT, gpus_per_trial=per_trial, slots=slots)
    with pytest.raises(InputError, match="16 GPUs for one trial are asked for and 8 are visible"):
        cut(EIGHT, gpus_per_trial=16, slots=0)
