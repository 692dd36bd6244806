"""All that is known of a study before anything is started: file, space, engine, model, and which flags do nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from autotune.engines import engine, kinds
from autotune.engines.argv import value_of
from autotune.engines.base import Engine
from autotune.engines.flags import FlagFact, Question, inspect_flags
from autotune.engines.inspect import Installed, find_engine
from autotune.engines.told import require_names
from autotune.errors import InputError
from autotune.load.dataset.lengths import workload_lengths
from autotune.load.dataset.read import read_dataset
from autotune.load.dataset.stored import Dataset
from autotune.search.samplers import OWN, SAMPLERS
from autotune.space.auto import automatic_mem_fraction
from autotune.space.bounds import BoundInputs, Frozen, derive_bounds, frozen_parameters
from autotune.space.files import find_shipped, load_model_shape, load_space
from autotune.space.kv import (
    GIB,
    KvCapacity,
    Lengths,
    Memory,
    estimate_kv_capacity,
    kv_dtype_of,
    stated_kv_capacity,
    weight_gb,
)
from autotune.space.model_config import ModelShape
from autotune.space.parameters import Parameter, Space, with_defaults
from autotune.study.file import Study
from autotune.study.folder import StudyFolder
from autotune.study.load import load_study
from autotune.study.refusals import unusable
from autotune.study.rules import Known
from autotune.values import ParamValue
from autotune.verdict.objective import METRICS

TP_FLAGS = ("--tp", "--tp-size", "--tensor-parallel-size")
FRACTION_FLAGS = ("--mem-fraction-static", "--gpu-memory-utilization")
# They state how large the KV cache is, so that a larger share of the GPU makes it no larger.
CACHE_FLAGS = (
    "--max-total-tokens",
    "--num-gpu-blocks-override",
    "--kv-cache-memory-bytes",
    "--kv-cache-memory",
)


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """``facts`` maps parameter names to what the installed engine does with their flags; ``shape`` is None where the
    model is unknown, ``dataset`` where the workload has none.
    """

    path: Path
    study: Study
    folder: StudyFolder
    engine: Engine
    space: Space
    installed: Installed
    facts: dict[str, FlagFact]
    shape: ModelShape | None
    dataset: Dataset | None = None

    @property
    def version(self) -> str:
        return self.installed.version or self.study.engine.version

    def bound_inputs(self, kv: KvCapacity | None) -> BoundInputs:
        """What the bounds are derived from, with this KV capacity."""
        study = self.study
        return BoundInputs(
            load=msgspec.structs.replace(study.workload, concurrency=study.workload.peak),
            lengths=self.lengths(),
            parameters=tuple(study.space.parameters),
            overrides=study.space.override,
            min_tokens_per_expert=study.space.min_tokens_per_expert,
            shape=self.shape,
            kv=kv,
            version=self.version,
            inspected={name: not f.dead for name, f in self.facts.items() if f.known and f.dead is not None},
            where=self.path.name,
        )

    def cache_parameter(self) -> str:
        """The parameter with which the KV cache grows; empty: there is none, or the command states how large it is."""
        stated = value_of(self.study.engine.command, *CACHE_FLAGS) is not None
        searched = {self.space.get(name).flag_for(self.version) for name in self.facts}
        return "" if stated or searched & set(CACHE_FLAGS) else self.space.memory_fraction()

    def lengths(self) -> Lengths:
        """Tokens of the requests that the workload asks."""
        return workload_lengths(self.study.workload, self.dataset)

    def searched(self) -> tuple[str, ...]:
        """Names of the parameters that are searched. Raises InputError where none is left."""
        return tuple(bound.name for bound in derive_bounds(self.space, self.bound_inputs(None)))

    def frozen(self) -> tuple[Frozen, ...]:
        """Parameters that the study names and that are left at their default because nothing reads them."""
        return frozen_parameters(self.space, self.bound_inputs(None))

    def why_no_live(self) -> str | None:
        """Why running limits are not tried on servers that are up, in words; None: they can be."""
        study, parameter = self.study, self.engine.live_parameter
        if study.search.live == "off":
            return "search.live is off"
        if study.search.sampler != OWN:
            return f"the sampler {study.search.sampler!r} does not learn from them"
        if not parameter:
            return f"the engine {self.engine.kind!r} has no running limit that can change while it serves"
        if parameter not in self.searched():
            return f"{parameter} is not searched"
        if study.workload.levels:
            return "with workload.levels a start is loaded at several concurrencies already"
        if study.workload.kind == "trace":
            return "a trace fills no running limit for certain"
        if study.workload.concurrency <= 0:
            return "a load without workload.concurrency never fills a running limit for certain"
        return None

    def total_weight_gb(self) -> float | None:
        """Weights over all GPUs, where the study or the model tells."""
        stated = self.study.model.weight_gb
        if stated is not None:
            return stated * tensor_parallel(self)
        return weight_gb(self.shape) if self.shape else None


def known_names() -> Known:
    """What a study file may name."""
    return Known(samplers=tuple(SAMPLERS), metrics=tuple(METRICS), engines=kinds())


def read_brief(path: Path, name: str = "") -> Brief:
    """Read the study and its dataset, and look at the engine behind its command. ``name`` replaces the study's own.

    Starts no server. Raises InputError.
    """
    path = find_shipped("studies", str(path)) if not path.exists() else path
    study = load_study(path, known_names())
    if name:
        study = msgspec.structs.replace(study, name=name)
    speaker = engine(study.engine.kind).for_study(study)
    if not study.space.file and study.engine.kind == "command":
        raise InputError(f"{path.name}: space.file is missing; the engine 'command' has no search space of its own")
    space = _space(study, path)
    require_names(study.engine, space.names())
    installed = find_engine(study.engine, os.environ)
    space = with_defaults(space, _set_by_command(space, study, installed.version or study.engine.version))
    folder = _folder(path, study.name)
    _require_text(folder, path)
    brief = Brief(
        path=path,
        study=study,
        folder=folder,
        engine=speaker,
        space=space,
        installed=installed,
        facts=_facts(space, study, installed, path),
        shape=_shape(study, path),
        dataset=read_dataset(study.workload, path, study.model.path, folder.dataset),
    )
    if study.search.live == "on" and (reason := brief.why_no_live()):
        raise InputError(f'{path.name}: search.live: "on" cannot be: {reason}; write "auto" or "off"')
    return brief


def _folder(path: Path, name: str) -> StudyFolder:
    """Beside the study file; for one inside the installed package under studies/ of the current directory."""
    if "_shipped" in path.parts:
        path = Path("studies") / path.name
    return StudyFolder.beside(path, name)


def _require_text(folder: StudyFolder, path: Path) -> None:
    """Records, events and scripts are UTF-8, and name the study's folder. Raises InputError where it is none."""
    try:
        str(folder.root).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path.absolute().parent).decode(errors="replace")
        raise InputError(f"{path.name}: the name of its folder {shown} is not UTF-8; rename the folder") from None


