"""Whether a study is still the one that began: the folder that fits its file, and the manifest in it."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence

import msgspec

import autotune
from autotune.brief import Brief, read_brief
from autotune.errors import InputError
from autotune.rig import now_text
from autotune.server.gpu import FileGpu, GpuProbe, NoGpu
from autotune.server.nvml import find_gpu
from autotune.sim.flags import pretended_gpu
from autotune.study.file import Study
from autotune.study.folder import StudyFolder, fresh_name
from autotune.study.manifest import Manifest, differences, fingerprint
from autotune.study.record import Records, write_record
from autotune.wrappers import gpu_choice, is_here

LOST = "manifest.json is gone, and nothing else says under which settings the trials in its folder were measured"
_LOAD = ("workload.", "objective.", "found.dataset")
_SERVER = ("engine.kind", "engine.wrapper.", "model.path", "model.served_name")


def found_facts(brief: Brief) -> dict[str, str]:
    """What was found on this machine and must stay the same in one study."""
    devices = gpu_of(brief.study).devices()
    return _facts_of_the_study(brief) | {"gpu": ", ".join(sorted({d.name for d in devices}))}


def _facts_of_the_study(brief: Brief) -> dict[str, str]:
    """Those that are the same wherever the study is looked at."""
    return {"engine_version": brief.version} | ({"dataset": brief.dataset.facts.digest} if brief.dataset else {})


def gpu_of(study: Study) -> GpuProbe:
    """The GPUs that the server will see, as far as this machine has them; the pretended ones of a simulated server."""
    wrapper = study.engine.wrapper
    if not is_here(wrapper):
        return NoGpu()
    pretended = pretended_gpu(study.engine.command)
    if pretended:
        return FileGpu(*pretended)
    return find_gpu({**os.environ, **study.engine.env, **gpu_choice(wrapper)})


def resolve(brief: Brief, *, force: bool = False, reading: bool = False) -> Brief:
    """The brief under the name whose folder fits it: the study's own, or one that ``--force`` began (name-2, ...).

    Raises InputError naming the differences where folders exist and none fits; ``force`` takes a fresh name, and
    ``reading`` the folder that was begun last, since looking at a study changes nothing.
    """
    wanted = fingerprint(brief.study, found_facts(brief))
    parent, name = brief.folder.root.parent, brief.study.name
    changed: list[str] = []
    number, candidate = 1, name
    while (parent / candidate).exists():
        records = Records(StudyFolder(parent / candidate))
        manifest = records.manifest()
        if manifest is None and not records.numbers():
            return _renamed(brief, candidate)
        changed = [LOST] if manifest is None else differences(manifest.fingerprint, wanted)
        if not changed:
            return _renamed(brief, candidate)
        number += 1
        candidate = f"{name}-{number}"
    if not changed:
        return brief
    if reading:
        return _renamed(brief, name if number == 2 else f"{name}-{number - 1}")
    if not force:
        raise not_the_same(brief, changed)
    return _renamed(brief, fresh_name(parent, name))


def not_the_same(brief: Brief, changed: Sequence[str]) -> InputError:
    """The error of a study that cannot go on under the present file, with the ways out."""
    anew = f"begin anew under another name with `autotune tune {shlex.quote(str(brief.path))} --force`"
    if LOST in changed:
        damaged = sorted(path.name for path in brief.folder.root.glob("manifest.json.damaged*"))
        left = f" ({damaged[-1]} is what is left of it)" if damaged else ""
        return InputError(f"{brief.path.name}: {LOST}. Put it back{left} to go on, or {anew}")
    return InputError(
        f"{brief.path.name}: the study has changed since its first night: {'; '.join(changed)}. "
        f"Change it back to go on, or {anew} "
        f"(and --from {shlex.quote(str(brief.path))} to start from what was found so far)"
    )


def changed_since(brief: Brief) -> str:
    """In what study and engine differ from what was measured, in a sentence; empty where they do not.

    For those who only look, perhaps on another machine: GPUs are not asked for.
    """
    return in_words(changes(brief))


def in_words(changed: Sequence[str]) -> str:
    """What ``changes`` found as a sentence; empty where that is nothing."""
    return f"the study has changed since this was measured: {'; '.join(changed)}" if changed else ""


def changes(brief: Brief) -> list[str]:
    """The same, a line a key; empty where nothing is on record."""
    known = Records(brief.folder).manifest()
    return differences(known.fingerprint, fingerprint(brief.study, _facts_of_the_study(brief))) if known else []


def of_the_load(changed: Sequence[str]) -> list[str]:
    """Those of ``changes`` with which a promise that was measured before says nothing of what is asked for now."""
    return [line for line in changed if line.startswith(_LOAD)]


def of_a_measurement(changed: Sequence[str]) -> list[str]:
    """Those with which an exported script is measured otherwise, which has its own command line."""
    return [line for line in changed if line.startswith(_LOAD + _SERVER)]


def _renamed(brief: Brief, name: str) -> Brief:
    return brief if name == brief.study.name else read_brief(brief.path, name)


def write_manifest(brief: Brief) -> Manifest:
    """The manifest on record; written the first time, and where it was lost, as the trials keep it. Hold the lock.

    Raises InputError where there are trials and nothing says what they began with.
    """
    records, path = Records(brief.folder), brief.folder.manifest
    manifest = records.manifest()
    if manifest is None:
        if records.numbers():
            raise not_the_same(brief, [LOST])
        manifest = msgspec.structs.replace(manifest_of(brief), created_at=now_text())
    if not path.exists():
        write_record(path, manifest)
    return manifest


def manifest_of(brief: Brief) -> Manifest:
    """The manifest on record, else that of a study that has not begun, without a time."""
    known = Records(brief.folder).manifest()
    if known is not None:
        return known
    return Manifest(
        study=brief.study.name,
        created_at="",
        autotune_version=autotune.__version__,
        fingerprint=fingerprint(brief.study, found_facts(brief)),
    )


def study_id(folder: StudyFolder, manifest: Manifest) -> str:
    """Marks the processes of this study and of no other on the machine."""
    told = f"{folder.root}\n{manifest.created_at}".encode()
    return f"{manifest.study}-{hashlib.sha256(told).hexdigest()[:12]}"
