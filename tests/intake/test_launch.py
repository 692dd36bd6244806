"""The server of a launch script as a study's engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InputError
from autotune.intake.launch import Launch
from autotune.intake.sources import Sorted, sort_script
from autotune.values import Wrapper

ENVIRON = {"HOME": "/home/somebody", "PATH": "/usr/bin", "MODEL_DIR": "/models/m", "OUR_KEY": "sk-0123456789"}


def sort(text: str) -> Sorted:
    return sort_script(text, Path("launch.sh"), ENVIRON)


def launch(text: str) -> Launch:
    found = sort(text).launch
    assert found is not None
    return found


def said(found: Launch) -> str:
    return "\n".join(map(str, found.remarks))


@pytest.mark.parametrize(
    ("line", "kind", "model"),
    [
        ("python -m sglang.launch_server --model-path /m", "sglang", "/m"),
        ("python3 -m sglang.launch_server --model /m", "sglang", "/m"),
        ("/opt/venv/bin/sglang serve --model-path=/m", "sglang", "/m"),
        ("vllm serve /m --max-num-seqs 4", "vllm", "/m"),
        ("python -m vllm.entrypoints.openai.api_server --model /m", "vllm", "/m"),
        ("exec nohup python -m sglang.launch_server --model-path /m &", "sglang", "/m"),
        ("time env A=1 vllm serve /m | tee log.txt", "vllm", "/m"),
        ("numactl --membind 0 vllm serve /m", "vllm", "/m"),
        ('bash -c "vllm serve /m"', "vllm", "/m"),
        ('MODEL=/m; vllm serve "$MODEL"', "vllm", "/m"),
        ('vllm serve "$MODEL_DIR"', "vllm", "/models/m"),
    ],
)
def test_servers_are_known_however_they_are_started(line: str, kind: str, model: str) -> None:
    """By module, by program, behind prefixes, in a quoted command."""
    found = launch(f"#!/bin/bash\n{line}\n")
    assert (found.kind, found.model_path) == (kind, model)


def test_the_command_line_stays_what_the_user_runs() -> None:
    """Searched flags too: they are the baseline. Only host and port leave, and that is said."""
    found = launch(
        "python -m sglang.launch_server --model-path /m --max-running-requests 512 \\\n"
        "  --mem-fraction-static=0.9 --host 0.0.0.0 --port 30000 --trust-remote-code"
    )
    assert found.command == (
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m",
        "--max-running-requests",
        "512",
        "--mem-fraction-static=0.9",
        "--trust-remote-code",
    )
    assert (found.host, found.port) == ("0.0.0.0", "30000")
    assert "launch.sh:1: listens on 0.0.0.0:30000" in said(found)


def test_what_stands_before_the_server_and_changes_it_stays() -> None:
    """A pinning program, a folder, settings."""
    found = launch("export NCCL_DEBUG=INFO\ncd /srv\nB=2 exec taskset -c 0-7 vllm serve m")
    assert found.command == ("env", "--chdir=/srv", "taskset", "-c", "0-7", "vllm", "serve", "m")
    assert found.env == {"NCCL_DEBUG": "INFO", "B": "2"}


@pytest.mark.parametrize(
    "key", ['"$OUR_KEY"', "$OUR_KEY", "sk-literal-0123", "'sk-literal-0123'", '"${OUR_KEY:-sk-literal-0123}"']
)
@pytest.mark.parametrize("form", ["--api-key {}", "--api-key={}"])
def test_a_key_is_named_and_never_kept(key: str, form: str) -> None:
    """Neither a literal one nor the value of its variable is in anything that was read."""
    found = launch(f"python -m sglang.launch_server --model-path /m {form.format(key)} --tp 2")
    assert "sk-" not in repr(found)
    assert found.command[-2:] == ("--tp", "2")
    assert found.api_key_env == ("OUR_KEY" if "OUR_KEY" in key else "")
    assert "--api-key" in said(found)


def test_vllm_reads_its_key_from_its_own_variable() -> None:
    """By whatever way the script gives it."""
    for script in ('vllm serve m --api-key "$OUR_KEY"', "export VLLM_API_KEY=sk-12345678\nvllm serve m"):
        found = launch(script)
        assert found.api_key_env == "VLLM_API_KEY"
        assert "sk-" not in repr(found)
        assert found.pass_env == ()


def test_secret_settings_are_passed_by_name() -> None:
    """A token in the script is not in the study."""
    found = launch("export HF_TOKEN=hf_abcdef A=1\nvllm serve m")
    assert found.pass_env == ("HF_TOKEN",)
    assert found.env == {"A": "1"}
    assert "hf_abcdef" not in repr(found)
    assert "HF_TOKEN looks like a secret" in said(found)


def test_what_cannot_be_told_is_an_error_with_its_line() -> None:
    """A guess would make another baseline."""
    with pytest.raises(InputError, match=r"launch\.sh:2: \$\(pick\) \(behind --tp\) cannot be told"):
        launch("\nvllm serve m --tp $(pick)")
    with pytest.raises(InputError, match=r"\$NOPE \(behind --model-path\)"):
        launch('python -m sglang.launch_server --model-path "$NOPE"')


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        ("vllm serve m --tp $NOPE", "export NOPE with its value and run again, or write the value into line 1"),
        ("TP=$(count)\n\nvllm serve m --tp $TP", "; write the value into line 1 of"),
        ("\nMODEL=$1\nvllm serve $MODEL", "; write the value into line 2 of"),
        ("vllm serve $1", "; write the value into line 1 of"),
        ("main() {\n vllm serve $1\n}\nmain $@", "; write the value into line 2 of"),
        ("\nread TP\nvllm serve m --tp $TP", "; write the value into line 2 of"),
        ("\ndocker run image bash -c 'vllm serve m --tp $TP'", "; write the value into line 2 of"),
        ('bash -c "vllm serve m --tp $NOPE"', "; export NOPE with its value"),
    ],
)
def test_the_remedy_is_one_that_works(script: str, remedy: str) -> None:
    """An export changes nothing that the script sets itself."""
    with pytest.raises(InputError) as raised:
        launch(script)
    assert remedy in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [
        "CUDA_VISIBLE_DEVICES=$i vllm serve m &",
        "vllm serve m --port $((8000 + i)) > log 2>&1 &",
        "docker run -d image vllm serve m",
        "tmux new -d 'vllm serve m'",
        "start $i &",
    ],
)
def test_a_loop_that_starts_several_servers_is_an_error(body: str) -> None:
    """As two lines are; one that waits for its server starts the same one again."""
    function = "start() { vllm serve m; }\n"
    with pytest.raises(InputError, match=r"launch\.sh:\d: servers are started in a loop"):
        launch(f"{function}for i in 0 1; do {body}\ndone")
    assert launch("while true; do vllm serve m; sleep 5; done &").command == ("vllm", "serve", "m")


@pytest.mark.parametrize(
    "script",
    [
        "while true; do vllm serve m & PID=$!; wait $PID; done",
        "while true; do vllm serve m & PID=$!; while kill -0 $PID; do sleep 10; done; done",
        "for i in 1 2 3; do vllm serve m & sleep 60; curl x && break; kill %1; done; wait",
        "start() { vllm serve m & }\nstart\nwhile true; do sleep 5; curl x || start; done",
        "for gpu in 0; do vllm serve m & done",
    ],
)
def test_a_watchdog_has_one_server(script: str) -> None:
    """A loop that waits for it, ends it before the next turn, or starts it again; or has one turn only."""
    assert launch(script).command == ("vllm", "serve", "m")


@pytest.mark.parametrize(
    "line",
    [
        'if [ -n "$OLD" ]; then docker exec c pkill -f launch_server.py; fi',
        "docker exec c pkill -f launch_server.py",
        "ssh host 'print -l **/*(.)'",
        'if [ "${N:-1}" -gt 1 ]; then srun -N 2 -n 2 vllm serve m; exit; fi',
        'if [ "$IN" ]; then docker exec c vllm serve m; exit; fi',
        'if [ "$ALL" ]; then for i in 0 1; do vllm serve x & done; wait; exit; fi',
    ],
)
def test_a_server_that_is_not_the_chosen_one_ends_nothing(line: str) -> None:
    """Nor does a command that only names one."""
    assert launch(f"{line}\nvllm serve m").command == ("vllm", "serve", "m")


def test_flags_before_the_server_are_those_of_another_program() -> None:
    """``-p`` of systemd-run is no port; with --scope it holds the server itself."""
    found = launch("systemd-run --scope -p MemoryMax=1G vllm serve m -p 80")
    assert found.command == ("systemd-run", "--scope", "-p", "MemoryMax=1G", "vllm", "serve", "m")
    assert found.port == "80"
    assert launch("nice -n 2 vllm serve m").command == ("nice", "-n", "2", "vllm", "serve", "m")


@pytest.mark.parametrize(
    "line",
    [
        "export PYTHONPATH=/x:$PYTHONPATH\nvllm serve m",
        "PYTHONPATH=/x:${PYTHONPATH} vllm serve m",
        "docker run -e PYTHONPATH=/x:$PYTHONPATH image vllm serve m",
    ],
)
def test_a_path_that_goes_on_with_nothing_is_kept(line: str) -> None:
    """What the script puts in front is not lost with the variable that is set nowhere."""
    found = launch(line)
    assert (found.env, found.pass_env) == ({"PYTHONPATH": "/x:"}, ())
    assert "$PYTHONPATH is set nowhere and was taken as empty" in said(found)


def test_what_runs_beside_the_server_in_its_container_is_named() -> None:
    """A trial starts the server alone."""
    found = launch('docker run image bash -c "export $(cat /e) && cd /x && pip install -e . && vllm serve m"')
    assert found.command == ("env", "--chdir=/x", "vllm", "serve", "m")
    for text in ("not followed: export $(cat /e)", "not taken over: pip install -e .", "build it into the image"):
        assert text in said(found)
    assert launch('ssh host "pkill -f vllm serve; vllm serve m"').command == ("vllm", "serve", "m")
    assert "build it" not in said(launch('ssh host "cd /x && vllm serve m"'))


def test_sudo_leaves_and_what_it_sets_stays() -> None:
    """A night could not end a server of another user; in front of a container it leaves as well."""
    found = launch("sudo -E CUDA_VISIBLE_DEVICES=3 vllm serve m")
    assert (found.command, found.env) == (("vllm", "serve", "m"), {"CUDA_VISIBLE_DEVICES": "3"})
    assert "launch.sh:1: sudo was left out" in said(found)
    found = launch("export A=1\nsudo -u svc env B=2 vllm serve m")
    assert (found.command, found.env) == (("vllm", "serve", "m"), {"A": "1", "B": "2"})
    assert "sudo without -E hands on little" in said(found)
    assert launch("sudo -iu svc vllm serve m").command == ("vllm", "serve", "m")


def test_a_program_before_the_server_that_is_not_known_is_named() -> None:
    """It stays; what only pins or slows the server needs no word."""
    found = launch("./with-limits vllm serve m")
    assert found.command == ("./with-limits", "vllm", "serve", "m")
    assert "./with-limits stands before the server and was kept" in said(found)
    for line in ("nice -n 5 vllm serve m", "numactl -N 0 vllm serve m", "cd /x && vllm serve m", "/v/bin/vllm serve m"):
        assert "stands before" not in said(launch(line))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("python3 -m sglang.launch_server --model-path m --nnodes 2 --node-rank 0", "--nnodes 2: every start"),
        ("vllm serve m --headless", "--headless: every start"),
        ("vllm serve m -dp 16 --data-parallel-size-local 8", "--data-parallel-size-local 8: every start"),
        ("srun --ntasks=2 vllm serve m", "--ntasks=2: a night starts one task"),
        ("srun -N2 vllm serve m", "-N2: a night starts one task"),
        ("docker exec c vllm serve m", "docker exec: the server would go on"),
        ("kubectl exec pod -- vllm serve m", "kubectl exec: the server would go on"),
        ("docker compose run svc vllm serve m", "docker compose: the server would go on"),
        ("systemd-run -p MemoryMax=1G vllm serve m", "systemd-run -p: the server would go on"),
        ("vllm serve m -n 2 -r 0", "--nnodes 2: every start"),
        ("vllm serve m -dp 2 --data-parallel-rank 0", "--data-parallel-size 2 with --data-parallel-rank: every start"),
        ("python3 -m vllm.entrypoints.openai.api_server -n 2", "--nnodes 2: every start"),
        ("vllm serve m --data-parallel-rank 1", "--data-parallel-rank 1: every start"),
        ("vllm serve m --data-parallel-start-rank=4", "--data-parallel-start-rank 4: every start"),
    ],
)
def test_what_a_night_could_not_start_or_end_is_an_error(line: str, message: str) -> None:
    """It names the script's line."""
    with pytest.raises(InputError) as raised:
        launch(f"\n{line}")
    assert f"launch.sh:2: {message}" in str(raised.value)
    assert launch("python3 -m sglang.launch_server --model-path m --nnodes 1 --node-rank 0").model_path == "m"


