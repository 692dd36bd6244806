"""A systemd unit. Quoting after systemd.syntax(7), systemd.service(5) and systemd.exec(5)."""

from __future__ import annotations

from autotune.errors import InputError
from autotune.export.bundle import STOP_S, ExportBundle, Word, comments, literal_env, one_line, secrets, words
from autotune.values import LaunchPlan

FILES = 65536
"""A service may open 1,024 files by default, and every request in flight is one."""
_CONTINUED = " \\\n    "
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def render_systemd(bundle: ExportBundle) -> str:
    """The unit's text; the command line before tuning is a drop-in in its comments."""
    plan = bundle.plan
    study = one_line(bundle.provenance.study)
    notes = ["Without a User= under [Service] the server runs as root.", *_rollback(bundle)]
    if names := secrets(plan):
        notes.append(f"Secrets: put {', '.join(f'{name}=...' for name in names)} into the EnvironmentFile, mode 0600.")
    environment = [f"Environment={quote_setting(f'{key}={value}')}" for key, value in literal_env(plan).items()]
    if secrets(plan):
        environment.append(f"EnvironmentFile={_secrets_file(study)}")
    return "\n".join(
        [
            comments(bundle, *notes) + "[Unit]",
            f"Description=Inference server tuned by {study.replace('%', '%%')}".rstrip("\\"),
            "Wants=network-online.target",
            "After=network-online.target",
            "",
            "[Service]",
            "Type=exec",
            *([f"WorkingDirectory={one_line(bundle.folder).replace('%', '%%')}"] if bundle.folder else []),
            *environment,
            f"ExecStart={_command(plan, _CONTINUED)}",
            "Restart=on-failure",
            "RestartSec=10",
            "KillMode=control-group",
            f"LimitNOFILE={FILES}",
            f"TimeoutStopSec={STOP_S}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def _rollback(bundle: ExportBundle) -> tuple[str, ...]:
    """Lines that `systemctl edit` takes, and `systemctl revert` takes away again."""
    return (
        "To go back: systemctl edit this unit, put in these lines, and restart it; systemctl revert undoes that.",
        "    [Service]",
        "    ExecStart=",
        f"    ExecStart={_command(bundle.baseline, ' ')}",
    )


def _command(plan: LaunchPlan, separator: str) -> str:
    """Through env(1), which finds the program by PATH as the measured start did."""
    if "=" in plan.argv[0]:
        raise InputError(f"export: systemd cannot start a program with '=' in its name: {plan.argv[0]!r}")
    return separator.join(["/usr/bin/env --", *(quote_argument(word) for word in words(plan))])


def quote_argument(word: Word) -> str:
    """One argument of ExecStart: ``$`` and ``%`` are doubled, a secret is expanded by systemd."""
    secret = f"${{{word.secret}}}" if word.secret else ""
    return f'"{_escape(word.text).replace("$", "$$")}{secret}"'


def quote_setting(text: str) -> str:
    """One assignment of Environment=, where ``$`` has no meaning."""
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(char) or (char if char.isprintable() else _bytes(char)) for char in text).replace(
        "%", "%%"
    )


def _bytes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _secrets_file(study: str) -> str:
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in study)
    return f"/etc/autotune/{name or 'study'}.env"
