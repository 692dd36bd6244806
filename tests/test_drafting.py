"""Drafts of studies: from files, from answers, from this machine; and that they are studies."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import drafting
from autotune.brief import known_names, read_brief
from autotune.drafting import gather, make, survey, write_new
from autotune.engines.base import Where
from autotune.engines.inspect import Installed
from autotune.errors import InputError
from autotune.intake.draft import Draft, Gathered, Seen, Wish, draft, questions
from autotune.intake.launch import Launch
from autotune.intake.remark import Remark
from autotune.intake.toml import render_study
from autotune.planning import plan_night
from autotune.server.gpu import FileGpu
from autotune.study.file import EngineSpec, ParameterOverride
from autotune.study.load import parse_study
from tests.export.bundles import HOSTILE, text
from tests.nights import ROOT

ANSWERS = Wish(workload={"concurrency": 64})
SERVER = "python3 -m autotune.sim --sim-profile demo --max-running-requests 48 --mem-fraction-static=0.8"


def script(folder: Path, server: str = SERVER) -> Path:
    path = folder / "launch.sh"
    path.write_text(f"#!/bin/bash\nexport NCCL_DEBUG=INFO\nexec {server} \\\n  --host 0.0.0.0 --port 30000\n")
    return path


def written(folder: Path, wish: Wish, gathered: Gathered, seen: Seen | None = None) -> Path:
    path = folder / "study.toml"
    write_new(path, make(wish, gathered, seen or Seen())[1])
    return path


def test_a_launch_script_becomes_a_study_whose_baseline_it_is(tmp_path: Path) -> None:
    """The planned command line is the script's, at another address; its flags are the parameters' defaults."""
    brief = read_brief(written(tmp_path, ANSWERS, gather([script(tmp_path)], {})))
    plan = brief.engine.launch_plan(brief.study.engine, brief.study.model, [], Where(host="127.0.0.1", port=1234))
    assert plan.argv == (*SERVER.split(), "--host", "127.0.0.1", "--port", "1234")
    assert plan.env == {"NCCL_DEBUG": "INFO"}
    assert brief.space.get("max_running_requests").default == 48
    assert plan_night(brief).study == brief.study.name


def test_results_beside_the_script_give_the_load(tmp_path: Path) -> None:
    """Nothing is left to ask."""
    row = {"backend": "sglang", "random_input_len": 512, "random_output_len": 64, "random_range_ratio": 1.0}
    row |= {"max_concurrency": 32, "duration": 1.0, "completed": 9, "total_output_tokens": 9}
    (tmp_path / "bench.jsonl").write_text(json.dumps(row) + "\n")
    found = gather([script(tmp_path), tmp_path / "bench.jsonl"], {})
    assert [question.key for question in questions(Wish(wall_clock="1h"), found, Seen())] == []
    workload = read_brief(written(tmp_path, Wish(), found)).study.workload
    assert (workload.input_tokens, workload.output_tokens, workload.concurrency) == (512, 64, 32)


def test_an_answer_overrules_a_file(tmp_path: Path) -> None:
    """What was said now counts."""
    (tmp_path / "bench.json").write_text(json.dumps({"max_concurrency": 8, "duration": 1, "completed": 1} | TOTALS))
    found = gather([script(tmp_path), tmp_path / "bench.json"], {})
    assert read_brief(written(tmp_path, ANSWERS, found)).study.workload.concurrency == 64


TOTALS = {"total_output_tokens": 100, "total_input_tokens": 200}


def test_a_sweep_becomes_ranges_and_flags(tmp_path: Path) -> None:
    """From the script that runs it and the parameter files that it names."""
    (tmp_path / "serve.json").write_text(
        json.dumps([{"max_num_seqs": 32, "enforce_eager": True}, {"max_num_seqs": 256, "enforce_eager": True}])
    )
    (tmp_path / "bench.json").write_text(json.dumps([{"random_input_len": 100, "random_output_len": 10}]))
    sweep = tmp_path / "sweep.sh"
    sweep.write_text(
        "vllm bench sweep serve --serve-cmd 'vllm serve meta/L --max-model-len 4096' "
        "--bench-cmd 'vllm bench serve --max-concurrency 16' --serve-params serve.json --bench-params bench.json\n"
    )
    study = read_brief(written(tmp_path, Wish(), gather([sweep], {}))).study
    assert study.engine.command == ["vllm", "serve", "meta/L", "--max-model-len", "4096", "--enforce-eager"]
    assert study.space.override["max_num_seqs"] == ParameterOverride(low=32, high=256)
    assert (study.workload.input_tokens, study.workload.output_tokens, study.workload.concurrency) == (100, 10, 16)


def test_a_sweeps_results_are_read_from_its_folder(tmp_path: Path) -> None:
    """All combinations; the fastest is named."""
    for seqs in (8, 64):
        place = tmp_path / "results" / f"SERVE--max_num_seqs={seqs}"
        place.mkdir(parents=True)
        run: dict[str, Any] = {"duration": 1.0, "completed": 10, "num_prompts": 10, "max_concurrency": 4} | TOTALS
        run |= {"max_num_seqs": seqs, "output_throughput": float(seqs), "model_id": "meta/L"}
        (place / "summary.json").write_text(json.dumps([run]))
    found = gather([tmp_path / "results"], {})
    assert found.sweep.overrides["max_num_seqs"] == ParameterOverride(low=8, high=64)
    assert found.model == "meta/L"
    assert any("fastest: 64" in str(remark) for remark in found.remarks)
    study = read_brief(written(tmp_path, Wish(engine="vllm", model="meta/L"), found)).study
    assert study.workload.concurrency == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", "hello world\n", "starts no server that is known"),
        ("x.json", '{"a": 1', "is no JSON object"),
        ("x.json", '{"a": 1}', "holds no result of a load generator"),
        ("x.sh", "vllm serve a\nvllm serve b\n", "servers are started in lines 1, 2"),
        ("x.service", "[Unit]\nA=b\n[Service]\nExecStart=vllm serve a\n", "is a systemd unit.*its ExecStart"),
        ("x.yml", "a:\n  entrypoint: vllm serve a\n", "is YAML.*docker run"),
        ("x", "services:\n  a:\n    entrypoint: vllm serve a\n", "is YAML.*docker run"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    """It names the file and what to do."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as raised:
        gather([tmp_path / name], {})
    assert name in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "cat > c <<E\nversion: 3\nservices:\nE\nvllm serve m\n",
        "# for systemd\ncat > x.service <<E\n[Service]\nE\nvllm serve m\n",
        "#!/bin/sh\ncat <<E\n[Unit]\nE\nvllm serve m\n",
    ],
)
def test_a_script_that_writes_another_file_is_a_script(tmp_path: Path, text: str) -> None:
    """What a file is says its first line."""
    (tmp_path / "x.sh").write_text(text)
    assert gather([tmp_path / "x.sh"], {}).launch is not None


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path: Path) -> None:
    """A folder without results too."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for name, message in (("nope", "cannot be read"), ("binary", "is not text"), ("empty", "no summary.json")):
        with pytest.raises(InputError, match=message):
            gather([tmp_path / name], {})


def test_answers_alone_make_a_study(tmp_path: Path) -> None:
    """The engine's plain command line with the model and the GPUs."""
    wish = Wish(engine="sglang", model="/models/m", tensor_parallel=4, workload={"concurrency": 8})
    seen = Seen(engines={"sglang": ("sglang", "serve")})
    study = read_brief(written(tmp_path, wish, Gathered(), seen)).study
    assert study.engine.command == ["sglang", "serve", "--model-path", "/models/m", "--tp-size", "4"]
    assert study.model.path == "/models/m"


