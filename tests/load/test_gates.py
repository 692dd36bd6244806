"""Each gate tripped by a load that deserves it, and left alone by one that does not."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from autotune.engines.base import Counters
from autotune.load.gates import Surroundings
from autotune.load.records import CANCELLED, FAILED, OK, ClientHealth, RawRun
from autotune.load.reduce import reduce
from autotune.load.sharing import Sharing
from autotune.study.file import Objective, Workload
from autotune.values import Finding
from tests.load.synthetic import Plan, closed_loop, edited

WORKLOAD = Workload(concurrency=8, input_tokens=30, output_tokens=20, min_s=5, max_s=20)


def found(raw: RawRun, around: Surroundings | None = None, workload: Workload = WORKLOAD) -> dict[str, Finding]:
    return {f.gate: f for f in reduce(raw, workload, Objective(), around).findings}


def with_client(raw: RawRun, **changes: object) -> RawRun:
    client = msgspec.structs.replace(raw.meta.client, **changes)
    return msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, client=client))


def counters(generated: int, prompt: int = 0, cached: int = 0, retractions: int = 0) -> Counters:
    return Counters(
        source="metrics",
        prompt_tokens=prompt,
        generated_tokens=generated,
        cached_tokens=cached,
        retractions=retractions,
    )


def own_count(raw: RawRun) -> int:
    return int(raw.requests["output_tokens"].sum())


def test_a_sound_load_passes_every_gate() -> None:
    """Nothing is found on a steady load with matching counters and a quiet machine."""
    raw = closed_loop(Plan())
    around = Surroundings(
        before=counters(1000), after=counters(1000 + own_count(raw), 9000), host_busy=0.1, throttled=0.0
    )
    assert found(raw, around) == {}


@pytest.mark.parametrize(
    ("gate", "changes"),
    [
        ("generator_cpu", {"cpu_share": (0.3, 0.97)}),
        ("generator_lag", {"lag_typical_s": (0.001, 0.2)}),
        ("in_flight", {"in_flight": tuple((float(t), 5) for t in range(20))}),
    ],
)
def test_a_saturated_client_is_refused(gate: str, changes: dict[str, object]) -> None:
    """CPU, event-loop lag and places left empty each say that the client was the bottleneck."""
    assert found(with_client(closed_loop(Plan()), **changes))[gate].fatal


def test_late_requests_of_an_open_loop_are_refused() -> None:
    """Requests sent long after they were due make another load than was asked; waiting in line at a limit does not."""
    raw = with_client(closed_loop(Plan()), late_max_s=1.0)
    free = Workload(arrival="open", request_rate=18.0)
    assert found(raw, workload=free)["generator_late"].fatal
    limited = Workload(arrival="open", request_rate=18.0, concurrency=8)
    assert "generator_late" not in found(raw, workload=limited)


def test_failed_requests_above_the_limit_are_refused() -> None:
    """More failures than the workload allows refuse the load and name the main reason; fewer are a remark."""
    raw = closed_loop(Plan())
    done = np.flatnonzero(raw.requests["state"] == OK)
    many = edited(raw, state=(done[::10], FAILED), reason=(done[::10], 1))
    finding = found(many)["failed_requests"]
    assert finding.fatal
    assert finding.message.endswith("boom")
    few = edited(raw, state=(done[:1], FAILED), reason=(done[:1], 1))
    assert not found(few)["failed_requests"].fatal


def test_other_output_lengths_are_refused() -> None:
    """Outputs shorter than asked are refused even where they were not counted as failures."""
    raw = closed_loop(Plan())
    done = np.flatnonzero(raw.requests["state"] == OK)
    assert found(edited(raw, output_tokens=(done[::4], 10)))["output_lengths"].fatal


def test_prefix_cache_hits_are_refused() -> None:
    """Hits told by the replies or by the server's counters refuse the load; a stray hit does not."""
    raw = closed_loop(Plan())
    done = np.flatnonzero(raw.requests["state"] == OK)
    assert found(edited(raw, cached_tokens=(done, 25)))["prefix_cache"].fatal
    assert "prefix_cache" not in found(edited(raw, cached_tokens=(done[:3], 25)))
    total = own_count(raw)
    around = Surroundings(before=counters(0, 0, 0), after=counters(total, 20_000, 6000))
    assert found(raw, around)["prefix_cache"].fatal


