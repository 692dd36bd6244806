"""A bash script that starts the measured server, or with ``--baseline`` the one before tuning."""

from __future__ import annotations

import shlex

from autotune.export.bundle import ExportBundle, Word, comments, literal_env, secrets, words
from autotune.values import LaunchPlan
from autotune.wrappers import SERVICE_ENV

_USAGE = "usage: $0 [--baseline]"


def render_bash(bundle: ExportBundle) -> str:
    """The script's text. Its argv is the plan's, word for word; secrets must be in the environment."""
    plan, baseline = bundle.plan, bundle.baseline
    notes = (
        f"address:         {plan.base_url}",
        "Without an argument it starts the measured configuration; with --baseline the one before tuning.",
    )
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            comments(bundle, *notes) + "set -euo pipefail",
            *([f"cd -- {shlex.quote(bundle.folder)}"] if bundle.folder else []),
            "",
            _function("tuned", plan, bundle.service),
            "",
            _function("baseline", baseline, bundle.service and f"{bundle.service}-baseline"),
            "",
            'case "${1:-}" in',
            '    "") tuned ;;',
            "    --baseline) baseline ;;",
            f'    *) echo "{_USAGE}" >&2; exit 2 ;;',
            "esac",
            "",
        ]
    )


def _function(name: str, plan: LaunchPlan, service: str) -> str:
    lines = [f"    export {key}={shlex.quote(value)}" for key, value in literal_env(plan).items()]
    for key in secrets(plan):
        lines += [f'    : "${{{key}:?set it in the environment; secrets are not written here}}"', f"    export {key}"]
    quoted = [quote(word) for word in words(plan)]
    if service:
        # The first one: what people write themselves comes after it.
        quoted[quoted.index(service)] = f'"${{{SERVICE_ENV}:-{service}}}"'
    arguments = " \\\n        ".join(quoted)
    return "\n".join([f"{name}() {{", *lines, f"    exec -- {arguments}", "}"])


def quote(word: Word) -> str:
    """One argument as bash reads it back; a secret is expanded when the script runs."""
    if not word.secret:
        return shlex.quote(word.text)
    return (shlex.quote(word.text) if word.text else "") + f'"${{{word.secret}}}"'
