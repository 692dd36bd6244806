"""A compose file and Kubernetes manifests. Every string is double-quoted YAML, so nothing depends on YAML's guesses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from autotune.export.bundle import ExportBundle, Word, comments, literal_env, secrets, words
from autotune.values import LaunchPlan

Tree = str | int | bool | Sequence["Tree"] | Mapping[str, "Tree"]

_IMAGES = {"sglang": "lmsysorg/sglang", "vllm": "vllm/vllm-openai"}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SECRET_NOTE = "Secrets come from the environment and are not written here."
_PATH_NOTE = "Paths and the listening address are those of the measured server; the container must have the same paths."


def render_compose(bundle: ExportBundle) -> str:
    """A compose file with the measured service, and the one before tuning in the profile ``baseline``."""
    services: dict[str, Tree] = {
        "tuned": _service(bundle, bundle.plan),
        "baseline": {"profiles": ["baseline"], **_service(bundle, bundle.baseline)},
    }
    notes = (_PATH_NOTE, _SECRET_NOTE, "To go back: docker compose stop tuned && docker compose up baseline")
    return comments(bundle, *notes) + dump({"services": services})


def _service(bundle: ExportBundle, plan: LaunchPlan) -> dict[str, Tree]:
    program, *arguments = [_expanding(word, "${{{}:?is not set}}") for word in words(plan)]
    environment = [f"{key}={value}".replace("$", "$$") for key, value in literal_env(plan).items()]
    service: dict[str, Tree] = {
        "image": bundle.image.replace("$", "$$") if bundle.image else f"${{AUTOTUNE_IMAGE:-{default_image(bundle)}}}",
        "entrypoint": [program],
        "command": arguments,
        "network_mode": "host",
        "ipc": "host",
        "restart": "unless-stopped",
    }
    if environment or secrets(plan):
        service["environment"] = [*environment, *secrets(plan)]
    if bundle.gpus:
        device: Tree = {"driver": "nvidia", "count": bundle.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return service


def render_kubernetes(bundle: ExportBundle) -> str:
    """Two Deployments, the measured one with one replica and the one before tuning with none, and their Service."""
    name = dns_label(bundle.provenance.study)
    service: Tree = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": bundle.plan.port, "targetPort": bundle.plan.port}]},
    }
    tuned = _deployment(bundle, bundle.plan, name, "tuned", 1)
    baseline = _deployment(bundle, bundle.baseline, name, "baseline", 0)
    notes = (
        _PATH_NOTE,
        f"Secrets come from the Secret {name}-secrets and are not written here.",
        f"To go back: kubectl scale deployment {name}-tuned --replicas=0, then {name}-baseline --replicas=1",
    )
    return comments(bundle, *notes) + "---\n".join(dump(each) for each in (tuned, baseline, service))


def _deployment(bundle: ExportBundle, plan: LaunchPlan, name: str, role: str, replicas: int) -> dict[str, Tree]:
    labels: Tree = {"app": name, "role": role}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-{role}", "labels": labels},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [_container(bundle, plan, name)]}},
        },
    }


def _container(bundle: ExportBundle, plan: LaunchPlan, name: str) -> dict[str, Tree]:
    environment: list[Tree] = [
        {"name": key, "value": value.replace("$", "$$")} for key, value in literal_env(plan).items()
    ]
    environment += [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": key}}} for key in secrets(plan)
    ]
    container: dict[str, Tree] = {
        "name": "server",
        "image": bundle.image or default_image(bundle),
        "command": [_expanding(word, "$({})") for word in words(plan)],
        "ports": [{"containerPort": plan.port}],
        "env": environment,
    }
    if bundle.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": bundle.gpus}}
    return container


def default_image(bundle: ExportBundle) -> str:
    """The project's own image of the measured version, as far as the engine has one."""
    version = re.search(r"\d+(\.\w+)+", bundle.provenance.engine)
    return f"{_IMAGES.get(bundle.plan.engine, 'inference-server')}:{'v' + version[0] if version else 'latest'}"


def dns_label(text: str) -> str:
    """A name that Kubernetes takes, with room for a suffix."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return label if label[:1].isalpha() else f"study-{label}".strip("-")


def _expanding(word: Word, form: str) -> str:
    """Both formats expand ``$`` and read ``$$`` as one."""
    return word.text.replace("$", "$$") + (form.format(word.secret) if word.secret else "")


def dump(tree: Tree) -> str:
    """Block YAML with double-quoted strings."""
    return "".join(f"{line}\n" for line in _lines(tree))


def _lines(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _entry(f"{quote(key) if not key.isidentifier() else key}:", value, indent="  ")
    elif isinstance(tree, Sequence) and not isinstance(tree, str) and tree:
        for value in tree:
            yield from _item(value)
    else:
        yield _scalar(tree)


def _entry(head: str, value: Tree, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value:
        yield head
        yield from (indent + line for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Tree) -> Iterator[str]:
    first, *rest = _lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)


def _scalar(value: Tree) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return quote(value) if isinstance(value, str) else "{}" if isinstance(value, Mapping) else "[]"


def quote(text: str) -> str:
    """A double-quoted YAML string: ASCII stays, everything else is escaped by its code point."""
    return '"' + "".join(_ESCAPES.get(char) or _plain(char) for char in text) + '"'


def _plain(char: str) -> str:
    code = ord(char)
    if 32 <= code < 127:
        return char
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
