"""Slurm: ``srun`` in the foreground, known by the name of its job, or of its step where the tuner runs inside a job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers.base import ANY_ADDRESS, Argv, Inquiry, Launch, Listens, belongs, name_of
from autotune.wrappers.script import PORT_GUARD, REFUSE, guarded

KIND = "srun"
# One listing for jobs, which may wait without a step, and one for steps, which alone exist inside an allocation.
_LIST = ("squeue", "--me", "--noheader", "--format", "%i|%j")
_LISTS = (_LIST, (*_LIST, "--steps"))
_OWN = re.compile(
    r"^(?:srun: (?:fatal: .*|error: (?:Unable to|.*[Uu]nable to (?:contact|confirm|create)|.*[Ii]nvalid"
    r"|.*Requested node|.*allocation (?:failure|has been revoked)).*)"
    r"|.*(?:slurmstepd|srun): .*CANCELLED AT .* DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE).*)$",
    re.MULTILINE,
)


class Slurm:
    """See ``Wrapping``."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper

    @property
    def listens(self) -> Listens:
        return "apart" if self._wrapper.address else "here"

    def inquiries(self) -> tuple[Inquiry, ...]:
        return (Inquiry(argv=_LIST, good="Slurm answers", remedy="see that `squeue --me` works on this host"),)

    def launch(self, plan: LaunchPlan, mark: str) -> Launch:
        return Launch(argv=self._srun(plan, name_of(mark)))

    def served(self, plan: LaunchPlan, name: str) -> LaunchPlan:
        return replace(plan, argv=self._srun(plan, name))

    def find(self, mark: str) -> tuple[Argv, ...]:
        return _LISTS

    def left(self, output: str, mark: str) -> tuple[str, ...]:
        rows = (line.strip().partition("|") for line in output.splitlines())
        return tuple(dict.fromkeys(number for number, _, name in rows if belongs(name, mark)))

    def stop(self, left: Sequence[str], mark: str, term_s: float) -> tuple[Argv, ...]:
        """A job is cancelled, which is polite: SIGTERM, and SIGKILL after Slurm's KillWait. A step would be killed."""
        jobs = [number for number in left if "." not in number]
        steps = [number for number in left if "." in number and number.partition(".")[0] not in jobs]
        commands = [("scancel", *jobs)] if jobs else []
        return (*commands, *([("scancel", "--signal=TERM", *steps)] if steps else []))

    def kill(self, left: Sequence[str], mark: str) -> tuple[Argv, ...]:
        return (("scancel", "--signal=KILL", *left),)

    def inside(self, mark: str) -> Argv | None:
        return None

    def own_failure(self, exit_code: int | None, log: str) -> str:
        found = _OWN.search(log)
        return f"Slurm did not run the server: {found[0].strip()}" if found else ""

    def describe(self, name: str) -> str:
        return f"Slurm {'step' if '.' in name else 'job'} {name}"

    def _srun(self, plan: LaunchPlan, name: str) -> Argv:
        wrapper = self._wrapper
        # All of srun's environment: the plan's variables, its secrets and the mark.
        head = (wrapper.program or KIND, "--job-name", name, "--nodes=1", "--ntasks=1", "--export=ALL", "--unbuffered")
        guard: Argv = ()
        if wrapper.address:
            guard = ("sh", "-c", f'{REFUSE}{PORT_GUARD}exec "$@"', "autotune", *guarded(ANY_ADDRESS, plan.port))
        return (*head, *wrapper.options, *guard, *plan.argv)
