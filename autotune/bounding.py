"""The bounds of a study's search, once the baseline's server has told what it has."""

from __future__ import annotations

import msgspec

from autotune.brief import Brief, expected_kv
from autotune.search.region import Region
from autotune.space.bounds import BoundInputs, Frozen, derive_bounds, frozen_parameters
from autotune.space.kv import room_of, stated_kv_capacity
from autotune.space.versions import release
from autotune.values import Effective


def derive_region(brief: Brief, effective: Effective) -> Region:
    """The bounds that follow from what the baseline's server reported. Raises InputError where none are left."""
    return Region(space=brief.space, bounds=derive_bounds(brief.space, _reported(brief, effective)))


def frozen_since(brief: Brief, effective: Effective) -> list[Frozen]:
    """Parameters that are not searched because the server is of a version, unknown until then, that ignores them."""
    before = brief.frozen()
    return [found for found in frozen_parameters(brief.space, _reported(brief, effective)) if found not in before]


def _reported(brief: Brief, effective: Effective) -> BoundInputs:
    """What bounds are derived from, with the server's word on its KV capacity, and on its version if need be."""
    room = room_of(brief.cache_parameter(), effective)
    kv = stated_kv_capacity(effective.kv_tokens, "server", room) if effective.kv_tokens else expected_kv(brief)
    inputs = brief.bound_inputs(kv)
    if inputs.version or not release(effective.version):
        return inputs
    return msgspec.structs.replace(inputs, version=effective.version)