def test_what_srun_gets_from_a_night_leaves() -> None:
    """However it is written."""
    found = launch("srun -n1 --ntasks=1 -n 1 --nodes 1 --nodes=1-1 -J x --pty --gres=gpu:1 vllm serve m")
    assert found.wrapper.options == ("--gres=gpu:1",)
    assert "--nodes 1 was left out" in said(found)


def test_flags_in_a_file_are_named() -> None:
    """They are part of what runs, and were not read."""
    assert "further flags stand in vllm.yaml" in said(launch("vllm serve m --config vllm.yaml"))


def test_a_remark_on_a_setting_names_the_line_that_sets_it() -> None:
    """Not that of the server."""
    assert "launch.sh:2: HF_TOKEN looks like a secret" in said(launch("\nexport HF_TOKEN=hf_abcdef\n\nvllm serve m"))


def test_an_empty_variable_for_extra_flags_is_empty() -> None:
    """As bash takes it; it is said."""
    found = launch("vllm serve m $EXTRA_FLAGS --max-num-seqs 4")
    assert found.command == ("vllm", "serve", "m", "--max-num-seqs", "4")
    assert "$EXTRA_FLAGS is set nowhere and was taken as empty" in said(found)


def test_what_is_not_taken_over_is_named() -> None:
    """Commands beside the server, TLS."""
    found = sort("ulimit -n 65535\nvllm serve m --ssl-keyfile k.pem")
    assert [str(remark) for remark in found.remarks] == ["launch.sh:1: not taken over: ulimit -n 65535"]
    assert found.launch is not None
    assert "--ssl-keyfile was left out" in said(found.launch)


