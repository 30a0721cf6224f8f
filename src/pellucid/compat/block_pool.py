"""``block_pool``: vLLM's names for our blocks, each live and none of them writable."""

from __future__ import annotations

from pellucid.compat.engine import Engine
from pellucid.compat.uncovered import Part
from pellucid.kv import block as kv
from pellucid.kv.block import RESERVED_BLOCK

PATH = "llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool"


class Block(Part):
    """vLLM's ``KVCacheBlock``. Block 0 is its null block."""

    _path = f"{PATH}.blocks[i]"

    def __init__(self, block: kv.Block) -> None:
        self._block = block
        self.block_id = block.id
        self.is_null = block.id == RESERVED_BLOCK

    @property
    def ref_cnt(self) -> int:
        return self._block.owners

    @property
    def block_hash(self) -> bytes | None:
        """The identity of a findable block's content, else None."""
        content = self._block.content
        return content.identity if content else None

    def __repr__(self) -> str:
        return f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, is_null={self.is_null})"


class FreeBlockQueue(Part):
    """The reclaimable blocks, the next one to be given out first. A fenced block is not among them yet."""

    _path = f"{PATH}.free_block_queue"

    def __init__(self, pool: BlockPool, engine: Engine) -> None:
        self._pool = pool
        self._reclaimable = engine.scheduler.kv.pool.reclaimable

    @property
    def num_free_blocks(self) -> int:
        return len(self._reclaimable)

    def get_all_free_blocks(self) -> list[Block]:
        return [self._pool.blocks[block.id] for block in self._reclaimable]


class BlockPool(Part):
    _path = PATH

    def __init__(self, engine: Engine) -> None:
        self.blocks = [Block(block) for block in engine.scheduler.kv.pool.blocks]
        self.num_gpu_blocks = len(self.blocks)
        self.null_block = self.blocks[RESERVED_BLOCK]
        self.enable_caching = engine.options.enable_prefix_caching
        self.free_block_queue = FreeBlockQueue(self, engine)

    def get_num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """The share of the usable blocks that cannot be had now, from 0 to 1."""
        return 1.0 - self.get_num_free_blocks() / (self.num_gpu_blocks - 1)
