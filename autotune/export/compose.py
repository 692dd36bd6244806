"""A compose file: the measured service, and the one before tuning to go back to."""

from __future__ import annotations

import math

from autotune.export.bundle import STOP_S, ExportBundle, Word, comments, literal_env, secrets, words
from autotune.export.container import HEALTH_PATHS, Contained, changes, contained, default_image
from autotune.export.yaml import Tree, dump

_LOOPBACK = "127.0.0.1"
_ASK = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}{path}', timeout=25)"
_NOTES = (
    f"Published on this machine's {_LOOPBACK} alone: take that away under ports to serve others.",
    "Secrets come from the environment and are not written here.",
    "To go back: docker compose stop tuned && docker compose up -d baseline",
)


def render_compose(bundle: ExportBundle) -> str:
    """The service ``tuned``, and ``baseline`` in a profile of its own, which nothing starts by itself."""
    tuned, baseline = contained(bundle.plan), contained(bundle.baseline)
    services: dict[str, Tree] = {
        "tuned": _service(bundle, tuned),
        "baseline": {"profiles": ["baseline"], **_service(bundle, baseline)},
    }
    claim, notes = changes(tuned, baseline)
    return comments(bundle, *notes, *_NOTES, claim=claim) + dump({"services": services})


def _service(bundle: ExportBundle, inside: Contained) -> dict[str, Tree]:
    plan = inside.plan
    program, *arguments = [_expanding(word) for word in words(plan)]
    service: dict[str, Tree] = {
        "image": _literal(bundle.image) if bundle.image else f"${{AUTOTUNE_IMAGE:-{default_image(bundle)}}}",
        "entrypoint": [program],
        "command": arguments,
        "ports": [f"{_LOOPBACK}:{plan.port}:{plan.port}"],
        "ipc": "host",
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
        "labels": {f"autotune.{label.replace(' ', '-')}": _literal(text) for label, text in bundle.provenance.lines()},
    }
    environment = [_literal(f"{key}={value}") for key, value in literal_env(plan).items()]
    if environment or secrets(plan):
        service["environment"] = [*environment, *secrets(plan)]
    if bundle.mounts:
        service["volumes"] = [_mount(path) for path in bundle.mounts]
    if path := HEALTH_PATHS.get(plan.engine):
        service["healthcheck"] = _health(bundle, _ASK.format(port=plan.port, path=path))
    if bundle.gpus:
        service["deploy"] = {"resources": {"reservations": {"devices": [_device(bundle, inside)]}}}
    return service


def _device(bundle: ExportBundle, inside: Contained) -> Tree:
    """The GPUs that the measured environment named, else as many as the server uses."""
    which: dict[str, Tree] = {"device_ids": list(inside.devices)} if inside.devices else {"count": bundle.gpus}
    return {"driver": "nvidia", **which, "capabilities": ["gpu"]}


def _mount(path: str) -> Tree:
    return {"type": "bind", "source": _literal(path), "target": _literal(path), "read_only": True}


def _health(bundle: ExportBundle, question: str) -> Tree:
    return {
        "test": ["CMD", "python3", "-c", question],
        "interval": "30s",
        "timeout": "30s",
        "retries": 3,
        "start_period": f"{math.ceil(bundle.start_limit_s)}s",
    }


def _literal(text: str) -> str:
    """Compose expands ``$`` and reads ``$$`` as one."""
    return text.replace("$", "$$")


def _expanding(word: Word) -> str:
    return _literal(word.text) + (f"${{{word.secret}:?is not set}}" if word.secret else "")
