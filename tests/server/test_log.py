"""The log: bounded, private, readable while it is written, without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.server.log import REDACTED, CappedLog, LogReader, Pump, StreamRedactor, clean_lines, redact


def test_progress_bars_and_colours_become_plain_lines() -> None:
    """Each update of a bar is a line, ANSI sequences and blank lines are gone."""
    text = "\x1b[36m(EngineCore pid=1)\x1b[0m INFO go\r\n\n 10%|#   |\r 50%|##  |\x1b[K\rTraceback\n\x1b]0;title\x07end"
    assert clean_lines(text) == ["(EngineCore pid=1) INFO go", " 10%|#   |", " 50%|##  |", "Traceback", "end"]


def test_longer_secrets_are_redacted_first() -> None:
    """A secret that contains another leaves nothing of itself."""
    assert redact("k=abcd abcdef", ["abcd", "abcdef", ""]) == f"k={REDACTED} {REDACTED}"


@settings(deadline=None)
@given(
    st.lists(st.text("abx", max_size=8), max_size=12),
    st.sets(st.text("ab", min_size=1, max_size=5), max_size=3),
)
def test_a_redacted_stream_never_shows_a_secret(pieces: list[str], secrets: set[str]) -> None:
    """However the stream is cut, no secret passes, and text without secrets passes unchanged."""
    redactor = StreamRedactor(secrets)
    out = b"".join(redactor.feed(piece.encode()) for piece in pieces) + redactor.flush()
    whole = "".join(pieces)
    assert not any(secret in out.decode().replace(REDACTED, "\n") for secret in secrets)
    if not any(secret in whole for secret in secrets):
        assert out.decode() == whole


def test_the_file_is_private_and_follows_no_link(tmp_path: Path) -> None:
    """Nobody else reads a server's log, and a planted link is refused."""
    CappedLog(tmp_path / "log").close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        CappedLog(tmp_path / "link")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_a_flood_keeps_beginning_and_end(tmp_path: Path, sizes: list[int]) -> None:
    """The file stays within its bound; its head is the stream's head and its tail the stream's tail."""
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    log = CappedLog(path, head_bytes=100, tail_bytes=80)
    lines = [f"{i}:{'x' * size}\n" for i, size in enumerate(sizes)]
    for line in lines:
        log.write(line.encode())
    log.close()
    got, stream = path.read_text(), "".join(lines)
    assert len(got) <= 100 + 2 * 80 + 100
    assert got[:100] == stream[:100]
    assert got.splitlines()[-1] == stream.splitlines()[-1]
    assert (got == stream) == ("was dropped" not in got)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 7))
def test_a_reader_keeps_its_place_when_the_middle_goes(tmp_path: Path, sizes: list[int], every: int) -> None:
    """A reader that looks often enough sees every line once and in order, whatever is dropped behind it."""
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    log = CappedLog(path, head_bytes=100, tail_bytes=400)
    reader, seen = LogReader(log, 0), list[str]()
    lines = [f"{i}:{'x' * size}" for i, size in enumerate(sizes)]
    for i, line in enumerate(lines):
        log.write(f"{line}\n".encode())
        if i % every == 0:
            seen += reader.new_lines()
    log.close()
    seen += reader.last_words()
    assert seen == lines


def test_a_reader_that_slept_through_a_flood_is_told(tmp_path: Path) -> None:
    """Lines that were dropped before they were read are replaced by one line that says so."""
    log = CappedLog(tmp_path / "log", head_bytes=20, tail_bytes=50)
    reader = LogReader(log, 0)
    for i in range(100):
        log.write(f"line {i}\n".encode())
    lines = reader.new_lines()
    assert lines[0] == "line 0"
    assert lines[-1] == "line 99"
    assert sum("was dropped" in line for line in lines) == 1
    log.close()


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    """Half a line is not shown, except as the last words."""
    log = CappedLog(tmp_path / "log")
    reader = LogReader(log, 0)
    log.write("one\ntw\u00f6".encode()[:-1])
    assert reader.new_lines() == ["one"]
    log.write("\u00f6".encode()[-1:] + b"\nthree")
    assert reader.new_lines() == ["tw\u00f6"]
    assert reader.last_words() == ["three"]
    log.close()
    log.close()


def test_a_full_disk_does_not_stop_the_server(tmp_path: Path) -> None:
    """What cannot be written is counted, the pipe is emptied all the same."""
    log = CappedLog(tmp_path / "log")
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, log._fd)
    os.close(full)
    read_fd, write_fd = os.pipe()
    pump = Pump(os.fdopen(read_fd, "rb", buffering=0), log)
    pump.start()
    os.write(write_fd, b"hello\n")
    os.close(write_fd)
    pump.close()
    assert (pump.seen_bytes, log.lost_bytes) == (6, 6)
    log.close()


def test_closing_does_not_wait_for_whoever_holds_the_pipe(tmp_path: Path) -> None:
    """An escaped process that keeps the pipe open holds up nobody; what it wrote so far is kept."""
    log = CappedLog(tmp_path / "log")
    read_fd, write_fd = os.pipe()
    pump = Pump(os.fdopen(read_fd, "rb", buffering=0), log, secrets=["key!"])
    pump.start()
    os.write(write_fd, b"my key! is ke")
    pump.close()
    os.close(write_fd)
    assert (tmp_path / "log").read_text() == f"my {REDACTED} is ke"
    log.close()
