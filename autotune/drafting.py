"""``autotune init``: looks at files and at this machine, and writes the draft of a study."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotune.brief import known_names
from autotune.engines.inspect import find_engine
from autotune.errors import InputError
from autotune.intake.bench import Load, is_result, latest, load_of, read_rows
from autotune.intake.draft import Draft, Gathered, Seen, Wish, draft, known_engine
from autotune.intake.remark import Remark
from autotune.intake.sources import sort_script
from autotune.intake.surroundings import about_python, with_folder, with_model
from autotune.intake.sweep import is_parameters, records_of, sweep_of
from autotune.intake.syntax import refuse_foreign
from autotune.intake.toml import render_study
from autotune.server.gpu import GpuProbe
from autotune.server.nvml import find_gpu
from autotune.space.files import load_model_shape, load_space
from autotune.space.parameters import Space
from autotune.study.file import EngineSpec, Workload
from autotune.study.load import parse_study
from autotune.study.refusals import refuse_endless
from autotune.study.rules import Problem

STARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sglang", ("python3", "-m", "sglang.launch_server")),
    ("sglang", ("{python}", "-m", "sglang.launch_server")),
    ("sglang", ("sglang", "serve")),
    ("vllm", ("vllm", "serve")),
    ("vllm", ("python3", "-m", "vllm.entrypoints.openai.api_server")),
    ("vllm", ("{python}", "-m", "vllm.entrypoints.openai.api_server")),
)
"""Ways to start an engine, in the order in which they are looked for."""
_MODEL_PLACES = ("models", "/models", "/data/models")
_MOST_MODELS = 20
_READABLE = 0o666
_MOST_BYTES = 512 << 20
WANTED = "a launch script, or the JSON of a load generator"


def survey(environ: Mapping[str, str] | None = None, gpu: GpuProbe | None = None) -> Seen:
    """Engines that are installed, models that lie where models often lie, and GPUs. Starts nothing."""
    env = os.environ if environ is None else environ
    engines: dict[str, tuple[str, ...]] = {}
    for kind, command in STARTS:
        program = sys.executable if command[0] == "{python}" else shutil.which(command[0], path=env.get("PATH"))
        if kind in engines or not program:
            continue
        if find_engine(EngineSpec(kind=kind, command=[program, *command[1:]]), env).location:
            engines[kind] = command
    devices = (gpu or find_gpu(env)).devices()
    return Seen(engines=engines, models=tuple(_models(env)), gpus=len(devices))


def _models(env: Mapping[str, str]) -> list[str]:
    """Folders with a config.json: of the hub's cache, and beside each other in the usual places."""
    cache = Path(env.get("HF_HOME") or Path(env.get("HOME", "/")) / ".cache/huggingface") / "hub"
    places = [cache.glob("models--*/snapshots/*/config.json")]
    places += [Path(place).glob("*/config.json") for place in _MODEL_PLACES]
    found: list[str] = []
    for place in places:
        try:
            found += sorted(str(path.parent) for path in place)
        except OSError:  # a place that may not be read
            continue
    return found[:_MOST_MODELS]


def gather(paths: Sequence[Path], environ: Mapping[str, str] | None = None, kind: str = "") -> Gathered:
    """Read the files; ``kind`` is the engine of a script's server that is not known by its command line.

    Raises InputError for one that cannot be read, is none of the known kinds, or repeats another.
    """
    found = _Found(kind)
    for path in paths:
        found.read(path, os.environ if environ is None else environ)
    return found.gathered()


