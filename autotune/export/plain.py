"""The command line alone, and everything as JSON."""

from __future__ import annotations

import shlex

import msgspec

from autotune.export.bash import quote
from autotune.export.bundle import ExportBundle, comments, literal_env, secrets, words
from autotune.values import LaunchPlan


def render_args(bundle: ExportBundle) -> str:
    """One shell-quoted line below the provenance; settings and the line before tuning are comments."""
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in literal_env(bundle.plan).items())
    notes = [f"environment:     {settings}"] if settings else []
    notes.append(f"before tuning:   {_line(bundle.baseline)}")
    return f"{comments(bundle, *notes)}{_line(bundle.plan)}\n"


def _line(plan: LaunchPlan) -> str:
    return " ".join(quote(word) for word in words(plan))


def render_json(bundle: ExportBundle) -> str:
    """``argv``, ``env`` and ``secret_env`` of the measured plan and of the baseline, and the provenance.

    ``argv_secrets`` maps the positions of secret arguments to the variable that holds the value, which
    follows the argument's text.
    """
    document = {
        "provenance": dict(bundle.provenance.lines()),
        "plan": _plan(bundle.plan),
        "baseline": _plan(bundle.baseline),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _plan(plan: LaunchPlan) -> dict[str, object]:
    arguments = words(plan)
    return {
        "engine": plan.engine,
        "argv": [word.text for word in arguments],
        "argv_secrets": {str(position): word.secret for position, word in enumerate(arguments) if word.secret},
        "env": literal_env(plan),
        "secret_env": list(secrets(plan)),
        "host": plan.host,
        "port": plan.port,
        "model_name": plan.model_name,
    }
