"""What an export says: the measured plan, the plan to go back to, and where the claim comes from."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import InputError
from autotune.study.environment import is_name, looks_secret
from autotune.study.file import Timeouts
from autotune.values import LaunchPlan, Value

STOP_S = 60
"""Seconds in which a server may finish what is in flight before it is killed."""

SECRET_FLAGS = {
    "--api-key": "API_KEY",
    "--admin-api-key": "ADMIN_API_KEY",
    "--hf-token": "HF_TOKEN",
    "--ssl-keyfile-password": "SSL_KEYFILE_PASSWORD",
}
"""Flags whose value is a secret, and the variable that an export reads it from."""


class Provenance(Value, frozen=True, kw_only=True):
    """Where a configuration comes from, as sentences for a reader; an empty one is left out.

    ``score`` carries its uncertainty, as it was measured. ``ranked`` is the score by which the configuration was
    chosen, where that is another one. ``confirmed_gain`` is empty until a confirmation says something. ``promise``
    and ``baseline`` are what one more start of the configuration, and of the one before tuning, should give.
    """

    study: str
    date: str
    file: str = ""
    engine: str = ""
    gpu: str = ""
    gpu_free: str = ""
    model: str = ""
    workload: str = ""
    trial: str = ""
    parameters: str = ""
    score: str = ""
    ranked: str = ""
    confirmed_gain: str = ""
    promise: str = ""
    baseline: str = ""
    changed: str = ""
    wrapper: str = ""
    tool: str = "autotune"

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text of what is known, in reading order, each on one line."""
        facts = (
            ("study", f"{self.study} ({self.file})" if self.file else self.study),
            ("trial", self.trial),
            ("date", self.date),
            ("engine", self.engine),
            ("GPU", self.gpu),
            ("GPU memory", self.gpu_free),
            ("model", self.model),
            ("runs behind", self.wrapper),
            ("workload", self.workload),
            ("parameters", self.parameters),
            ("score", self.score),
            ("ranked by", self.ranked),
            ("confirmed gain", self.confirmed_gain),
            ("promise", self.promise),
            ("baseline", self.baseline),
            ("note", self.changed),
        )
        return tuple((label, one_line(text)) for label, text in facts if text)


class ExportBundle(Value, frozen=True, kw_only=True):
    """All that a renderer needs.

    ``folder`` is where the measured server was started, for command lines with relative paths; empty: anywhere.
    ``service`` is the name of its container or job, which is on its command line; empty: it has none.
    To containers only matter: ``gpus``, how many one server uses; ``image``; ``mounts``, folders of this machine that
    the server reads; ``start_limit_s``, how long a start may take.
    """

    plan: LaunchPlan
    baseline: LaunchPlan
    provenance: Provenance
    gpus: int = 0
    image: str = ""
    folder: str = ""
    service: str = ""
    mounts: tuple[str, ...] = ()
    start_limit_s: float = Timeouts().start_s


class Word(Value, frozen=True, kw_only=True):
    """One argument: literal text, then the value of the environment variable ``secret`` if it names one."""

    text: str
    secret: str = ""


def words(plan: LaunchPlan) -> tuple[Word, ...]:
    """The plan's arguments; values of secret flags are replaced by the variable that holds them.

    Raises InputError for what no process could be started with.
    """
    if not plan.argv or not plan.argv[0]:
        raise InputError("export: the launch plan has no program")
    if any("\0" in text for text in (*plan.argv, *plan.env.values())):
        raise InputError("export: the launch plan has a NUL character, which no command line can hold")
    literal_env(plan)
    return tuple(_words(plan))


def _words(plan: LaunchPlan) -> Iterator[Word]:
    expected = ""
    for argument in plan.argv:
        flag, equals, value = argument.partition("=")
        name = _variable(flag, plan)
        if expected:
            yield Word(text="", secret=expected)
            expected = ""
        elif name and equals and value:
            yield Word(text=flag + "=", secret=name)
        else:
            yield Word(text=argument)
            expected = name if not equals else ""


def _variable(flag: str, plan: LaunchPlan) -> str:
    flag = flag.replace("_", "-")
    if flag == "--api-key" and plan.api_key_env:
        return plan.api_key_env
    return SECRET_FLAGS.get(flag, "")


def literal_env(plan: LaunchPlan) -> dict[str, str]:
    """The settings that may be written down. Raises InputError for a name that no environment can hold."""
    for name in (*plan.env, *plan.secret_env):
        if not is_name(name):
            raise InputError(f"export: {name!r} cannot be the name of an environment variable")
    return {name: value for name, value in plan.env.items() if not looks_secret(name, value)}


def secrets(plan: LaunchPlan) -> tuple[str, ...]:
    """The variables that whoever starts the server must provide: their values are never written."""
    named = [word.secret for word in words(plan) if word.secret]
    looks = [name for name in plan.env if name not in literal_env(plan)]
    return tuple(dict.fromkeys([*plan.secret_env, *looks, *named]))


def one_line(text: str) -> str:
    """Text that cannot leave a comment: every line break and control character is a space."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


EXACT = "This command line is exactly the one that was measured."


def comments(bundle: ExportBundle, *notes: str, claim: str = EXACT) -> str:
    """The provenance and further notes as ``#`` lines; ``claim`` says how the command relates to the measured one."""
    head = f"Written by {bundle.provenance.tool}. {claim}"
    facts = [f"{label + ':':<16} {text}" for label, text in bundle.provenance.lines()]
    return "".join(f"# {one_line_keeping_columns(text)}\n" for text in (head, *facts, *notes))


def one_line_keeping_columns(text: str) -> str:
    """Like ``one_line``, but runs of blanks stay."""
    return "".join(char if char.isprintable() else " " for char in text).rstrip()
