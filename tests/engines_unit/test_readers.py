"""Telling a read of an argument from talk about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.engines.readers import lines_reading, readers

READS = [
    "n = self.server_args.steps - 1",
    "for _ in range(args.steps): pass",
    "x = getattr(args, 'steps', 1)",
    "x = args['steps']",
    "x = config.get('steps')",
    "run(steps=args.steps)",
    "if args.steps > 1:\n    fast()",
    "def f(steps):\n    return steps + 1",
    "this is not python 3 (steps",
]
TALK = [
    "assert args.steps > 0",
    "raise ValueError(f'steps {args.steps}')",
    "logger.info('steps %d', args.steps)",
    "info = {'steps': args.steps}",
    "args.steps = 1",
    "run(steps=1)",
    "names = ['steps', 'other']",
    "'''steps'''",
    "steps = 3",
    "other.steps_more + 1",
]
HANDLING_TALK = [
    "class ServerArgs:\n    steps: int = 1",
    "def add_cli_args(parser):\n    parser.add_argument('--steps', default=ServerArgs.steps, help=args.steps)",
    "def f(self):\n    if self.steps is None:\n        self.steps = 1",
    "def f(self):\n    self.steps = self.steps // self.dp",
    "def f(self):\n    self.steps //= self.dp",
    "def f(self):\n    if self.steps < 1:\n        raise ValueError('steps')",
    "def f(self):\n    if self.steps > 1:\n        logger.warning('many steps')",
    "def f(self):\n    return Config(steps=self.steps)",
]
HANDLING_READS = [
    "def f(self):\n    _set('decode', 'steps', self.steps)",
    "def f(self):\n    if self.steps > 1:\n        self.backend = 'x'",
    "def f(self):\n    self.pool = self.steps * 2",
    "def f(self):\n    if self.steps is None:\n        self.steps = 1\n    elif self.a:\n        self.b = 2",
]


@pytest.mark.parametrize("source", READS)
def test_reads_are_found(source: str) -> None:
    """When in doubt a flag is alive: a live parameter must not be frozen."""
    assert lines_reading(source, "steps", handling=False)


@pytest.mark.parametrize("source", TALK)
def test_talk_is_no_read(source: str) -> None:
    """Checking, logging, echoing, declaring or writing a value does nothing with it."""
    assert lines_reading(source, "steps", handling=False) == ()


@pytest.mark.parametrize("source", HANDLING_READS)
def test_argument_handling_can_read(source: str) -> None:
    """An argument that changes another one, or is handed on under another name, has an effect."""
    assert lines_reading(source, "steps", handling=True)


@pytest.mark.parametrize("source", HANDLING_TALK)
def test_argument_handling_mostly_does_not(source: str) -> None:
    """Declaring, filling in, checking, and handing on under the same name is not yet an effect."""
    assert lines_reading(source, "steps", handling=True) == ()


def test_tests_and_benchmarks_are_no_readers(tmp_path: Path) -> None:
    """Only what serves counts; the scheduler is named first, with its line."""
    for name in ("test/a.py", "bench_x.py", "auto_benchmark_lib.py", "api.py", "srt/managers/scheduler.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\nx = args.steps\n")
    assert readers(tmp_path, ["steps", "none"]) == {
        "steps": ("srt/managers/scheduler.py:2", "api.py:2"),
        "none": (),
    }


def test_a_compiled_module_may_be_the_reader(tmp_path: Path) -> None:
    """What only a compiled module names cannot be called dead."""
    (tmp_path / "core.so").write_bytes(b"\x7fELF\0steps\0")
    assert readers(tmp_path, ["steps"]) == {"steps": ("core.so",)}