def test_vllm_has_no_route_of_its_own(tmp_path: Path) -> None:
    """Its study asks by the OpenAI route; a rate makes an open loop."""
    wish = Wish(engine="vllm", model="meta/L", workload={"request_rate": 4.0})
    study = read_brief(written(tmp_path, wish, Gathered())).study
    assert (study.workload.route, study.workload.arrival) == ("completions", "open")


def test_only_what_nothing_tells_is_asked() -> None:
    """Engine, model and load; what the machine shows is offered."""
    bare = questions(Wish(), Gathered(), Seen())
    assert [q.option for q in bare if q.needed] == ["--engine", "--model", "--concurrency"]
    seen = Seen(engines={"vllm": ("vllm", "serve")}, models=("/models/m",), gpus=4)
    offered = {q.option: q.default for q in questions(Wish(), Gathered(), seen)}
    assert (offered["--engine"], offered["--model"], offered["--tensor-parallel"]) == ("vllm", "/models/m", 4)


def test_an_unknown_engine_is_refused() -> None:
    """With the known ones."""
    with pytest.raises(InputError, match="--engine: 'tgi' is not known here; use one of sglang, vllm"):
        make(Wish(engine="tgi", model="m", workload={"concurrency": 1}), Gathered(), Seen())


def test_a_study_that_would_not_be_valid_is_not_written() -> None:
    """The rules of study files hold for drafts too."""
    with pytest.raises(InputError, match=r"workload\.input_tokens"):
        make(Wish(engine="vllm", model="m", workload={"input_tokens": -1, "concurrency": 1}), Gathered(), Seen())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A file that exists stays as it is."""
    path = tmp_path / "study.toml"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already and is not overwritten"):
        write_new(path, "other")
    assert path.read_text() == "mine"


def test_the_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines by their packages, models by their config.json, GPUs by their driver."""
    asked: list[list[str]] = []

    def find(spec: EngineSpec, env: object) -> Installed:
        asked.append(spec.command)
        return Installed(package=spec.kind, location="/somewhere" if "-m" not in spec.command else "")

    for program in ("vllm", "sglang"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    model = tmp_path / "hub" / "models--meta--L" / "snapshots" / "abc"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (tmp_path / "gpu.json").write_text('{"0": 0, "1": 0}')
    monkeypatch.setattr(drafting, "find_engine", find)
    monkeypatch.chdir(tmp_path)
    seen = survey({"PATH": str(tmp_path), "HF_HOME": str(tmp_path)}, FileGpu(tmp_path / "gpu.json"))
    assert seen.engines == {"sglang": ("sglang", "serve"), "vllm": ("vllm", "serve")}
    assert str(model) in seen.models
    assert seen.gpus == 2
    assert all(Path(command[0]).is_absolute() for command in asked)


@settings(deadline=None, max_examples=60)
@given(words=st.lists(st.sampled_from(HOSTILE) | text, min_size=1, max_size=6))
def test_every_string_survives_the_file(words: list[str]) -> None:
    """Arguments, settings and remarks with quotes, line breaks and control characters."""
    launch = Launch(kind="sglang", command=("server", *words), env={"A": words[0]}, model_path=words[-1])
    remarks = tuple(Remark(where="x", text=word) for word in words)
    made: Draft = draft(
        Wish(workload={"concurrency": 1}),
        Gathered(launch=launch, remarks=remarks, origins=(words[0],)),
        Seen(),
        drafting.space_of("sglang"),
    )
    content = render_study(made)
    assert tomllib.loads(content)["engine"]["command"] == ["server", *words]
    study = parse_study(content, known_names())
    assert study.engine.env == {"A": words[0]}
    assert study.model.path == words[-1]


def test_a_data_set_is_found_wherever_the_study_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its full path; its lengths are its own, so none are asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"prompt": "hello"}\n')
    wish = Wish(engine="sglang", model="m", workload={"kind": "jsonl", "dataset": "q.jsonl", "concurrency": 4})
    assert not [q for q in questions(wish, Gathered(), Seen()) if "tokens" in q.key]
    text_made = make(wish, Gathered(), Seen())[1]
    assert parse_study(text_made, known_names()).workload.dataset == str(tmp_path / "q.jsonl")


