"""Tests of the generator's self-test."""

import msgspec
import pytest

from autotune.load.selftest import Headroom, double, self_test
from autotune.study.file import Workload

SEEN = Headroom(
    workers=2,
    asked_tok_s=1000.0,
    seen_tok_s=990.0,
    cpu_share=0.1,
    lag_typical_s=0.001,
    lag_max_s=0.01,
    capacity_tok_s=9000.0,
    headroom=9.0,
    ttft_error_s=0.001,
    itl_error_s=0.001,
)


@pytest.mark.parametrize("stream", [True, False])
def test_the_study_runs_on_the_double(stream: bool) -> None:
    """A small load is carried with room to spare, and says so."""
    seen = self_test(Workload(concurrency=4, output_tokens=10, stream=stream), rate_tok_s=100.0, seconds=2.0)
    assert seen.workers == 1
    assert 20 < seen.seen_tok_s < 120
    assert seen.capacity_tok_s > 100
    assert (seen.ttft_error_s is not None) == stream


def test_verdict_in_words() -> None:
    """Little room names the remedy, enough room says how much."""
    assert "9.0 times the study's rate: enough" in str(SEEN)
    assert "raise workload.workers" in str(msgspec.structs.replace(SEEN, headroom=1.1))


def test_the_double_is_stopped() -> None:
    """Nothing listens any more once the double is left."""
    import httpx

    with double(0.01, 0.01) as url:
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/health", trust_env=False)
