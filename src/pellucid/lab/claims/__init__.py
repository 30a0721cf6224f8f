"""The claims, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.errors import ConfigError
from pellucid.lab.claim import Claim
from pellucid.lab.claims.accounting import ACCOUNTING
from pellucid.lab.claims.batching import BATCHING
from pellucid.lab.claims.chunking import CHUNKING
from pellucid.lab.claims.contiguous import CONTIGUOUS
from pellucid.lab.claims.holes import HOLES_REUSED
from pellucid.lab.claims.isolation import ISOLATION
from pellucid.lab.claims.journal import JOURNAL
from pellucid.lab.claims.miss_ledger import MISS_LEDGER
from pellucid.lab.claims.placement import PLACEMENT
from pellucid.lab.claims.planning_ahead import PLANNING_AHEAD
from pellucid.lab.claims.pool_fixed import POOL_FIXED
from pellucid.lab.claims.preemption import PREEMPTION
from pellucid.lab.claims.reuse_order import REUSE_ORDER
from pellucid.lab.claims.sharing import PREFIX_SHARED
from pellucid.lab.claims.taken_as_used import TAKEN_AS_USED

CLAIMS = (
    *(POOL_FIXED, TAKEN_AS_USED, PREFIX_SHARED),
    *(HOLES_REUSED, CONTIGUOUS, PLACEMENT),
    *(REUSE_ORDER, ISOLATION),
    *(PREEMPTION, CHUNKING, BATCHING, PLANNING_AHEAD),
    *(MISS_LEDGER, ACCOUNTING, JOURNAL),
)

NUMBERS = {claim.id: number for number, claim in enumerate(CLAIMS, start=1)}
"""The number under which each is told, also when others are left out. A claim of one's own has none."""


def claims_named(ids: Sequence[str]) -> tuple[Claim, ...]:
    """The claims of these ``ids``, in the order in which they are told. Raises `ConfigError` for an unknown one."""
    for unknown in (each for each in ids if each not in NUMBERS):
        raise ConfigError(f"there is no claim {unknown!r}; the claims are {', '.join(NUMBERS)}.")
    return tuple(claim for claim in CLAIMS if claim.id in ids)
