"""docker, podman, srun, squeue, scancel and ssh, as far as autotune uses them: one script, run under each name.

What it starts lives as with the real ones: in a session and an environment of its own, below a keeper that survives
the client. ``STATE`` is the folder of the daemon; a file of a fault's name in it is that fault.
Usage: double.py STATE NAME ARGUMENTS
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATE = Path(sys.argv[1])
VALUED = {
    "run": {"--name", "--network", "--publish", "--env", "-e", "--gpus", "--device", "--entrypoint", "--volume", "-v"},
    "srun": {"--job-name", "--nodes", "--ntasks", "--export", "--partition"},
    "ssh": {"-S", "-o", "-L", "-p", "-i"},
}
PLAIN = {"run": {"--rm", "--init"}, "srun": {"--unbuffered"}, "ssh": {"-T", "-tt"}}


def main() -> int:
    name, arguments = sys.argv[2], sys.argv[3:]
    if name == "keep":
        return keep(Path(arguments[0]))
    if name in ("docker", "podman"):
        return runtime(name, arguments)
    return {"srun": srun, "squeue": squeue, "scancel": scancel, "ssh": ssh}[name](arguments)


def fault(name: str) -> bool:
    return (STATE / name).exists()


def say(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


def parse(kind: str, arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options by name, and the words from the first that is none."""
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option in VALUED[kind]:
            options.setdefault(option, []).append(value if equals else rest.pop(0))
        elif option in PLAIN[kind]:
            options.setdefault(option, [])
        else:
            sys.exit(say(f"unknown flag: {option}", 125))
    return options, rest


# What is kept: one folder an item, with spec.json, pid, log and, at the end, code.


