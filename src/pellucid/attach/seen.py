"""A live request of an observed vLLM, as far as it has been seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pellucid.attach.findable import Findable
from pellucid.attach.layout import SLIDING_WINDOW, Layout
from pellucid.kv.acts import Lookup
from pellucid.kv.identity import namespace, space_id
from pellucid.kv.table import RequestStatus


class SeenTable:
    """What one request holds in one KV group: its ``blocks``; the first ``published`` were seen to be findable.

    ``size`` is the group's block size; ``windowed`` says whether blocks are given up at its front.
    """

    __slots__ = ("blocks", "group", "published", "size", "windowed")

    def __init__(self, group: int, size: int, windowed: bool) -> None:
        self.group, self.size, self.windowed = group, size, windowed
        self.blocks: list[int] = []
        self.published = 0


class Seen:
    """One request, with a table for each KV group.

    ``order`` counts admissions, ``look_at`` is the next step in which it may fill a block.
    """

    __slots__ = (
        "_plain",
        "block_size",
        "cached_tokens",
        "id",
        "look_at",
        "lookup",
        "name",
        "order",
        "preemptions",
        "request",
        "skip_lookup",
        "space",
        "status",
        "tables",
    )

    def __init__(self, request: Any, name: str, layout: Layout) -> None:
        self.id: str = request.request_id
        self.name = name
        self.request = request
        self.block_size = layout.groups[0].block_size
        adapter = getattr(request, "lora_request", None)
        lora = None if adapter is None else (str(adapter.lora_name), str(getattr(adapter, "lora_int_id", "")))
        self.space = space_id(namespace(getattr(request, "cache_salt", None), lora))
        self.skip_lookup = bool(getattr(request, "skip_reading_prefix_cache", False))
        self.status = RequestStatus.WAITING
        self.tables = [
            SeenTable(number, group.block_size, group.kind == SLIDING_WINDOW)
            for number, group in enumerate(layout.groups)
        ]
        self.cached_tokens: int | None = None
        self.preemptions: int = getattr(request, "num_preemptions", 0)
        self.lookup: Lookup | None = None
        self.order = 0
        self.look_at = 0
        self._plain: list[bytes] = []

    @property
    def running(self) -> bool:
        return self.status is RequestStatus.RUNNING

    def admitted(self, computed: int, order: int) -> None:
        self.status = RequestStatus.RUNNING
        self.order = order
        if self.cached_tokens is None:
            self.cached_tokens = computed

    def preempted(self) -> None:
        self.status = RequestStatus.PREEMPTED
        self.preemptions += 1
        self.look_at = 0

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The block tables, one for each KV group."""
        return tuple([tuple(table.blocks) for table in self.tables])

    def emptied(self) -> None:
        for table in self.tables:
            table.blocks, table.published = [], 0

    def plain_chain(self, length: int) -> Sequence[bytes]:
        """What the tokens of its first ``length`` blocks would be known by without any salt or adapter.

        The interpreter's own hash will do: it only recognises the same tokens in another namespace, in this process.
        Token ids are not kept.
        """
        chain, size = self._plain, self.block_size
        if len(chain) < length:
            tokens = self.request.all_token_ids
            for i in range(len(chain), length):
                parent = chain[-1] if chain else b""
                value = hash((parent, *tokens[i * size : (i + 1) * size]))
                chain.append(value.to_bytes(8, "big", signed=True))
        return chain

    def ask(self, layout: Layout, index: Findable) -> Question:
        """Its lookup in the prefix cache, for the miss ledger."""
        return Question(self, layout, index)


class Question:
    """What a lookup of one request asks for, as `pellucid.kv.ledger.MissLedger` wants to know it."""

    def __init__(self, seen: Seen, layout: Layout, index: Findable) -> None:
        self.block_size = seen.block_size
        self.space = seen.space
        self.skip_lookup = seen.skip_lookup
        self.tokens = range(seen.request.num_tokens)  # only how many there are
        # without a namespace no tokens are elsewhere, and then none are looked at
        self.plain_chain = seen.plain_chain if index.namespaces else self.chain
        first = layout.hashes(seen.request)
        chain = [self._missing(each, index, len(layout.groups)) for each in first]
        self._chain = chain + [b""] * (len(self.tokens) // self.block_size - len(chain))

    def chain(self, length: int) -> Sequence[bytes]:
        """The identities of its blocks; where there are several KV groups, in the first in which a block is missing."""
        return self._chain

    @staticmethod
    def _missing(identity: bytes, index: Findable, groups: int) -> bytes:
        for group in range(groups):
            each = identity[:-4] + group.to_bytes(4, "big")
            if each not in index:
                return each
        return identity
