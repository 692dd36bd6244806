"""Tests of the raw records."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from autotune.errors import InputError, NightStopped
from autotune.load.records import CANCELLED, REQUESTS, Meta, RawRun, load, merge, save
from tests.load.synthetic import Plan, closed_loop


def assert_same(one: RawRun, other: RawRun) -> None:
    assert one.requests.dtype == other.requests.dtype
    assert one.requests.tobytes() == other.requests.tobytes()
    np.testing.assert_array_equal(one.chunk_times, other.chunk_times)
    np.testing.assert_array_equal(one.chunk_totals, other.chunk_totals)
    assert one.meta == other.meta


def test_records_come_back_as_written(tmp_path: Path) -> None:
    """Saved records load unchanged, and no partial file is left."""
    raw = closed_loop(Plan(seconds=3))
    save(raw, tmp_path / "raw-0.npz")
    assert_same(load(tmp_path / "raw-0.npz"), raw)
    assert [p.name for p in tmp_path.iterdir()] == ["raw-0.npz"]


@pytest.mark.parametrize(
    ("kind", "words"), [("full", "the disk is full: free some space"), ("folder", "a folder is in the place of a file")]
)
def test_records_that_cannot_be_written_stop_the_night(tmp_path: Path, kind: str, words: str) -> None:
    """With file and remedy; what was written of them does not take up the space that is missing."""
    part = tmp_path / "raw-0.npz.part"
    part.symlink_to("/dev/full") if kind == "full" else part.mkdir()
    with pytest.raises(NightStopped, match=rf"raw-0\.npz: cannot be written \(.*{words}"):
        save(closed_loop(Plan(seconds=1)), tmp_path / "raw-0.npz")
    assert [p.name for p in tmp_path.iterdir()] == ([] if kind == "full" else [part.name])


def test_an_empty_load_can_be_saved(tmp_path: Path) -> None:
    """A load without one request is a record too."""
    raw = RawRun(
        requests=np.empty(0, REQUESTS), chunk_times=np.empty(0), chunk_totals=np.empty(0, np.int64), meta=Meta()
    )
    save(raw, tmp_path / "r.npz")
    assert_same(load(tmp_path / "r.npz"), raw)
    assert len(raw.chunk_gains()) == 0


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    """A file that is no record raises an error with its name and a remedy."""
    path = tmp_path / "raw.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"raw\.npz: not a raw load record .*measure again"):
        load(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    """Records of another format version are not misread."""
    raw = closed_loop(Plan(seconds=1))
    save(msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, format=99)), tmp_path / "r.npz")
    with pytest.raises(InputError, match="format 99"):
        load(tmp_path / "r.npz")


def test_merged_parts_keep_each_request_with_its_chunks() -> None:
    """Two workers' records, merged, hold all requests by send time, each with its own chunks and reason."""
    whole = closed_loop(Plan(seconds=4, per_chunk=3))
    odd = whole.requests["index"] % 2 == 1
    parts = []
    for chosen, reasons in ((odd, ("", "a", "b")), (~odd, ("", "b"))):
        table = whole.requests[chosen].copy()
        table["reason"][0] = len(reasons) - 1
        rows = chosen[whole.chunk_owner]
        meta = Meta(reasons=reasons)
        parts.append(
            RawRun(
                requests=table, chunk_times=whole.chunk_times[rows], chunk_totals=whole.chunk_totals[rows], meta=meta
            )
        )
    merged = merge(parts, whole.meta)
    assert merged.meta.reasons == ("", "a", "b")
    assert sorted(merged.requests["reason"].tolist())[-2:] == [2, 2]
    order = np.argsort(whole.requests["send"], kind="stable")
    np.testing.assert_array_equal(merged.requests["index"], whole.requests["index"][order])
    np.testing.assert_array_equal(merged.chunk_times, whole.chunk_times)
    np.testing.assert_array_equal(merged.chunk_totals, whole.chunk_totals)


def test_gains_sum_to_the_tokens() -> None:
    """The gains of a request's chunks add up to its output tokens, cut-off requests included."""
    raw = closed_loop(Plan(seconds=5, per_chunk=3))
    sums = np.bincount(raw.chunk_owner, weights=raw.chunk_gains(), minlength=len(raw.requests))
    np.testing.assert_array_equal(sums, raw.requests["output_tokens"])
    assert (raw.requests["state"] == CANCELLED).sum() == 8
