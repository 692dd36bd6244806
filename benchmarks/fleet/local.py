"""A Ray cluster of several nodes on this machine, and the study that the benchmarks of this folder run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray.cluster_utils import Cluster

ROOT = Path(__file__).parents[2]
STORE_BYTES = 100 << 20
STUDY = """
name = "fleet"
seed = 3
[engine]
command = ["{{python}}", "-m", "autotune.sim", "--sim-profile", "demo", "--sim-noise", "0.02", "--sim-speed", "{speed}"]
version = "0.5.14"
[model]
config = "{root}/studies/models/demo.json"
gpu_memory_gb = 24
weight_gb = 8
[space]
parameters = ["max_running_requests", "cuda_graph_max_bs", "chunked_prefill_size"]
[workload]
input_tokens = 8
output_tokens = 4
concurrency = 64
stream = false
min_s = {load_s}
max_s = {load_s}
warmup_max_s = 0.5
precision = 0.9
host_busy_limit = 1
[search]
sampler = "tpe"
[budget]
trials = {trials}
wall_clock = "6h"
confirm_starts = 0
baseline_every = 0
infeasible_in_a_row = 1000
[resources]
cpus_per_trial = 0
ray_resources = {{ slot = 1 }}
slots = {slots}
"""


def write_study(folder: Path, *, trials: int, slots: int = 0, speed: float = 1.0, load_s: float = 1.0) -> Path:
    """A study whose servers' time is mostly waiting: a start of seconds, a small load."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fleet.toml"
    path.write_text(STUDY.format(root=ROOT, trials=trials, slots=slots, speed=speed, load_s=load_s))
    return path


def start_cluster(nodes: int) -> Any:
    """A head without places and ``nodes`` nodes with one place each."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        add_node(cluster)
    cluster.wait_for_nodes()
    return cluster


def add_node(cluster: Any) -> Any:
    """One more node with one place."""
    return cluster.add_node(num_cpus=1, resources={"slot": 1}, object_store_memory=STORE_BYTES)


def stop_cluster(cluster: Any) -> None:
    """End all its processes."""
    cluster.shutdown()
    ray.shutdown()  # type: ignore[no-untyped-call]


def raylet_of(node: Any) -> int:
    """The process that holds a node together, and has started its workers."""
    return int(node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid)


def begin(study: Path, address: str) -> subprocess.Popen[str]:
    """``autotune tune`` on the cluster; what it says goes to ``driver.log`` beside the study."""
    argv = [sys.executable, "-m", "autotune", "tune", str(study), "--ray", address]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (study.parent / "driver.log").open("a") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log, text=True, env=env, cwd=ROOT)
