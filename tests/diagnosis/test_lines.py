"""Prefixes, bars, colours and JSON come off; what they say about time, rank and level is kept."""

from __future__ import annotations

import pytest

from autotune.diagnosis.lines import MAX_CHARS, read_lines

PREFIXED = [
    ("[2025-04-11 09:14:02 DP7 TP7] Boom", "DP7 TP7", ""),
    ("[2025-04-11 09:14:02.123 DP0 PP1 ATTN_CP0 TP7 EP3] Boom", "DP0 PP1 ATTN_CP0 TP7 EP3", ""),
    ("[2025-04-11 09:14:02] ERROR:    Boom", "", "ERROR"),
    ("(EngineCore_DP0 pid=2094) ERROR 02-08 19:40:21 [core.py:946] Boom", "EngineCore_DP0", "ERROR"),
    ("\x1b[1;36m(EngineCore pid=9)\x1b[0;0m WARNING 02-08 19:40:21 [a/b.py:946] Boom", "EngineCore", "WARNING"),
    (
        "(EngineCore_0 pid=675221) (VllmWorker TP1 pid=675229) INFO 08-25 11:01:23 [x.py:1] Boom",
        "VllmWorker TP1",
        "INFO",
    ),
    ("(VllmWorker rank=1 pid=400) ERROR 07-10 10:00:01 [multiproc_executor.py:487] Boom", "VllmWorker rank=1", "ERROR"),
    ("INFO 02-27 20:05:31 api_server.py:912] Boom", "", "INFO"),
    ("2026-07-06 23:40:19,201 - WARNING - autotuner.py:1315 - Boom", "", "WARNING"),
    ("[rank4]:[E304 13:40:07.551200418 ProcessGroupNCCL.cpp:616] Boom", "rank4", "ERROR"),
    ("sglang-1  | [2025-04-11 09:14:02 TP0] Boom", "TP0", ""),
    ("2026-02-19T15:08:29.114000001Z stderr F [2026-02-19 15:08:29 TP0] Boom", "TP0", ""),
    ("ERROR 2026-02-19T15:08:29.114Z Boom", "", "ERROR"),
    ("Feb 19 15:08:27 host sglang[1234]: Boom", "", ""),
    ("[02/19/2026-15:08:30] [TRT-LLM] [E] Boom", "", "ERROR"),
    ("0.00.046.745 E Boom", "", "ERROR"),
    ("2026-02-19 15:08:30.123 | ERROR    | pkg.mod:run:12 - Boom", "", "ERROR"),
    ("Boom", "", ""),
]


@pytest.mark.parametrize(("text", "rank", "level"), PREFIXED)
def test_prefixes_come_off(text: str, rank: str, level: str) -> None:
    """Whatever is in front, the message is bare and rank and level are known."""
    (line,) = read_lines(text + "\n")
    assert (line.message, line.rank, line.level) == ("Boom", rank, level)


def test_times_order_lines_of_different_loggers() -> None:
    """Stamps of SGLang, vLLM and NCCL are comparable with each other."""
    log = "[2026-03-04 13:40:06 TP0] a\nINFO 03-04 13:40:07 [x.py:1] b\n[rank4]:[E304 13:40:07.5 Process.cpp:6] c\n"
    times = [line.time_s for line in read_lines(log)]
    assert None not in times
    assert times == sorted(times, key=lambda time_s: time_s or 0)
    assert len(set(times)) == 3


def test_a_continuation_belongs_to_the_line_before() -> None:
    """A traceback under a prefixed line has that line's rank and time."""
    first, second = read_lines("[2025-04-11 09:14:02 TP3] Traceback:\nValueError: no\n")
    assert second.rank == "TP3"
    assert second.time_s == first.time_s


def test_carriage_returns_separate_messages() -> None:
    """A bar redrawn with carriage returns does not swallow the message that follows it."""
    lines = list(read_lines("  1%|x| 1/99 [00:01<01:38, 1.0s/it]\r  2%|x| 2/99 [00:02<01:37, 1.0s/it]\rBoom\r\n"))
    assert [line.progress for line in lines] == [True, True, False]
    assert lines[-1].message == "Boom"


def test_a_message_on_the_line_of_a_bar() -> None:
    """A logger that writes behind a progress bar is heard."""
    lines = list(
        read_lines(
            "Tuning:  81%|##1 | 17/21 [00:00<00:00, 24.12profile/s]2026-07-06 23:40:19,201 - ERROR - x.py:1 - Boom\n"
        )
    )
    assert lines[-1].message == "Boom"
    assert lines[-1].level == "ERROR"


def test_json_with_a_traceback_inside() -> None:
    """The message of a JSON record is split at its newlines and read like a plain log."""
    message = r"[2026-02-19 15:08:30 TP2] Trace:\n  File x\nBoom"
    text = '{"ts": "2026-02-19T15:08:30Z", "level": "error", "msg": "' + message + '"}\n'
    lines = list(read_lines(text))
    assert [line.message for line in lines] == ["Trace:", "  File x", "Boom"]
    assert {line.level for line in lines} == {"ERROR"}
    assert lines[0].rank == "TP2"
    assert all(line.index == 0 and line.time_s for line in lines)


def test_docker_json_files() -> None:
    """Docker's own log files are JSON, too: the text is in the field log."""
    (line,) = read_lines(
        '{"log":"[2026-02-12 09:01:14 TP0] Boom\\n","stream":"stderr","time":"2026-02-12T09:01:14.1Z"}\n'
    )
    assert (line.message, line.rank) == ("Boom", "TP0")


def test_json_that_is_not_a_log_record_is_text() -> None:
    """A line of JSON without a message stays as it is."""
    (line,) = read_lines('{"port": 30000, "tp": 8}\n')
    assert line.message == '{"port": 30000, "tp": 8}'


def test_long_lines_are_cut_and_blank_ones_dropped() -> None:
    """The echo of all arguments cannot slow a search down, and empty lines are no messages."""
    lines = list(read_lines("\n   \n" + "x" * 100_000 + "\n"))
    assert [len(line.message) for line in lines] == [MAX_CHARS]
    assert lines[0].index == 2


def test_bytes_of_any_kind() -> None:
    """Bytes that are no text, and control characters, become something readable."""
    (line,) = read_lines(b"\xff\xfe\x00Bo\x07om\n")
    assert line.message.endswith("Boom")
