"""What becomes of a study's wrapper in an export: a command line starts it, a manifest names its image."""

from __future__ import annotations

from msgspec.structs import replace

from autotune.errors import InputError
from autotune.export.bundle import ExportBundle, words
from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers import Wrapping, wrapping
from autotune.wrappers.ssh import KIND as SSH

COMMAND_LINES = frozenset({"bash", "systemd", "args", "json"})
"""Formats that start one command; the others describe a container."""


def placed(fmt: str, bundle: ExportBundle) -> ExportBundle:
    """The bundle as ``fmt`` has it. Raises InputError for a secret argument that the wrapper cannot carry."""
    wrapper = bundle.plan.wrapper
    there = wrapping(wrapper)
    if there is None:
        return bundle
    command = fmt in COMMAND_LINES
    bundle = replace(bundle, provenance=replace(bundle.provenance, wrapper=in_words(wrapper, command)))
    if not command:
        return replace(bundle, image=bundle.image or wrapper.image)
    name = f"autotune-{service_name(bundle.provenance.study)}"
    return replace(
        bundle,
        plan=_served(there, bundle.plan, name),
        baseline=_served(there, bundle.baseline, f"{name}-baseline"),
        service="" if wrapper.kind == SSH else name,
    )


def _served(there: Wrapping, plan: LaunchPlan, name: str) -> LaunchPlan:
    if plan.wrapper.kind == SSH and (secret := next((word.secret for word in words(plan) if word.secret), "")):
        raise InputError(
            f"export: ssh would show the value of {secret} on a command line; "
            f'take its flag from engine.command and write pass_env = ["{secret}"]'
        )
    return there.served(plan, name)


def in_words(wrapper: Wrapper, command: bool) -> str:
    """The wrapper, and what the export does with it."""
    detail = wrapper.image or wrapper.destination or wrapper.address
    told = f"{wrapper.kind} {detail}".strip()
    if command:
        return told
    return (
        f"{told}, of which this file keeps the image, not the options"
        if wrapper.image
        else f"{told}, which is not in this file"
    )


def service_name(study: str) -> str:
    """A name that containers and jobs can have."""
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in study.partition(" ")[0])
    return name.strip("-") or "study"