def _space(study: Study, path: Path) -> Space:
    if not study.space.file:
        return load_space(study.engine.kind, beside=path)
    with _at(f"{path.name}: space.file"):
        return load_space(study.space.file, beside=path)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    """Errors inside are told with the file and the key that led there."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _facts(space: Space, study: Study, installed: Installed, path: Path) -> dict[str, FlagFact]:
    names = study.space.parameters or [p.name for p in space.parameters if p.on_by_default]
    version = installed.version or study.engine.version
    asked = [space.get(name, f"{path.name}: space.parameters") for name in names]
    questions = [Question(flag=p.flag_for(version), read_by=p.read_by) for p in asked]
    return {p.name: fact for p, fact in zip(asked, inspect_flags(installed, questions), strict=True)}


def _set_by_command(space: Space, study: Study, version: str) -> dict[str, ParamValue]:
    """Values that the base command line already sets, as the defaults of this study."""
    found: dict[str, ParamValue] = {}
    for parameter in space.parameters:
        text = value_of(study.engine.command, *(flag.flag for flag in parameter.flags))
        if text is not None and (value := _parsed(parameter, text)) is not None:
            found[parameter.name] = value
    return found


def _parsed(parameter: Parameter, text: str) -> ParamValue | None:
    try:
        return int(text) if parameter.kind == "int" else float(text) if parameter.kind == "float" else text
    except ValueError:
        return None


def _shape(study: Study, path: Path) -> ModelShape | None:
    """From the model's own folder where it is on this machine, else from the config that the study names."""
    own = Path(study.model.path) / "config.json"
    with _at(f"{path.name}: model.path"):
        if study.model.path and _is_file(own):
            return load_model_shape(str(own), beside=path)
    with _at(f"{path.name}: model.config"):
        return load_model_shape(study.model.config, beside=path) if study.model.config else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise InputError(unusable(path, error)) from None


def tensor_parallel(brief: Brief) -> int:
    """The tensor-parallel size of the base command; 1 where it has none."""
    text = value_of(brief.study.engine.command, *TP_FLAGS) or "1"
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{brief.path.name}: engine.command: tensor-parallel size {text!r}; write a whole number")
    return int(text)


def memory_fraction(brief: Brief) -> float | None:
    """The share of GPU memory that the base command sets; None where it leaves that to the engine."""
    text = value_of(brief.study.engine.command, *FRACTION_FLAGS)
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise InputError(f"{brief.path.name}: engine.command: memory fraction {text!r}; write a share such as 0.9")


def expected_kv(brief: Brief, gpu_memory_bytes: int = 0) -> KvCapacity | None:
    """The KV capacity before a start: stated by the study, else an estimate, None where too little is known.

    ``gpu_memory_bytes`` is one GPU's memory where a driver told it.
    """
    study = brief.study
    if study.model.kv_tokens is not None:
        return stated_kv_capacity(study.model.kv_tokens, "study")
    memory_gb = study.model.gpu_memory_gb or gpu_memory_bytes / GIB
    if brief.shape is None or not memory_gb:
        return None
    tp = tensor_parallel(brief)
    memory = Memory(
        gpu_memory_gb=memory_gb,
        weight_gb=study.model.weight_gb or weight_gb(brief.shape, tp),
        mem_fraction=memory_fraction(brief) or automatic_mem_fraction(study.engine.kind, memory_gb, tp),
        tp=tp,
        kv_dtype=kv_dtype_of(value_of(study.engine.command, "--kv-cache-dtype") or "auto"),
        parameter=brief.cache_parameter(),
    )
    return estimate_kv_capacity(brief.shape, memory)
