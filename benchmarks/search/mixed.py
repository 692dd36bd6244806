"""The simulator's closed loop with requests of mixed lengths, in groups so that it stays fast.

Requests of one length march in step: throughput then jumps by several per cent where a generation does not quite fit,
at single values of the running limit. No real load does that, and a search should not be judged by such needles.
"""

from __future__ import annotations

from functools import lru_cache

from autotune.sim.memory import Resolved, resolve
from autotune.sim.requests import SimRequest
from autotune.sim.settings import SimSettings
from autotune.sim.virtual import SteadyState, VirtualLoad, _ClosedLoop, lowered
from autotune.values import ParamValue

GROUPS = 24
SHORTEST, LONGEST = 0.5, 1.5
# Lengths are taken in turn from an even spread with a step that is coprime to it: a mixture without chance.
SPREAD, STRIDE = 41, 17


class _MixedLoop(_ClosedLoop):
    def __init__(self, settings: SimSettings, resolved: Resolved, load: VirtualLoad) -> None:
        super().__init__(settings, resolved, load)
        self._drawn = 0

    def _arrive(self, count: int) -> None:
        size = max(1, self.load.concurrency // GROUPS)
        while count > 0:
            taken = min(size, count)
            prompt, answer = self._times(self.load.input_tokens, 1), self._times(self.load.output_tokens, STRIDE)
            self.batcher.submit(SimRequest(prompt, answer, count=taken), self.now_s)
            self._drawn += 1
            count -= taken

    def _times(self, tokens: int, stride: int) -> int:
        place = (self._drawn * stride) % SPREAD / (SPREAD - 1)
        return max(1, round(tokens * (SHORTEST + (LONGEST - SHORTEST) * place)))


@lru_cache(maxsize=65536)
def mixed_state(
    settings: SimSettings, flags: frozenset[tuple[str, ParamValue]], load: VirtualLoad, live_limit: int = 0
) -> SteadyState:
    """The figures without noise. The flags must not run out of memory; ``live_limit`` as in ``steady_state``."""
    return _MixedLoop(settings, lowered(resolve(settings, dict(flags)), live_limit), load).run()