def test_two_servers_are_a_choice_for_a_person() -> None:
    """Unless one of them surely runs and the other stands under a condition."""
    with pytest.raises(InputError, match=r"launch\.sh: servers are started in lines 1, 2; keep the one to tune"):
        sort("vllm serve a &\nvllm serve b")
    assert launch("if x; then vllm serve a; fi\nvllm serve b").model_path == "b"


def test_a_container_runs_as_a_night_needs_it() -> None:
    """In the foreground, on the host's network, without a name; mounts, GPUs and settings stay."""
    found = launch(
        "docker run -d --name sg --restart always --gpus all -p 30000:30000 -v ~/hub:/hub \\\n"
        "  -e A=b -e HF_TOKEN=hf_abc \\\n"
        "  --ipc=host lmsysorg/sglang:v0.5.14 python3 -m sglang.launch_server --model-path /hub/m --port 30000"
    )
    assert found.command == ("python3", "-m", "sglang.launch_server", "--model-path", "/hub/m")
    assert found.wrapper == Wrapper(
        kind="docker",
        image="lmsysorg/sglang:v0.5.14",
        gpus="all",
        options=("-v", "/home/somebody/hub:/hub", "--ipc=host"),
    )
    assert (found.env, found.version) == ({"A": "b"}, "0.5.14")
    assert found.pass_env == ("HF_TOKEN",)
    assert "hf_abc" not in repr(found)
    for word in ("-d", "--name sg", "--restart always", "-p 30000:30000"):
        assert f"{word} was left out" in said(found)


