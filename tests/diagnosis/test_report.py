"""A diagnosis as text and JSON, and files of all kinds."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from autotune.diagnosis import Facts, as_json, as_text, diagnose, diagnose_file
from autotune.errors import InputError

LOG = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n"


def test_json_has_the_four_keys() -> None:
    """Programs find class, action, evidence and advice."""
    record = json.loads(as_json(diagnose(LOG, Facts(engine="vllm"))))
    assert {"class", "action", "evidence", "advice"} <= set(record)
    assert (record["class"], record["action"]) == ("oom_kv", "prune")


def test_text_says_the_same() -> None:
    """People read class, action, the proving line and what to change."""
    text = as_text(diagnose(LOG, Facts(engine="vllm")))
    assert "oom_kv" in text
    assert "prune" in text
    assert LOG.strip() in text
    assert "--gpu-memory-utilization" in text


def test_a_missing_file_is_the_callers_mistake(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(InputError, match=r"absent\.log"):
        diagnose_file(tmp_path / "absent.log", Facts())


def test_a_folder_is_the_callers_mistake(tmp_path: Path) -> None:
    """A folder is refused with one line."""
    with pytest.raises(InputError, match="folder"):
        diagnose_file(tmp_path, Facts())


def test_an_unreadable_file_is_the_callers_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing permissions end in one line, not in a traceback."""
    path = tmp_path / "x.log"
    path.write_text(LOG)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        diagnose_file(path, Facts())


def test_a_pipe_is_read_from_its_beginning(tmp_path: Path) -> None:
    """As in ``diagnose <(zcat server.log.gz)``: what was read to tell its encoding is not lost."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(LOG,))
    writer.start()
    found = diagnose_file(pipe, Facts(engine="vllm"))
    writer.join()
    assert found == diagnose(LOG, Facts(engine="vllm"))


def test_a_device_is_refused() -> None:
    """It may never end."""
    with pytest.raises(InputError, match="is no file but a device"):
        diagnose_file("/dev/zero", Facts())


def test_utf16_and_windows_line_ends(tmp_path: Path) -> None:
    """A log redirected by PowerShell is read, too."""
    path = tmp_path / "x.log"
    path.write_bytes(LOG.replace("\n", "\r\n").encode("utf-16"))
    assert diagnose_file(path, Facts(engine="vllm")).kind == "oom_kv"


def test_a_line_without_end(tmp_path: Path) -> None:
    """Megabytes without a newline are cut, and what follows is still found."""
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * 5_000_000 + b"\n" + LOG.encode())
    assert diagnose_file(path, Facts(engine="vllm")).kind == "oom_kv"
