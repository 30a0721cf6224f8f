"""The claims, in the order in which they are told."""

from pellucid.lab.claims.accounting import ACCOUNTING
from pellucid.lab.claims.holes import HOLES_REUSED
from pellucid.lab.claims.pool_fixed import POOL_FIXED
from pellucid.lab.claims.sharing import PREFIX_SHARED
from pellucid.lab.claims.taken_as_used import TAKEN_AS_USED

CLAIMS = (POOL_FIXED, TAKEN_AS_USED, PREFIX_SHARED, HOLES_REUSED, ACCOUNTING)
