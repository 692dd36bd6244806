"""Trials on a Ray cluster of several nodes, all on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from autotune.fleet import cluster as module
from autotune.fleet.cluster import RayCrew, demand, places
from autotune.study.file import Resources
from autotune.study.record import read_record
from autotune.trial import Ticket
from autotune.values import Config, Interrupted, Measured, TrialResult
from tests.nights import Night, autotune, begin, events, left, records, result_bytes, rig, wait_for

STORE_BYTES = 100 << 20
SLOW_S = 60.0


def test_a_place_lies_on_one_node() -> None:
    """Room is counted node by node: two halves on two nodes are no place."""
    wanted = demand(Resources(gpus_per_trial=2, cpus_per_trial=4, ray_resources={"h200": 1}))
    nodes = [{"GPU": 8.0, "CPU": 16.0, "h200": 8.0}, {"GPU": 1.0, "CPU": 64.0, "h200": 1.0}, {"CPU": 64.0}]
    assert places(wanted, nodes) == 4
    assert places(wanted, nodes[1:]) == 0
    assert places(demand(Resources()), [{"CPU": 2.0}, {"CPU": 3.0}]) == 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without places, and two nodes with one each."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    found = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        found.add_node(num_cpus=1, resources={"server": 1}, object_store_memory=STORE_BYTES)
    found.wait_for_nodes()
    yield found
    found.shutdown()  # type: ignore[no-untyped-call]
    ray.shutdown()


def study(folder: Path, **fields: Any) -> Path:
    """A short study whose trials ask for a node's place."""
    path = Night(**fields).write(folder)
    path.write_text(path.read_text() + "\n[resources]\ncpus_per_trial = 0\nray_resources = { server = 1 }\n")
    return path


def workers() -> list[psutil.Process]:
    """Ray's worker processes that run a trial now."""
    return [
        p for p in psutil.process_iter(["cmdline"]) if any("_run_there" in part for part in p.info["cmdline"] or ())
    ]


@pytest.mark.slow
def test_a_night_on_two_nodes(cluster: Any, tmp_path: Path) -> None:
    """Trials run side by side on the nodes; logs and raw records come home; a second call has nothing to do."""
    path = study(tmp_path, trials=4)
    done = autotune("tune", path, "--ray", cluster.address)
    assert done.returncode == 0, done.stderr
    found = records(path)
    searched = [r for r in found.results() if r.config.params]
    assert len(searched) == 3
    assert any(r.beside for r in searched)
    for result in searched:
        if isinstance(result.outcome, Measured):
            assert found.trial(result.number).log.exists()
            assert list(found.trial(result.number).load.glob("raw-*"))
    assert len({event["where"] for event in events(path, "trial_placed")}) == 2
    assert read_record(found.folder.hardware, dict[str, str])
    before = result_bytes(path)
    assert autotune("tune", path, "--ray", cluster.address).returncode == 0
    assert result_bytes(path) == before
    assert left(path) == []


@pytest.mark.slow
def test_lost_workers_and_a_dead_driver_lose_nothing(cluster: Any, tmp_path: Path) -> None:
    """A killed worker's trial runs again; a killed driver's night goes on with the same command."""
    path = study(tmp_path, trials=4)
    process = begin("tune", path, "--ray", cluster.address)
    wait_for(lambda: len(events(path, "trial_placed")) >= 2 and workers())
    workers()[0].kill()
    wait_for(lambda: any(isinstance(r.outcome, Interrupted) for r in records(path).results()))
    before = result_bytes(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = autotune("tune", path, "--ray", cluster.address)
    assert done.returncode == 0, done.stderr
    after = result_bytes(path)
    assert before.items() <= after.items()
    settled = [r for r in records(path).results() if not isinstance(r.outcome, Interrupted)]
    keys = [r.config.key() for r in settled if r.config.params and r.repeat_of is None]
    assert len(keys) == len(set(keys)) == 3
    assert left(path) == []


def baseline_while_nodes_are_slow(path: Path, address: str) -> tuple[TrialResult, float]:
    """A trial, and the seconds from the crew's beginning to its end, where nodes take a minute to look for leftovers.

    Connects this process to the cluster.
    """

    def slowly(study: bytes, study_id: str, newest: int) -> int:
        time.sleep(SLOW_S)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_reap_there", ray.remote(num_cpus=0, max_retries=0)(slowly))
        patch.setattr(module, "REAP_S", 0.5)
        began_s = time.monotonic()
        with RayCrew(rig(path), address) as crew:
            crew.start(Ticket(number=0, config=Config(params={}), role="baseline"))
            result = crew.wait()
        return result, time.monotonic() - began_s


@pytest.mark.slow
def test_no_trial_waits_for_the_search_for_leftovers(cluster: Any, tmp_path: Path) -> None:
    """A node that is slow to look for servers of an earlier driver holds up neither a trial nor, for long, the end."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result, took_s = pool.submit(baseline_while_nodes_are_slow, study(tmp_path), cluster.address).result()
    assert isinstance(result.outcome, Measured)
    assert took_s < SLOW_S


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    """Exit code 2, the address and what to start."""
    done = autotune("tune", study(tmp_path), "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "ray start --head" in done.stderr
    assert "Traceback" not in done.stderr
