"""Ports, disk, limits and clocks of the machine."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
from pathlib import Path

import pytest

from autotune.errors import InputError, NightStopped
from autotune.server.cancel import CancelFlag
from autotune.server.clock import BeatingClock, Deadline, FakeClock, SystemClock, slept_s
from autotune.server.host import (
    HostMeter,
    free_bytes,
    host_refusals,
    process_headroom,
    raise_descriptor_limit,
    require_disk,
)
from autotune.server.ports import foreign_listener, fresh_port, is_free, is_listening, listeners


def test_a_fresh_port_is_free_and_not_ephemeral() -> None:
    """No outgoing connection can take it while a model loads."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = fresh_port("127.0.0.1")
    assert is_free("127.0.0.1", port)
    assert port < low


def test_a_listener_is_seen_and_attributed() -> None:
    """A taken port is not free, and its holder is known; only pids outside ours are foreign."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert is_listening(port)
        assert [listener.pid for listener in listeners(port)] == [os.getpid()]
        assert foreign_listener(port, {os.getpid()}) is None
        foreign = foreign_listener(port, {1})
        assert foreign is not None
        assert str(os.getpid()) in str(foreign)
    assert not is_listening(port)
    assert is_free("127.0.0.1", port)


def test_a_listener_on_all_addresses_takes_the_port_too() -> None:
    """A server on 0.0.0.0 would answer for 127.0.0.1."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not is_free("127.0.0.1", server.getsockname()[1])


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "a" * 300])
def test_a_host_of_another_machine_is_an_input_error(host: str) -> None:
    """The study names an address that this machine does not have."""
    with pytest.raises(InputError, match=r"engine\.host"):
        fresh_port(host)


def test_enough_disk_is_silent_and_too_little_stops_the_night(tmp_path: Path) -> None:
    """The message names folder and sizes, and nothing is left in the folder."""
    require_disk(tmp_path, 1)
    with pytest.raises(NightStopped, match="finished trials are kept"):
        require_disk(tmp_path, 2 * free_bytes(tmp_path) + (1 << 40))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "word"), [(errno.EROFS, "cannot be written"), (errno.ENOSPC, "is full")])
def test_a_folder_that_takes_no_file_stops_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, word: str
) -> None:
    """Read-only and full are told apart."""

    def fail(folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("autotune.server.host._try_write", fail)
    with pytest.raises(NightStopped, match=word):
        require_disk(tmp_path, 1)


def test_the_descriptor_limit_is_lifted_or_the_night_stops() -> None:
    """The soft limit goes up to the hard one; a need above that is told before the load."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert raise_descriptor_limit(512) >= 512
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 512
        if before[1] != resource.RLIM_INFINITY:
            with pytest.raises(NightStopped, match="ulimit"):
                raise_descriptor_limit(before[1] + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_host_meter_splits_ours_from_others() -> None:
    """Time that the server used is ours; the rest of what was busy is others', and never negative."""
    used = iter([0.0, 1000.0])
    meter = HostMeter(lambda: next(used))
    load = meter.read()
    assert load.our_cores > 0
    assert load.other_cores == 0.0
    assert load.busy_cores >= 0


def test_headroom_is_a_number_or_unknown() -> None:
    """A control group without a limit says nothing."""
    headroom = process_headroom()
    assert headroom is None or headroom > 0


def test_deadlines_count_down_on_their_clock() -> None:
    """What is left is never negative."""
    clock = FakeClock()
    deadline = Deadline.after(10.0, clock)
    clock.sleep(4.0)
    assert deadline.left_s(clock) == 6.0
    assert not deadline.passed(clock)
    clock.sleep(7.0)
    assert deadline.left_s(clock) == 0.0
    assert deadline.passed(clock)


def test_the_system_clock_goes_forward_and_sleep_is_known() -> None:
    """Two looks are in order; the time asleep is no less than nothing."""
    clock = SystemClock()
    first = clock.now()
    clock.sleep(0.0)
    assert clock.now() >= first
    assert slept_s() > -1.0


def test_a_second_wish_is_urgent() -> None:
    """The first reason is kept, the second call only hurries."""
    flag = CancelFlag()
    assert (flag.reason(), flag.urgent()) == (None, False)
    flag.cancel("SIGTERM")
    assert (flag.reason(), flag.urgent()) == ("SIGTERM", False)
    flag.cancel("SIGINT")
    assert (flag.reason(), flag.urgent()) == ("SIGTERM", True)


def test_whoever_waits_beats() -> None:
    """A wait of a minute in short steps beats about once a second; the steps are passed on."""
    beats: list[float] = []
    inner = FakeClock()
    clock = BeatingClock(inner, lambda: beats.append(inner.now()))
    while clock.now() < 60.0:
        clock.sleep(0.2)
    assert 50 <= len(beats) <= 60


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/f"),
            "/f: No space left on device; the disk is full",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.EIO, "Input/output error"), "look at the machine"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_the_machine_refuses_stops_the_night(error: BaseException, remedy: str) -> None:
    """With its remedy, never with a traceback."""
    with pytest.raises(NightStopped, match=re.escape(remedy)), host_refusals():
        raise error


def test_a_bug_is_not_the_machines_fault() -> None:
    """Other errors pass as they are."""
    with pytest.raises(RuntimeError, match="a bug"), host_refusals():
        raise RuntimeError("a bug")
