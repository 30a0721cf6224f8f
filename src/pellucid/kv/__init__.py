"""Who owns which block: the accounting of KV memory, without a byte of the memory itself.

Pure Python; the engine, the simulator and every viewer use it as it is.
"""

from pellucid.kv.block import BlockState
from pellucid.kv.explain import Explanation
from pellucid.kv.journal import Journal, first_difference
from pellucid.kv.manager import KVManager
from pellucid.kv.policy import REUSE_POLICIES
from pellucid.kv.snapshot import Snapshot

__all__ = ["REUSE_POLICIES", "BlockState", "Explanation", "Journal", "KVManager", "Snapshot", "first_difference"]