def test_a_cache_may_answer_what_the_prompts_share() -> None:
    """Hits up to the workload's own share pass; far fewer are remarked, where the server tells; more are refused."""
    raw = closed_loop(Plan())
    raw = msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, sharing=Sharing(shared=0.6)))
    total, prompts = own_count(raw), 30 * int(raw.ok.sum())

    def with_hits(share: float) -> dict[str, Finding]:
        after = counters(total, prompts, round(share * prompts))
        return found(raw, Surroundings(before=counters(0), after=after))

    assert "prefix_cache" not in with_hits(0.55)
    assert with_hits(0.7)["prefix_cache"].fatal
    assert not with_hits(0.05)["prefix_cache"].fatal
    assert "although the prompts share 60%" in with_hits(0.05)["prefix_cache"].message


def test_a_server_that_counts_uncached_prompt_tokens_alone() -> None:
    """Where a server's count of prompt tokens leaves cached ones out, the share is of what the replies state."""
    raw = closed_loop(Plan())
    raw = msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, sharing=Sharing(shared=0.7)))
    prompts = 30 * int(raw.ok.sum())
    after = counters(own_count(raw), round(0.3 * prompts), round(0.7 * prompts))
    assert "prefix_cache" not in found(raw, Surroundings(before=counters(0), after=after))


def test_retractions_are_remarked_and_then_refused() -> None:
    """A few retractions are a remark, more than one for every second request refuse the load."""
    raw = closed_loop(Plan())
    completed, total = int(raw.ok.sum()), own_count(raw)

    def with_retractions(count: int) -> dict[str, Finding]:
        return found(raw, Surroundings(before=counters(0), after=counters(total, 1, 0, count)))

    assert "retractions" not in with_retractions(1)
    assert not with_retractions(completed // 5)["retractions"].fatal
    assert with_retractions(completed)["retractions"].fatal


@pytest.mark.parametrize(("factor", "tripped"), [(0.9, True), (0.99, False), (1.01, False), (1.5, True), (0.5, True)])
def test_servers_token_count_is_compared(factor: float, tripped: bool) -> None:
    """More than 2 % between the server's count and the client's refuses the load, in both directions."""
    raw = closed_loop(Plan(seconds=60))
    served = int(own_count(raw) * factor)
    assert ("token_counters" in found(raw, Surroundings(before=counters(5), after=counters(5 + served)))) == tripped


def test_requests_cut_off_may_be_counted_or_not() -> None:
    """Servers that count a request only when it ends agree with the client too."""
    raw = closed_loop(Plan(seconds=3))
    finished = int(raw.requests["output_tokens"][raw.requests["state"] != CANCELLED].sum())
    assert "token_counters" not in found(raw, Surroundings(before=counters(0), after=counters(finished)))


def test_counts_read_from_a_log_are_not_compared() -> None:
    """Only exact counters are held against the client's."""
    raw = closed_loop(Plan())
    log = Counters(source="log", generated_tokens=10)
    before = Counters(source="log", generated_tokens=0)
    assert "token_counters" not in found(raw, Surroundings(before=before, after=log))


def test_no_steady_window_is_refused() -> None:
    """A load that never got through its first generation has no steady window and no figures."""
    raw = closed_loop(Plan(seconds=0.3))
    measurement = reduce(raw, WORKLOAD, Objective())
    assert [f.gate for f in measurement.refused] == ["window"]
    assert measurement.steady == {}


def test_a_short_window_is_refused_unless_it_was_stopped() -> None:
    """A window much shorter than min_s is no score; stopped by the caller it is only remarked."""
    raw = closed_loop(Plan(seconds=2.0))
    assert found(raw)["window"].fatal
    stopped = msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, ended="slower than the best"))
    assert not found(stopped)["window"].fatal


@pytest.mark.parametrize(("ended", "remedy"), [("max_s", "raise workload."), ("requests", "send more requests")])
def test_what_makes_a_load_longer(ended: str, remedy: str) -> None:
    """A load of fixed size is not made longer by a limit of time."""
    for seconds in (0.3, 2.0):
        raw = closed_loop(Plan(seconds=seconds))
        raw = msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, ended=ended))
        assert remedy in found(raw)["window"].message


def test_too_few_requests_are_refused() -> None:
    """A window in which hardly a request completed says little."""
    raw = closed_loop(Plan(concurrency=2, tokens=200, seconds=17.0, jitter=0.0))
    assert found(raw, workload=msgspec.structs.replace(WORKLOAD, concurrency=2))["requests"].fatal


@pytest.mark.parametrize(("slope", "outcome"), [(0.0, None), (0.015, False), (0.06, True)])
def test_drift_inside_the_window(slope: float, outcome: bool | None) -> None:
    """A server that slows down by a few per cent is remarked, one that slows down a lot is refused."""
    raw = closed_loop(Plan(slope=slope))
    findings = found(raw, workload=msgspec.structs.replace(WORKLOAD, warmup_max_s=2.0))
    assert (findings["drift"].fatal if "drift" in findings else None) == outcome


