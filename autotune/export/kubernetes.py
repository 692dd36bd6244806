"""Kubernetes manifests: the measured server, the one before tuning at no replicas, and the Service in front of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from autotune.export.bundle import STOP_S, ExportBundle, Word, comments, literal_env, secrets, words
from autotune.export.container import HEALTH_PATHS, Contained, changes, contained, default_image
from autotune.export.yaml import Tree, dump
from autotune.values import LaunchPlan

PROBE_S = 10
PROBE_LIMIT_S = 30
"""A busy SGLang takes seconds to answer /health, a stuck one 20 before it says so."""
_SHM: Tree = {"name": "shm", "emptyDir": {"medium": "Memory"}}
"""The 64 MB that a pod has by default are too few for the processes of an engine, NCCL above all."""


def render_kubernetes(bundle: ExportBundle) -> str:
    """Two Deployments and their Service; going back is a matter of two replica counts."""
    name = dns_label(bundle.provenance.study)
    tuned, baseline = contained(bundle.plan), contained(bundle.baseline)
    documents = (
        _deployment(bundle, tuned, (name, "tuned"), replicas=1),
        _deployment(bundle, baseline, (name, "baseline"), replicas=0),
        _service(name, bundle.plan.port),
    )
    claim, notes = changes(tuned, baseline)
    return comments(bundle, *notes, *_notes(bundle, name), claim=claim) + "---\n".join(
        dump(document) for document in documents
    )


def _notes(bundle: ExportBundle, name: str) -> list[str]:
    notes = [f"To go back: kubectl scale deployment {name}-tuned --replicas=0, then {name}-baseline --replicas=1"]
    if needed := dict.fromkeys([*secrets(bundle.plan), *secrets(bundle.baseline)]):
        values = " ".join(f"--from-literal={key}=..." for key in needed)
        notes.append(f"Secrets are not written here: kubectl create secret generic {name}-secrets {values}")
    if bundle.mounts:
        notes.append(f"The node must have {', '.join(bundle.mounts)}: put your own volume in place of the hostPath.")
    return notes


def _service(name: str, port: int) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": port}]},
    }


def _deployment(bundle: ExportBundle, inside: Contained, called: tuple[str, str], replicas: int) -> dict[str, Tree]:
    name, role = called
    labels: Tree = {"app": name, "role": role}
    notes: Tree = {f"autotune/{label.replace(' ', '-')}": text for label, text in bundle.provenance.lines()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-{role}", "labels": labels, "annotations": notes},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(bundle, inside.plan, name)},
        },
    }


def _pod(bundle: ExportBundle, plan: LaunchPlan, name: str) -> dict[str, Tree]:
    models: list[Tree] = [
        {"name": f"model-{i}", "hostPath": {"path": path, "type": "Directory"}} for i, path in enumerate(bundle.mounts)
    ]
    return {
        "terminationGracePeriodSeconds": STOP_S,
        "containers": [_container(bundle, plan, name)],
        "volumes": [_SHM, *models],
    }


def _container(bundle: ExportBundle, plan: LaunchPlan, name: str) -> dict[str, Tree]:
    models: list[Tree] = [
        {"name": f"model-{i}", "mountPath": path, "readOnly": True} for i, path in enumerate(bundle.mounts)
    ]
    container: dict[str, Tree] = {
        "name": "server",
        "image": bundle.image or default_image(bundle),
        "command": [_expanding(word) for word in words(plan)],
        "ports": [{"containerPort": plan.port}],
        "env": _environment(plan, name),
        **_probes(bundle, plan),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *models],
    }
    if bundle.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": bundle.gpus}}
    return container


def _environment(plan: LaunchPlan, name: str) -> list[Tree]:
    literal: list[Tree] = [{"name": key, "value": value.replace("$", "$$")} for key, value in literal_env(plan).items()]
    references: list[Tree] = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": key}}} for key in secrets(plan)
    ]
    return [*literal, *references]


def _probes(bundle: ExportBundle, plan: LaunchPlan) -> Mapping[str, Tree]:
    """Asked of the pod's own address. A start may take as long as in the study; only then does liveness count."""
    path = HEALTH_PATHS.get(plan.engine)
    how: dict[str, Tree] = (
        {"httpGet": {"path": path, "port": plan.port}} if path else {"tcpSocket": {"port": plan.port}}
    )
    asked: dict[str, Tree] = {**how, "periodSeconds": PROBE_S, "timeoutSeconds": PROBE_LIMIT_S}
    attempts = max(1, math.ceil(bundle.start_limit_s / PROBE_S))
    return {
        "startupProbe": {**asked, "failureThreshold": attempts},
        "readinessProbe": {**asked, "failureThreshold": 3},
        "livenessProbe": {**asked, "periodSeconds": PROBE_LIMIT_S, "failureThreshold": 4},
    }


def dns_label(text: str) -> str:
    """A name that Kubernetes takes, with room for a suffix."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return label if label[:1].isalpha() else f"study-{label}".strip("-")


def _expanding(word: Word) -> str:
    """Kubernetes expands ``$(NAME)`` and reads ``$$`` as one."""
    return word.text.replace("$", "$$") + (f"$({word.secret})" if word.secret else "")
