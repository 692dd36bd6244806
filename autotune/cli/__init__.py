"""The command line: parse, compose, print, exit code. The only importer of typer.

Exit codes: 0 done; 1 an unexpected error; 2 the input is wrong, nothing was started; 3 the night stopped for the
reason printed, all that was measured is kept; 4 another tuner works on the study; 5 what was asked to be checked does
not hold; 128 + N ended by signal N.
"""

from __future__ import annotations

import sys

from autotune.errors import AutotuneError


def main() -> None:
    """The console script."""
    # The simulated server starts within a second and takes an engine's own flags: it is no typer command.
    if sys.argv[1:2] == ["sim"]:
        from autotune.sim.__main__ import main as simulate

        raise SystemExit(simulate(sys.argv[2:]))
    from autotune.cli.app import app

    try:
        app(prog_name="autotune", standalone_mode=True)
    except AutotuneError as error:
        print(f"autotune: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
