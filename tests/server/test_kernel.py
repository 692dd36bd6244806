"""The kernel's word on a server."""

from __future__ import annotations

from pathlib import Path

from autotune.server.kernel import kernel_log

LINES = """6,900,5000000,-;oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=41,uid=0
4,901,9000000,-;Out of memory: Killed process 42 (sglang::schedul) total-vm:1kB
 SUBSYSTEM=memory
6,902,9100000,-;Out of memory: Killed process 4200 (somebody else)
6,903,9200000,-;eth0: link is up
"""


def test_only_lines_of_our_processes_in_their_life_count(tmp_path: Path) -> None:
    """A kill before the start, of another process, or of no process at all is not this server's."""
    source = tmp_path / "kmsg"
    source.write_text(LINES)
    assert kernel_log({41, 42}, 6.0, source) == "Out of memory: Killed process 42 (sglang::schedul) total-vm:1kB"
    assert kernel_log({7}, 0.0, source) == ""
    assert kernel_log(set(), 0.0, source) == ""


def test_a_kernel_log_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """Ordinary users may not read it on most machines: then nothing is known, which is not the same as nothing."""
    assert kernel_log({42}, 0.0, tmp_path / "absent") is None
