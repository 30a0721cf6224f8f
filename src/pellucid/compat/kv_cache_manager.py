"""``kv_cache_manager``, and what stands between it and the block tables: one group, so one manager of one type."""

from __future__ import annotations

from pellucid.compat.block_pool import Block, BlockPool
from pellucid.compat.engine import Engine
from pellucid.compat.tables import RequestBlocks
from pellucid.compat.uncovered import Part

PATH = "llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager"


class SingleTypeManager(Part):
    _path = f"{PATH}.coordinator.single_type_managers[0]"

    def __init__(self, engine: Engine, pool: BlockPool) -> None:
        self.block_size = engine.options.block_size
        self.block_pool = pool
        self.req_to_blocks = RequestBlocks(engine, pool)


class Coordinator(Part):
    _path = f"{PATH}.coordinator"

    def __init__(self, engine: Engine, pool: BlockPool) -> None:
        self.block_pool = pool
        self.single_type_managers = (SingleTypeManager(engine, pool),)


class KVCacheBlocks(Part):
    """The blocks of one request, one list for each KV group, of which there is one."""

    _path = f"{PATH}.get_blocks(id)"

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = (blocks,)

    def get_block_ids(self) -> tuple[list[int]]:
        return ([block.block_id for block in self.blocks[0]],)


class KVCacheManager(Part):
    _path = PATH

    def __init__(self, engine: Engine) -> None:
        self.block_pool = BlockPool(engine)
        self.coordinator = Coordinator(engine, self.block_pool)
        self.enable_caching = engine.options.enable_prefix_caching
        self._tables = self.coordinator.single_type_managers[0].req_to_blocks

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """``request_id`` is the internal one. No blocks for a request that holds none, or that is unknown."""
        return KVCacheBlocks(self._tables[request_id])

    def get_block_ids(self, request_id: str) -> tuple[list[int]]:
        return self.get_blocks(request_id).get_block_ids()

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()