def test_an_image_whose_entry_point_is_the_server_needs_no_command() -> None:
    """vLLM's: only flags follow it, or the model and flags; its key goes in by name."""
    found = launch("docker run --runtime nvidia -it vllm/vllm-openai:v0.15.1 --model m --api-key abc12345")
    assert (found.kind, found.api_key_env) == ("vllm", "VLLM_API_KEY")
    assert found.command == ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
    assert found.wrapper.options == ("--runtime", "nvidia")
    assert launch("docker run vllm/vllm-openai m --max-num-seqs 4").command[:3] == ("vllm", "serve", "m")


def test_a_shell_inside_a_container_is_seen_through() -> None:
    """A trial's flags could not follow a quoted command."""
    found = launch('docker run image bash -lc "vllm serve m --port 8000"')
    assert found.command == ("vllm", "serve", "m")


@pytest.mark.parametrize(
    ("options", "gpus", "kept"),
    [
        ("--gpus all", "all", ()),
        ("--gpus '\"device=0,1\"'", "0,1", ()),
        ("--gpus=2", "", ("--gpus=2",)),
        ("", "", ()),
        ("--network bridge --net=host -p8000:8000 --rm", "", ()),
        ("--entrypoint vllm", "", ()),
    ],
)
def test_options_that_a_study_has_words_for(options: str, gpus: str, kept: tuple[str, ...]) -> None:
    """GPUs, network, entry point; the rest stays as options."""
    server = "serve m" if "entrypoint" in options else "vllm serve m"
    found = launch(f"docker run {options} image:1 {server}")
    assert (found.wrapper.gpus, found.wrapper.options) == (gpus, kept)
    assert found.command == ("vllm", "serve", "m")


