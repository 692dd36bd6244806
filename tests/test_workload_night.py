"""A study with a dataset: bounds from its lengths, its content in the fingerprint, and a trial that asks it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.brief import read_brief
from autotune.choosing import strategy
from autotune.errors import InputError
from autotune.load.records import load
from autotune.night import open_night
from autotune.planning import plan_night
from autotune.sameness import found_facts, resolve
from autotune.server.cancel import Waiting
from autotune.space import plan_text
from tests.load.dataset.builders import lines
from tests.nights import Night, autotune, records

KEYS = 'kind = "jsonl"\ndataset = "data.jsonl"\nroute = "completions"'
ENTRIES = [{"prompt": f"request number {n} " + "word " * n, "output_tokens": 4 + n % 7} for n in range(400)]


def study(folder: Path, workload: str = KEYS) -> Path:
    """A short study on the dataset."""
    path = Night(workload=workload, trials=1, flags=("--disable-radix-cache",)).write(folder)
    text = path.read_text()
    for line in ("input_tokens = 8\n", "output_tokens = 8\n"):
        text = text.replace(line, "")
    path.write_text(text)
    return path


def test_bounds_and_sampler_use_the_lengths_of_the_dataset(tmp_path: Path) -> None:
    """The plan counts requests by the file's own lengths and says whose they are."""
    lines(tmp_path, [{"input_tokens": 100, "output_tokens": 50}, {"input_tokens": 300, "output_tokens": 50}])
    brief = read_brief(study(tmp_path))
    kv = plan_night(brief).kv
    assert kv is not None
    assert (kv.full_length_tokens, kv.mean_tokens) == (350, 225)
    assert strategy(brief).request_tokens == 225
    assert "2 requests of data.jsonl" in "\n".join(plan_text.lines(plan_night(brief)))


def test_another_content_is_another_study(tmp_path: Path) -> None:
    """A file that moved is the same study; one whose requests changed is refused."""
    lines(tmp_path, ENTRIES)
    path = study(tmp_path)
    brief = read_brief(path)
    with open_night(brief, lambda _: None, Waiting()):
        pass
    (tmp_path / "data.jsonl").rename(tmp_path / "moved.jsonl")
    path.write_text(path.read_text().replace("data.jsonl", "moved.jsonl"))
    assert resolve(read_brief(path)).study.name == "short"
    assert found_facts(read_brief(path)) == found_facts(brief)
    lines(tmp_path, ENTRIES[:-1], "moved.jsonl")
    with pytest.raises(InputError, match=r"the study has changed since its first night: found.dataset"):
        resolve(read_brief(path))


def test_a_bad_dataset_stops_before_anything_starts(tmp_path: Path) -> None:
    """One line with file, line and remedy, exit code 2, no folder."""
    lines(tmp_path, [{"prompt": "a", "output_tokens": 1}, {"prompt": "b"}])
    done = autotune("tune", study(tmp_path))
    assert done.returncode == 2
    assert "data.jsonl: line 2: says no length of its reply; add output_tokens" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "short").exists()


def test_a_night_asks_the_dataset(tmp_path: Path) -> None:
    """The baseline is measured on the file's texts by the completions route."""
    lines(tmp_path, ENTRIES)
    path = study(tmp_path)
    done = autotune("tune", path)
    assert done.returncode == 0, done.stderr
    assert [type(result.outcome).__name__ for result in records(path).results()] == ["Measured"]
    assert (tmp_path / "short" / "dataset" / "dataset.json").exists()
    assert json.loads(autotune("status", path, "--json").stdout)["settled"] == 1


def test_the_loads_of_one_start_go_on_in_the_dataset(tmp_path: Path) -> None:
    """The second level asks what the first has not, so that no prompt comes twice to a server before the file ends."""
    lines(tmp_path, [{"prompt": f"p{n}", "output_tokens": 2 + n % 3} for n in range(9000)])
    done = autotune("tune", study(tmp_path, KEYS + "\nlevels = [40, 160]"))
    assert done.returncode == 0, done.stderr
    loads = tmp_path / "short" / "trials" / "0000" / "load"
    first, second = (load(loads / f"raw-{level}.npz").requests["index"] for level in (40, 160))
    assert len(first) > 40
    assert second.min() == first.max() + 1
    assert len(set(second.tolist())) == len(second)
