"""The command line: parse, compose, print, exit code. The only importer of typer.

Exit codes: 0 done; 1 an unexpected error; 2 the input is wrong, nothing was started; 3 the night stopped for the
reason printed, all that was measured is kept; 4 another tuner works on the study; 5 what was asked to be checked does
not hold; 128 + N ended by signal N.
"""

from __future__ import annotations

import contextlib
import os
import sys

from autotune.errors import AutotuneError, InputError
from autotune.study.refusals import is_of_a_path, unusable


def hold_standard_descriptors() -> None:
    """Open /dev/null in the place of a standard stream that is closed (``2>&-``).

    Otherwise the next file that is opened, a database for example, takes its number and gets the messages.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def let_go_of_dead_streams() -> None:
    """What nobody can read any more must not fail once more, and change the exit code, when the interpreter ends."""
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def in_words(error: OSError) -> AutotuneError:
    """What a person can change, as an error of its own. Raises ``error`` again where that is nothing.

    What goes wrong within a night is no matter of this edge: there it is a ``NightStopped`` already.
    """
    if is_of_a_path(error):
        return InputError(unusable(os.fsdecode(error.filename), error))
    if refused := _refusal_of_output():
        return InputError(f"standard output: cannot be written ({refused.strerror}); print to another place")
    raise error


def _refusal_of_output() -> OSError | None:
    """Why standard output does not take what was printed: it keeps that, and fails again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return error
    except ValueError:  # closed
        return None
    return None


def main() -> None:
    """The console script."""
    hold_standard_descriptors()
    # The simulated server starts within a second and takes an engine's own flags: it is no typer command.
    if sys.argv[1:2] == ["sim"]:
        from autotune.sim.__main__ import main as simulate

        raise SystemExit(simulate(sys.argv[2:]))
    from autotune.cli.app import app

    try:
        app(prog_name="autotune", standalone_mode=True)
    except (AutotuneError, OSError) as caught:
        error = caught if isinstance(caught, AutotuneError) else in_words(caught)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody may be left to read it
            print(f"autotune: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from caught
    finally:
        let_go_of_dead_streams()
