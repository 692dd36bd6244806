"""Opening a night: one tuner, the same study as before, no orphan left, and the records agreed with Optuna."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from autotune.aftermath import left_servers, settle_cut_off
from autotune.bounding import derive_region, frozen_since
from autotune.brief import Brief
from autotune.choosing import Judge, strategy
from autotune.events import Event, Listener, LoadProgress, Note, count
from autotune.fleet.board import refuse_shared
from autotune.fleet.crew import in_slot, slots_of
from autotune.livelimits import LiveSwitch
from autotune.load.dataset.stored import store
from autotune.load.gates import GateLimits
from autotune.notify import heralded
from autotune.occupancy import gpu_baseline
from autotune.rig import Rig, now_text
from autotune.sameness import gpu_of, study_id, write_manifest
from autotune.search.region import Region
from autotune.search.searcher import Searcher
from autotune.server.cancel import Waiting
from autotune.server.clock import BeatingClock
from autotune.server.host import host_refusals, raise_descriptor_limit
from autotune.server.outside import reap_everywhere
from autotune.server.stop import StopLimits
from autotune.study.atomic import append_line
from autotune.study.file import Study
from autotune.study.folder import StudyFolder
from autotune.study.lock import study_lock
from autotune.study.manifest import Manifest
from autotune.study.record import Records, read_record, write_record
from autotune.study.transfer import Transfer
from autotune.transferring import keep, taken_over
from autotune.values import Effective

SPARE_DESCRIPTORS = 256
GATES = GateLimits()
"""What a load must keep to be a measurement; tests on a busy machine put laxer limits here."""


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """An opened study. ``region`` is fixed by the baseline, see ``fix_region``; ``transfer`` is another study's."""

    brief: Brief
    rig: Rig
    searcher: Searcher
    live: LiveSwitch = msgspec.field(default_factory=LiveSwitch)
    transfer: Transfer | None = None

    @property
    def records(self) -> Records:
        return self.rig.records

    @property
    def folder(self) -> StudyFolder:
        return self.rig.records.folder

    def region(self) -> Region | None:
        """The bounds of the search, None before there is a baseline."""
        return read_record(self.folder.bounds, Region)

    @property
    def judge(self) -> Judge:
        """Who says which configuration to believe in."""
        return Judge.of(self.brief)

    def fix_region(self, effective: Effective) -> Region:
        """Derive the bounds from what the baseline's server reported, once for all nights of this study."""
        if known := self.region():
            return known
        region = derive_region(self.brief, effective)
        write_record(self.folder.bounds, region)
        for bound in region.bounds:
            self.rig.say(Note(text=f"bounds: {bound.name}: {bound.derivation}"))
        for frozen in frozen_since(self.brief, effective):
            self.rig.say(Note(text=f"{frozen.name}: {frozen.reason}", level="warning"))
        return region


@contextlib.contextmanager
def open_night(
    brief: Brief, say: Listener, waiting: Waiting, source: Path | None = None, cluster: str = ""
) -> Iterator[Night]:
    """The study, ready for its next trial; ``source`` is another one to start from, ``cluster`` the address of the Ray
    cluster that is to run the trials.

    Raises InputError, StudyLocked or NightStopped.
    """
    refuse_shared(brief.study.storage, brief.study.name, brief.path.name)
    transfer = taken_over(source, brief)
    with open_folder(brief, say, waiting) as rig:
        keep(transfer, brief.study, brief.folder, rig.say)
        rig = msgspec.structs.replace(rig, cluster=cluster)
        storage = brief.study.storage or brief.folder.database
        with Searcher.open(brief.study.name, storage, strategy(brief)) as searcher:
            night = Night(brief=brief, rig=rig, searcher=searcher, transfer=transfer)
            settle_cut_off(rig.records, rig.say)
            searcher.reconcile(rig.records.results(), night.region())
            yield night


@contextlib.contextmanager
def open_folder(brief: Brief, say: Listener, waiting: Waiting) -> Iterator[Rig]:
    """The study's folder, locked, and this host without what an earlier tuner left on it."""
    folder = brief.folder
    folder.create()
    heralds = heralded(brief, _also_to_file(folder, say), waiting)
    with study_lock(folder.lock, now_text()), heralds as say, host_refusals():
        manifest = write_manifest(brief)
        waiting = msgspec.structs.replace(waiting, clock=BeatingClock(waiting.clock, lambda: beat(folder)))
        clean_up(brief, manifest, say, waiting)
        raise_descriptor_limit(brief.study.workload.peak + SPARE_DESCRIPTORS)
        yield _rig(brief, manifest, say, waiting)


def clean_up(brief: Brief, manifest: Manifest, say: Listener, waiting: Waiting) -> None:
    """Stop what a killed tuner left running, and nothing else. Hold the lock."""
    records = Records(brief.folder)
    identities = left_servers(records, say)

    def hurry() -> bool:
        return waiting.cancel.reason() is not None

    limits = StopLimits(term_s=brief.study.timeouts.stop_s)
    own = study_id(brief.folder, manifest)
    report = reap_everywhere(brief.study.engine.wrapper, identities, limits, own, hurry)
    if report.terminated or report.killed:
        what = count(max(report.terminated, report.killed), "process", "processes")
        say(Note(text=f"stopped {what} that an earlier tuner had left", level="warning"))
    if report.survivors and records.numbers():  # nothing can be left of a study without a trial
        say(Note(text=f"could not stop {', '.join(report.survivors)}", level="warning"))


def _rig(brief: Brief, manifest: Manifest, say: Listener, waiting: Waiting) -> Rig:
    gpu = gpu_of(brief.study)
    slots = slots_of(brief.study, gpu)
    rig = Rig(
        study=brief.study,
        study_id=study_id(brief.folder, manifest),
        engine=brief.engine,
        space=brief.space,
        version=brief.version,
        searched=brief.searched(),
        records=Records(brief.folder),
        gpu=gpu,
        gpu_baseline=gpu_baseline(brief.folder, gpu, say),
        waiting=waiting,
        say=say,
        gates=gates_of(brief.study),
        dataset=dataset_folder(brief),
        slots=slots,
    )
    return in_slot(rig, slots[0], gpu)


def dataset_folder(brief: Brief) -> str:
    """Where load workers find the dataset, written the first time; empty where the workload has none."""
    if brief.dataset is None:
        return ""
    store(brief.dataset, brief.folder.dataset)
    return str(brief.folder.dataset)


def gates_of(study: Study) -> GateLimits:
    """The gates, as wide towards other programs as the study allows."""
    return msgspec.structs.replace(GATES, host_busy=max(GATES.host_busy, study.workload.host_busy_limit))


def _also_to_file(folder: StudyFolder, say: Listener) -> Listener:
    """Events go to events.jsonl too, load progress aside; and each one is a sign of life for supervisors."""

    def both(event: Event) -> None:
        if not isinstance(event, LoadProgress):
            append_line(folder.events, msgspec.json.encode({"at": now_text(), **msgspec.to_builtins(event)}))
        beat(folder)
        say(event)

    return both


def beat(folder: StudyFolder) -> None:
    """A sign of life for supervisors, every few seconds, whatever is waited for; on a full disk there is none."""
    with contextlib.suppress(OSError):
        folder.heartbeat.touch(mode=0o600)
