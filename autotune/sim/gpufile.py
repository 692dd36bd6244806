"""Pretended GPU memory: a JSON file ``{"0": used_bytes}`` that a keeper process owns on a server's behalf.

The keeper outlives its server, as a driver does: when the server is gone (its pipe closed, however it died) the
memory returns after a delay. Run as a script with the standard library only: it starts in milliseconds.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path


class GpuMemory:
    """The server's side. Without a file nothing happens."""

    def __init__(self, path: str, release_s: float, leak: bool) -> None:
        self._pipe = -1
        if not path:
            return
        reader, self._pipe = os.pipe()
        device = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
        arguments = [os.path.abspath(path), str(release_s), "leak" if leak else "release", device]
        # Detached twice and with an empty environment: the keeper plays the driver, it is nobody's child or orphan.
        launcher = (
            "import subprocess,sys;"
            "subprocess.Popen([sys.executable,'-I','-S',*sys.argv[1:]],start_new_session=True,env={},"
            "stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)"
        )
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", launcher, os.path.abspath(__file__), *arguments],
            stdin=reader,
            env={},
            check=True,
        )
        os.close(reader)

    def use(self, gigabytes: float) -> None:
        """Hold this much memory from now on."""
        if self._pipe >= 0:
            os.write(self._pipe, f"{int(gigabytes * (1 << 30))}\n".encode())


def change(path: Path, delta: int, device: str = "0") -> None:
    """Add to the used bytes of a device, safe against other keepers of the same file."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            used = json.loads(path.read_text())
        except (OSError, ValueError):
            used = {}
        used[device] = used.get(device, 0) + delta
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(used))
        fresh.replace(path)


def keep(path: Path, release_s: float, leak: bool, device: str) -> None:
    """Follow the sizes on standard input; at its end give the memory back, or not."""
    held = 0
    for text in sys.stdin:
        change(path, int(text) - held, device)
        held = int(text)
    if not leak:
        time.sleep(release_s)
        change(path, -held, device)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "leak", sys.argv[4])