def test_a_container_gets_only_what_the_script_gives_it() -> None:
    """What is exported reaches docker's client, not the server, unless --env names it."""
    found = launch("export A=1 B=2\ndocker run -e A -e C=3 -e D image vllm serve m")
    assert found.env == {"A": "1", "C": "3"}
    assert found.pass_env == ("D",)


def test_slurm_and_ssh_are_wrappers_too() -> None:
    """With their options; ssh's command is read as the shell there reads it."""
    found = launch("export A=1\nsrun --gres=gpu:8 -p gpu python3 -m sglang.launch_server --model-path /m")
    assert found.wrapper == Wrapper(kind="srun", options=("--gres=gpu:8", "-p", "gpu"))
    assert (found.command[0], found.env) == ("python3", {"A": "1"})
    found = launch("ssh -p 2222 me@gpu7 'cd /x; exec vllm serve \"a b\"'")
    assert found.wrapper == Wrapper(kind="ssh", options=("-p", "2222"), destination="me@gpu7")
    assert found.command == ("env", "--chdir=/x", "vllm", "serve", "a b")
    assert "sudo was left out" in said(launch("sudo docker run image vllm serve m"))


def test_load_generators_of_the_script_give_the_workload() -> None:
    """Their flags are what its results would say."""
    found = sort(
        "vllm serve m &\nvllm bench serve --dataset-name random --random-input-len 1024 --random-output-len 128 "
        "--max-concurrency 64 --num-prompts 512"
    )
    assert found.loads[0].workload == {
        "input_tokens": 1024,
        "output_tokens": 128,
        "range_ratio": 1.0,
        "concurrency": 64,
        "route": "completions",
    }
    assert found.loads[0].kind == "vllm"


def test_a_sweeps_command_is_read() -> None:
    """The server and the load generator that it quotes, and the files that it names."""
    found = sort(
        "vllm bench sweep serve --serve-cmd 'vllm serve m --max-num-seqs 8' "
        "--bench-cmd 'vllm bench serve --random-input-len 100 --random-output-len 10 --max-concurrency 4' "
        "--serve-params serve.json --bench-params bench.json -o results"
    )
    assert found.launch is not None
    assert found.launch.command == ("vllm", "serve", "m", "--max-num-seqs", "8")
    assert found.loads[0].workload["concurrency"] == 4
    assert (found.sweeps[0].serve_params, found.sweeps[0].bench_params) == ("serve.json", "bench.json")
