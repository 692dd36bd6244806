"""``python -m autotune.sim``: one simulated server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from autotune.errors import InputError
from autotune.sim.flags import parse
from autotune.sim.server import run_server


def main(argv: Sequence[str]) -> int:
    """Run one server with these arguments (without a program name) and return its exit status."""
    args, options, given, dialect = parse(argv)
    try:
        return run_server(args, options, given, dialect)
    except InputError as error:
        print(f"autotune sim: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