@pytest.mark.parametrize(
    ("gate", "around"),
    [
        ("host_load", lambda share: Surroundings(host_busy=share)),
        ("gpu_clocks", lambda share: Surroundings(throttled=share)),
    ],
)
def test_a_disturbed_machine(gate: str, around: Callable[[float], Surroundings]) -> None:
    """Load by others and clocks held down: nothing, then a remark, then a refusal."""
    raw = closed_loop(Plan())
    assert gate not in found(raw, around(0.01))
    assert not found(raw, around(0.3))[gate].fatal
    assert found(raw, around(0.8))[gate].fatal


def test_others_on_the_gpu_are_refused() -> None:
    """Another process on the GPU is named and refuses the load."""
    finding = found(closed_loop(Plan()), Surroundings(gpu_others=("python (pid 7)",)))["gpu_load"]
    assert finding.fatal
    assert "pid 7" in finding.message


def test_refusals_come_first() -> None:
    """The findings that refuse are listed before the remarks."""
    raw = with_client(closed_loop(Plan()), cpu_share=(0.99,))
    findings = reduce(raw, WORKLOAD, Objective(), Surroundings(host_busy=0.3)).findings
    assert [f.fatal for f in findings] == [True, False]
    assert isinstance(raw.meta.client, ClientHealth)


@pytest.mark.parametrize("counted", [15, 60])
def test_a_server_that_counts_other_prompts_is_refused(counted: int) -> None:
    """Truncated prompts are less work, and prompts counted twice are throughput that was not served."""
    raw = closed_loop(Plan())
    good = raw.requests["state"] == OK
    assert found(edited(raw, prompt_tokens=(good, counted)))["prompt_lengths"].fatal


def test_a_server_that_never_says_its_prompt_tokens_is_no_reason() -> None:
    """Usage without prompt tokens says nothing of the prompts."""
    raw = closed_loop(Plan())
    assert "prompt_lengths" not in found(edited(raw, prompt_tokens=(slice(None), 0)))


def test_requests_that_are_passed_over_are_refused() -> None:
    """A scheduler that answers the newest first shows short latencies, and lets others wait for ever."""
    raw = closed_loop(Plan())
    cut = np.flatnonzero(raw.requests["state"] == CANCELLED)
    waiting = edited(raw, send=(cut[:4], 0.5))
    assert found(waiting)["starved"].fatal
    first = edited(waiting, send=(slice(0, 8), -19.0))
    assert found(first)["starved"].fatal, "a slow beginning is no measure of patience"
    assert "starved" not in found(raw)


def test_a_goodput_of_zero_is_no_score() -> None:
    """Where no request keeps the limits there is nothing to compare by ratios."""
    limits = {"e2e_p99_s": 1e-5}
    raw, goodput = closed_loop(Plan()), Objective(metric="goodput_req_s", constraints=limits)
    [finding] = reduce(raw, WORKLOAD, goodput).findings
    assert (finding.gate, finding.fatal) == ("score", True)
    assert not reduce(raw, WORKLOAD, Objective(constraints=limits)).findings


def test_requests_that_wait_for_a_connection_are_not_in_flight() -> None:
    """Places that are taken and not served were never sent: less load than was asked for is no measurement."""
    raw = closed_loop(Plan())
    waiting = np.flatnonzero(raw.requests["send"] > 0)[::2]
    late = edited(raw, send=(waiting, raw.requests["send"][waiting] + 0.3))
    assert "waited for a connection" in found(late)["in_flight"].message


def test_an_open_loop_that_waits_for_connections_is_late() -> None:
    """A request that is due and has no connection yet was not sent when it should have been."""
    raw, free = closed_loop(Plan()), Workload(arrival="open", request_rate=20, input_tokens=30, output_tokens=20)
    assert found(edited(raw, due=(slice(None), raw.requests["send"] - 1.0)), workload=free)["generator_late"].fatal
    assert "generator_late" not in found(raw, workload=free)


def test_a_few_that_are_served_again_and_again_do_not_stand_for_all() -> None:
    """Rate times latency must account for the places in flight: here a tenth of them is answered."""
    raw = closed_loop(Plan())
    many = msgspec.structs.replace(WORKLOAD, concurrency=80)
    busy = with_client(raw, in_flight=tuple((float(t), 80) for t in range(20)))
    waiting = busy.requests[busy.requests["state"] == CANCELLED][:1].repeat(72)
    waiting["send"], waiting["end"], waiting["chunks"] = 19.5, 20.0, 0
    crowd = msgspec.structs.replace(busy, requests=np.concatenate([busy.requests, waiting]))
    assert "10% of the 80" in found(crowd, workload=many)["starved"].message