def test_a_container_becomes_a_wrapper_of_the_study(tmp_path: Path) -> None:
    """The file is one that a night takes, with the server's own command line."""
    run = "docker run -d --gpus all -v /m:/m -e A=b lmsysorg/sglang:v0.5.14 python3 -m sglang.launch_server"
    (tmp_path / "launch.sh").write_text(f"{run} --model-path /m --api-key $KEY --port 30000\n")
    engine = read_brief(written(tmp_path, ANSWERS, gather([tmp_path / "launch.sh"], {}))).study.engine
    assert (engine.wrapper.kind, engine.wrapper.image) == ("docker", "lmsysorg/sglang:v0.5.14")
    assert engine.wrapper.options == ("-v", "/m:/m")
    assert engine.command == ["python3", "-m", "sglang.launch_server", "--model-path", "/m"]
    assert (engine.env, engine.version, engine.api_key_env) == ({"A": "b"}, "0.5.14", "KEY")


def test_a_launcher_of_ones_own_is_a_server_when_the_engine_is_named(tmp_path: Path) -> None:
    """Its last command; without the name it is no server that is known."""
    (tmp_path / "serve.sh").write_text("ulimit -n 9999\nexec ./my-launcher.py --model-path /m --tp 2\n")
    with pytest.raises(InputError, match="--engine says that its last command is one"):
        gather([tmp_path / "serve.sh"], {})
    found = gather([tmp_path / "serve.sh"], {}, "sglang")
    assert found.launch is not None
    assert (found.launch.kind, found.launch.command[0]) == ("sglang", "./my-launcher.py")
    assert [str(remark) for remark in found.remarks] == [
        "serve.sh:2: taken for the sglang server, as --engine says: exec ./my-launcher.py --model-path /m --tp 2",
        "serve.sh:1: not taken over: ulimit -n 9999",
    ]


