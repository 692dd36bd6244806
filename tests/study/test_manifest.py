"""What may change between nights, and what may not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.study.file import Budget, EngineSpec, ModelSpec, SearchSpec, SpaceSpec, Study, Timeouts, Workload
from autotune.study.manifest import Manifest, differences, fingerprint, flatten

STUDY = Study(
    name="night",
    engine=EngineSpec(command=["sglang", "--tp", "8"], env={"A": "1"}),
    model=ModelSpec(path="/models/x"),
    space=SpaceSpec(parameters=["limit"]),
    workload=Workload(concurrency=64, output_tokens=128),
)


def changed(**fields: Any) -> list[str]:
    """What the manifest says about a study with other fields."""
    return differences(fingerprint(STUDY), fingerprint(msgspec.structs.replace(STUDY, **fields)))


def test_the_same_study_goes_on() -> None:
    """Nothing differs from itself."""
    assert changed() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": Budget(trials=99)},
        {"timeouts": Timeouts(start_s=5.0)},
        {"search": SearchSpec(sampler="random")},
        {"description": "other"},
        {"seed": 9},
        {"workload": Workload(concurrency=64, output_tokens=128, workers=3)},
        {"engine": EngineSpec(command=["sglang", "--tp", "8"], env={"A": "1"}, pass_env=["HF_TOKEN"])},
    ],
)
def test_settings_of_the_tuner_may_change(fields: dict[str, Any]) -> None:
    """More trials, more patience, another sampler: the measurements stay comparable."""
    assert changed(**fields) == []


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {"workload": Workload(concurrency=64, output_tokens=256)},
            ["workload.output_tokens: 128 -> 256"],
        ),
        (
            {"engine": EngineSpec(command=["sglang", "--tp", "4"], env={})},
            ['engine.command[2]: "8" -> "4"', 'engine.env.A: "1" -> (absent)'],
        ),
        ({"model": ModelSpec(path="/models/y")}, ['model.path: "/models/x" -> "/models/y"']),
        ({"space": SpaceSpec(parameters=["limit", "x"])}, ['space.parameters[1]: (absent) -> "x"']),
    ],
)
def test_what_is_measured_may_not(fields: dict[str, Any], lines: list[str]) -> None:
    """Each difference is one line with the key, the old and the new value."""
    assert changed(**fields) == lines


def test_facts_that_are_unknown_on_one_side_are_no_difference() -> None:
    """An engine that cannot be inspected today is not another engine."""
    old = fingerprint(STUDY, {"engine_version": "0.5.8", "model_digest": "a"})
    assert differences(old, fingerprint(STUDY, {"engine_version": ""})) == []
    assert differences(old, fingerprint(STUDY, {"engine_version": "0.5.9"})) == [
        'found.engine_version: "0.5.8" -> "0.5.9"'
    ]


def test_a_manifest_survives_json() -> None:
    """8 and 8.0 are one setting, whichever JSON makes of them."""
    manifest = Manifest(study="night", created_at="now", autotune_version="1", fingerprint=fingerprint(STUDY))
    again = msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
    assert differences(manifest.fingerprint, again.fingerprint) == []
    assert differences({"x": 8}, {"x": 8.0}) == []
    assert differences({"x": True}, {"x": 1}) == ["x: true -> 1"]


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), TREES))
def test_flattened_trees_have_scalars_only(tree: dict[str, Any]) -> None:
    """Every leaf has one key."""
    leaves = flatten(tree)
    assert len({key for key, _ in leaves}) == len(leaves)
    assert all(value is None or isinstance(value, bool | int | float | str) for _, value in leaves)


def test_a_setting_that_is_newer_than_the_manifest_is_no_difference() -> None:
    """A manifest without a key that is at its default today still fits; at another value it does not."""
    study = Study(name="s", engine=EngineSpec(command=["serve"]))
    now = fingerprint(study)
    before = {key: value for key, value in now.items() if key != "workload.failed_limit"}
    assert differences(before, now) == []
    assert differences(before, {**now, "workload.failed_limit": 0.2}) == ["workload.failed_limit: 0.01 -> 0.2"]