def keep(folder: Path) -> int:
    """The shim of a container or the step daemon of a job: starts what the folder says, and waits for it."""
    spec = json.loads((folder / "spec.json").read_text())
    with (folder / "log").open("wb") as log:
        try:
            child = subprocess.Popen(
                spec["argv"], env=spec["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError:
            log.write(b"exec failed\n")
            put(folder / "code", "127")
            return 0
        put(folder / "pid", str(child.pid))
        code = child.wait()
    with contextlib.suppress(OSError):  # the end of the first process is the end of all
        os.killpg(child.pid, signal.SIGKILL)
    put(folder / "code", str(code if code >= 0 else 128 - code))
    return 0


def put(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def begin(folder: Path, spec: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    keeper = [sys.executable, "-IS", __file__, str(STATE), "keep", str(folder)]
    null = subprocess.DEVNULL
    subprocess.Popen(keeper, env={}, stdin=null, stdout=null, stderr=null, start_new_session=True)


def follow(folder: Path) -> int:
    """The client: prints what is written until the end, and hands a SIGTERM on."""
    signal.signal(signal.SIGTERM, lambda *_: hit(folder, signal.SIGTERM))
    place = 0
    while True:
        code = read(folder / "code")
        if (log := folder / "log").exists():
            data = log.read_bytes()[place:]
            place += len(data)
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        if code:
            return int(code)
        time.sleep(0.02)


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def hit(folder: Path, number: signal.Signals) -> None:
    pid = read(folder / "pid")
    if pid and not read(folder / "code"):
        with contextlib.suppress(OSError):
            os.kill(int(pid), number)


def ended(folder: Path, seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if read(folder / "code") or not folder.exists():
            return True
        time.sleep(0.02)
    return False


# docker and podman


def runtime(name: str, arguments: list[str]) -> int:
    command, rest = arguments[0], arguments[1:]
    if fault("down"):
        return say("Cannot connect to the daemon. Is it running?", 125 if command == "run" else 1)
    if command == "run":
        return container_run(name, rest)
    if command == "image":
        return say("Error: No such image: missing", 1) if rest[-1] == "missing" else 0
    if rest == ["--quiet"]:
        return 0
    if command == "ps":
        assert rest[0] == "--all"
        assert rest[3:] == ["--format", "{{.Names}}"]
        wanted = rest[2].removeprefix("name=")
        print("\n".join(path.name for path in containers().iterdir() if wanted in path.name and listed(path)))
        return 0
    if command == "inspect":
        folder = containers() / rest[2]
        if not (pid := read(folder / "pid")) or read(folder / "code"):
            return say(f"Error: No such object: {rest[2]}", 1)
        print(pid, "/")  # a control group that every process is in
        return 0
    if command == "stop":
        return container_stop(rest)
    assert (command, rest[0]) == ("rm", "--force"), arguments
    if name == "podman":
        assert rest[1:3] == ["--time", "0"]
    return container_remove(rest[3 if name == "podman" else 1 :])


def containers() -> Path:
    folder = STATE / "containers"
    folder.mkdir(exist_ok=True)
    return folder


def listed(folder: Path) -> bool:
    """Whether a container is still there; with --rm it goes when it has ended."""
    return not read(folder / "code")


def container_run(name: str, arguments: list[str]) -> int:
    options, (image, *command) = parse("run", arguments)
    folder = containers() / options["--name"][0]
    if image == "missing":
        return say(f"{name}: Error response from daemon: No such image: missing", 125)
    if folder.exists() and listed(folder):
        return say(f"{name}: Error response from daemon: Conflict. The container name is already in use.", 125)
    shutil.rmtree(folder, ignore_errors=True)
    env = {"PATH": os.defpath}
    for setting in [*options.get("--env", []), *options.get("-e", [])]:
        key, equals, value = setting.partition("=")
        if equals or key in os.environ:
            env[key] = value if equals else os.environ[key]
    if fault("unmarked"):
        del env["AUTOTUNE_TRIAL"]  # as if another user's: its environment cannot be read
    begin(folder, {"argv": [*options["--entrypoint"], *command], "env": env, "options": options, "image": image})
    return follow(folder)


def container_stop(arguments: list[str]) -> int:
    assert arguments[0] == "-t"
    if fault("stop-fails"):
        return say("Error response from daemon: cannot stop container: permission denied", 1)
    for name in arguments[2:]:
        folder = containers() / name
        hit(folder, signal.SIGTERM)
        if not ended(folder, float(arguments[1])):
            hit(folder, signal.SIGKILL)
            ended(folder, 10.0)
    return 0


def container_remove(names: list[str]) -> int:
    if fault("rm-fails"):
        return say("Error response from daemon: could not kill container: tried to kill container, but did not", 1)
    for name in names:
        hit(containers() / name, signal.SIGKILL)
        ended(containers() / name, 10.0)
    return 0


# Slurm


def jobs() -> Path:
    folder = STATE / "jobs"
    folder.mkdir(exist_ok=True)
    return folder


def srun(arguments: list[str]) -> int:
    options, command = parse("srun", arguments)
    if "nowhere" in options.get("--partition", []):
        return say("srun: error: Unable to allocate resources: Invalid partition name specified", 1)
    number = f"{100 + len(list(jobs().iterdir()))}"
    inside = os.environ.get("SLURM_JOB_ID")
    folder = jobs() / (f"{inside}.{number}" if inside else f"{number}.0")
    begin(folder, {"argv": command, "env": dict(os.environ), "name": options["--job-name"][0], "step": bool(inside)})
    return follow(folder)


def squeue(arguments: list[str]) -> int:
    assert arguments[:4] == ["--me", "--noheader", "--format", "%i|%j"]
    for folder in jobs().iterdir():
        spec = json.loads((folder / "spec.json").read_text())
        if read(folder / "code"):
            continue
        if "--steps" in arguments:
            print(f"{folder.name}|{spec['name']}")
        elif not spec["step"]:
            print(f"{folder.name.partition('.')[0]}|{spec['name']}")
    return 0


def scancel(arguments: list[str]) -> int:
    sent = [word.removeprefix("--signal=") for word in arguments if word.startswith("--signal=")]
    for number in (word for word in arguments if not word.startswith("-")):
        for folder in [path for path in jobs().iterdir() if path.name in (number, f"{number}.0")]:
            hit(folder, signal.SIGKILL if sent == ["KILL"] else signal.SIGTERM)
            if not sent and "." not in number:  # KillWait
                script = f"import os, time; time.sleep(1); os.kill({read(folder / 'pid')}, 9)"
                subprocess.Popen([sys.executable, "-IS", "-c", script], env={}, start_new_session=True, stderr=-3)
    return 0


# ssh: the "other host" is this one, in a session and with an environment of its own


def ssh(arguments: list[str]) -> int:
    options, (destination, command) = parse("ssh", arguments)
    if destination == "nowhere" or fault("down"):
        return say(f"ssh: connect to host {destination} port 22: Connection refused", 255)
    for spec in options.get("-L", []):
        host, port, there, target = spec.split(":")
        listener = socket.create_server((host, int(port)))
        threading.Thread(target=forward, args=(listener, (there, int(target))), daemon=True).start()
    env = {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/")}
    pipe = subprocess.PIPE
    remote = subprocess.Popen(["sh", "-c", command], env=env, stdin=pipe, stdout=pipe, stderr=2, start_new_session=True)
    threading.Thread(target=copy, args=(0, remote.stdin), daemon=True).start()
    copy(remote.stdout.fileno() if remote.stdout else 0, sys.stdout.buffer)
    return remote.wait()


def copy(source: int, target: Any) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(source, 65536):
            target.write(data)
            target.flush()
    if source == 0:
        target.close()


def forward(listener: socket.socket, target: tuple[str, int]) -> None:
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(target)
        except OSError:
            client.close()
            continue
        for pair in ((client, server), (server, client)):
            threading.Thread(target=shovel, args=pair, daemon=True).start()


def shovel(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