def test_what_is_no_server_does_not_become_one(tmp_path: Path) -> None:
    """--engine takes the last command that could be one; a terminal's window, a copy, a sleep could not."""
    path = tmp_path / "serve.sh"
    path.write_text("nohup ./my-launcher.py --tp 2 &\nsleep 5\ncp a b\ntmux attach\ndisown\n")
    found = gather([path], {}, "sglang").launch
    assert found is not None
    assert found.command == ("./my-launcher.py", "--tp", "2")
    path.write_text("cp a b\ntmux new-session -d -s x\n")
    with pytest.raises(InputError, match="none of its commands could be one"):
        gather([path], {}, "sglang")


def test_paths_of_a_script_are_those_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's folder and the data set in full, where they are there; a name that is downloaded stays."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "data"
    (place / "models" / "q").mkdir(parents=True)
    (place / "sg.json").write_text("[]")
    bench = "vllm bench serve --dataset-name sharegpt --dataset-path ./sg.json --max-concurrency 4"
    (place / "launch.sh").write_text(f"cd {place}\nvllm serve models/q &\n{bench}\n")
    made, _ = make(Wish(), gather([place / "launch.sh"], {}), Seen())
    assert made.engine.command == ["env", f"--chdir={place}", "vllm", "serve", "models/q"]
    assert (made.model_path, made.workload["dataset"]) == (str(place / "models" / "q"), str(place / "sg.json"))
    (place / "launch.sh").write_text(f"vllm serve meta/L &\n{bench}\n")
    made, _ = make(Wish(), gather([place / "launch.sh"], {}), Seen())
    assert (made.model_path, made.workload["dataset"]) == ("meta/L", str(place / "sg.json"))