class _Found:
    """What was read so far."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._so_far = Gathered()
        self._records: list[dict[str, Any]] = []
        self._sweep_of = ""
        self._swept: dict[str, str] = {"backend": "openai"}

    def read(self, path: Path, environ: Mapping[str, str]) -> None:
        """One file, or the folder of a sweep's results."""
        self._so_far = msgspec.structs.replace(self._so_far, origins=(*self._so_far.origins, path.name))
        if path.is_dir():
            self._results(path)
            return
        text = _text(path)
        refuse_foreign(text, path.name)
        if text.lstrip()[:1] in ("{", "["):
            self._json(path, text)
        else:
            self._script(path, text, environ)

    def _script(self, path: Path, text: str, environ: Mapping[str, str]) -> None:
        script = sort_script(text, path, environ, self._kind)
        if script.launch is None and not script.loads and not script.sweeps:
            raise InputError(
                f"{path}: starts no server that is known: python -m sglang.launch_server, sglang serve, vllm serve, "
                "or one of them in docker run; "
                + (
                    "and none of its commands could be one"
                    if self._kind
                    else "--engine says that its last command is one"
                )
            )
        if script.launch is not None and self._so_far.launch is not None:
            raise InputError(f"{path}: a server was found in an earlier file too; give one script")
        self._take(script.remarks)
        if script.launch is not None:
            self._so_far = msgspec.structs.replace(self._so_far, launch=script.launch)
            self._take(about_python(script.launch, environ))
        for load in script.loads:
            if any(sweep.bench_params for sweep in script.sweeps):
                self._swept = load.told  # the sweep's own options come on top of these
            else:
                self._load(with_folder(load, path.parent), path.name)
        for sweep in script.sweeps:
            for name in (sweep.serve_params, sweep.bench_params):
                if name:
                    other = Path(name) if Path(name).exists() else path.parent / name
                    self._json(other, _text(other))

    def _json(self, path: Path, text: str) -> None:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if data is not None and is_parameters(data):
            self._records += records_of(data, path.name)
            self._sweep_of = path.name
            return
        rows = read_rows(text, path.name)
        self._load(latest(rows, path.name), path.name)

    def _results(self, folder: Path) -> None:
        """``summary.json`` of each combination, as ``vllm bench sweep`` leaves them."""
        rows: list[dict[str, Any]] = []
        for path in sorted(folder.rglob("summary.json")):
            rows += [row for row in read_rows(_text(path), str(path)) if is_result(row)]
        if not rows:
            raise InputError(f"{folder}: holds no summary.json of a sweep; give the folder that vllm bench sweep wrote")
        self._records += rows
        self._sweep_of = folder.name

    def _take(self, remarks: Sequence[Remark]) -> None:
        self._so_far = msgspec.structs.replace(self._so_far, remarks=(*self._so_far.remarks, *remarks))

    def _load(self, load: Load, where: str) -> None:
        """The load that was named last counts; that one replaces another is said."""
        if self._so_far.workload and self._so_far.workload != load.workload:
            self._take([Remark(where=where, text="its load replaces the one found before it")])
        self._take(load.remarks)
        self._so_far = msgspec.structs.replace(
            self._so_far,
            workload=load.workload or self._so_far.workload,
            kind=self._so_far.kind or load.kind,
            model=self._so_far.model or load.model,
        )

    def gathered(self) -> Gathered:
        """All of it; a sweep is read last, since the engine says which parameters there are."""
        if not self._records:
            return self._so_far
        kind = self._so_far.launch.kind if self._so_far.launch else "vllm"
        sweep = sweep_of(self._records, space_of(kind), self._sweep_of)
        self._take(sweep.remarks)
        for options in sweep.loads[-1:]:
            self._load(load_of({**self._swept, **options}, self._sweep_of), self._sweep_of)
        if len(sweep.loads) > 1:
            text = f"varies the load too ({len(sweep.loads)} of them); the last one was taken"
            self._take([Remark(where=self._sweep_of, text=text)])
        return msgspec.structs.replace(self._so_far, sweep=sweep, kind=kind)


def _text(path: Path) -> str:
    try:
        refuse_endless(path, WANTED)
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{path}: is larger than {_MOST_BYTES >> 20} MB; give {WANTED}")
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; give {WANTED}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InputError(f"{path}: cannot be read ({reason}); check the path given to --from") from None


def space_of(kind: str) -> Space:
    """The parameters of an engine that has a space of its own. Raises InputError."""
    return load_space(kind, beside=Path("study.toml"))


def make(wish: Wish, gathered: Gathered, seen: Seen) -> tuple[Draft, str]:
    """The draft and the text of its study file, which is checked as any other. Raises InputError."""
    _agree(wish, gathered)
    kind = gathered.launch.kind if gathered.launch else known_engine(wish)
    made = draft(wish, gathered, seen, space_of(kind))
    made = _within_vocabulary(_with_dataset(with_model(made, gathered.launch)))
    text = render_study(made)
    try:
        parse_study(text, known_names())
    except Problem as problem:
        if gathered.launch and problem.key.startswith("engine."):
            raise InputError(f"{gathered.launch.place}: no night can start this: {problem}") from None
        raise InputError(f"the study would not be valid: {problem}") from None
    return made, text


def _agree(wish: Wish, gathered: Gathered) -> None:
    """An option that says something else than the script would change what is run today."""
    if (launch := gathered.launch) is None:
        return
    if wish.engine not in (None, launch.kind):
        raise InputError(f"--engine {wish.engine}: the script starts {launch.kind}; leave the option out")
    for option, told in (("--model", wish.model), ("--tensor-parallel", wish.tensor_parallel)):
        if told is not None:
            raise InputError(f"{option} {told}: the script's command line says that; leave it out, or edit the study")


def _with_dataset(made: Draft) -> Draft:
    """A data set that lies here by its full path: the study file may go elsewhere."""
    path = Path(str(made.workload.get("dataset") or ""))
    if path.is_absolute() or not path.is_file():
        return made
    return msgspec.structs.replace(made, workload={**made.workload, "dataset": str(path.absolute())})


def _within_vocabulary(made: Draft) -> Draft:
    """Token ids that a small model has: its server would die of others."""
    config = Path(made.model_path) / "config.json"
    if not made.model_path or not config.is_file():
        return made
    vocabulary = load_model_shape(str(config), beside=config).vocab
    if not 0 < vocabulary < Workload().token_id_high:
        return made
    low = min(Workload().token_id_low, vocabulary // 10)
    return msgspec.structs.replace(made, workload={**made.workload, "token_id_low": low, "token_id_high": vocabulary})


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet. Raises InputError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _READABLE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path}: exists already and is not overwritten; give another name, or move it away") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); give a place that can") from None
