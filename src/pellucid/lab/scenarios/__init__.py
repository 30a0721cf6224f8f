"""The workloads: what is asked of a subject so that something can be seen. One file a family.

They scale with the block size, the pool and the longest request that a subject allows. With 79 usable
blocks of 16 tokens they have the numbers of the experiment this lab grew out of: prompts of 6, 56
and 337 tokens, a common prefix of 61, three requests of 346 side by side and a hole of 22 blocks.
"""

from pellucid.lab.scenarios.holes import ALONE, HOLES
from pellucid.lab.scenarios.leaving import LEAVING, LEAVING_IN_STEP
from pellucid.lab.scenarios.mixed import MIXED
from pellucid.lab.scenarios.placement import MOVED, PLACED, SHUFFLED
from pellucid.lab.scenarios.pressure import PRESSURE, ROOMY
from pellucid.lab.scenarios.reuse import REUSE
from pellucid.lab.scenarios.salts import SALTS
from pellucid.lab.scenarios.schedules import AHEAD, CHUNKED, IN_STEP, ONE_BY_ONE
from pellucid.lab.scenarios.sharing import SHARING, UNSHARED

SCENARIOS = (
    *(HOLES, MIXED, UNSHARED, ONE_BY_ONE),
    *(SHARING, ALONE, SALTS),
    *(REUSE, PRESSURE),
    ROOMY,
    IN_STEP,
    AHEAD,
    LEAVING,
    LEAVING_IN_STEP,
    CHUNKED,
    PLACED,
    SHUFFLED,
    MOVED,
)
"""Those of equal settings stand together, so that one engine can play them one after the other."""

__all__ = [
    "AHEAD",
    "ALONE",
    "CHUNKED",
    "HOLES",
    "IN_STEP",
    "LEAVING",
    "LEAVING_IN_STEP",
    "MIXED",
    "MOVED",
    "ONE_BY_ONE",
    "PLACED",
    "PRESSURE",
    "REUSE",
    "ROOMY",
    "SALTS",
    "SCENARIOS",
    "SHARING",
    "SHUFFLED",
    "UNSHARED",
]