def test_a_bare_python_is_named_with_what_it_is_here(tmp_path: Path) -> None:
    """Unless the script brings its own environment, or a container does."""
    (tmp_path / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "python3").chmod(0o755)
    server = "python3 -m sglang.launch_server --model-path /m"
    path = tmp_path / "launch.sh"
    path.write_text(f"\n{server}\n")
    [remark] = gather([path], {"PATH": str(tmp_path)}).remarks
    assert str(remark).startswith(f"launch.sh:2: python3 is the first one in a night's PATH, here {tmp_path}/python3;")
    for text_ in (f". /v/bin/activate\n{server}\n", f"docker run image {server}\n", f"/v/bin/{server}\n"):
        path.write_text(text_)
        assert gather([path], {"PATH": str(tmp_path)}).remarks == ()


def test_what_no_night_can_start_is_named_with_its_line(tmp_path: Path) -> None:
    """The study that would say so does not exist yet."""
    (tmp_path / "launch.sh").write_text("\nssh -N gpu7 vllm serve m\n")
    with pytest.raises(InputError, match=r"launch\.sh:2: no night can start this: engine\.wrapper\.options\[0\]: -N"):
        make(ANSWERS, gather([tmp_path / "launch.sh"], {}), Seen())


@pytest.mark.parametrize("wish", [Wish(engine="vllm"), Wish(model="/other"), Wish(tensor_parallel=2)])
def test_an_option_cannot_change_what_the_script_runs(tmp_path: Path, wish: Wish) -> None:
    """It is neither ignored nor obeyed."""
    with pytest.raises(InputError, match="the script"):
        make(wish, gather([script(tmp_path)], {}), Seen())


def test_a_small_vocabulary_bounds_the_token_ids(tmp_path: Path) -> None:
    """Ids that the model has not would end its server."""
    config = json.loads((ROOT / "studies/models/demo.json").read_text())
    for size, bounds in ((1024, (102, 1024)), (151_936, (1000, 30_000))):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
        wish = Wish(engine="sglang", model=str(folder), workload={"concurrency": 4})
        workload = parse_study(make(wish, Gathered(), Seen())[1], known_names()).workload
        assert (workload.token_id_low, workload.token_id_high) == bounds


@pytest.mark.parametrize(
    ("wish", "metric", "says"),
    [
        (Wish(workload={"request_rate": 4.0}), "e2e_mean_s", "since requests come at times of their own"),
        (Wish(workload={"request_rate": 4.0}, metric="output_throughput_tok_s"), "output_throughput_tok_s", "ask for"),
        (Wish(workload={"request_rate": 4.0}, metric="ttft_p90_s"), "ttft_p90_s", ""),
        (ANSWERS, "output_throughput_tok_s", ""),
    ],
)
def test_an_open_load_gets_an_objective_that_the_settings_decide(
    wish: Wish, metric: str, says: str, tmp_path: Path
) -> None:
    """Below saturation its throughput is the request rate; what somebody asks for stays, with a word on it."""
    made, text = make(wish, gather([script(tmp_path)], {}), Seen())
    assert tomllib.loads(text)["objective"]["metric"] == made.metric == metric
    remarks = [str(remark) for remark in made.remarks if remark.where == "objective.metric"]
    assert [says in remark for remark in remarks] == [True] * bool(says)


@pytest.mark.parametrize(("tag", "noted"), [("latest", True), ("v0.5.14", False)])
def test_a_version_that_an_image_does_not_tell_is_noted(tag: str, noted: bool, tmp_path: Path) -> None:
    """An image is not looked into: the key that must be written stands in the notes."""
    server = f"docker run --gpus all lmsysorg/sglang:{tag} python3 -m sglang.launch_server --model-path /m"
    made, _ = make(ANSWERS, gather([script(tmp_path, server)], {}), Seen())
    assert any(remark.where == "engine.version" for remark in made.remarks) is noted
