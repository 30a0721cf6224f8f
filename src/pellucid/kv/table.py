"""A request's block table: the physical blocks that hold its tokens, in order."""

from __future__ import annotations

import enum
import sys

from pellucid.kv.acts import Lookup
from pellucid.kv.block import Block
from pellucid.kv.identity import ROOT, identity

NEVER = sys.maxsize


class RequestStatus(enum.StrEnum):
    """Where a live request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"


class BlockTable:
    """What the KV manager knows of one live request.

    ``tokens`` is the request's own list of known token ids, read and never written here.
    ``slots`` is how many of its tokens have a slot: ``blocks[p // B]`` and ``p % B`` is where the
    KV of position ``p < slots`` is, or will be once the launched steps are done. The table holds
    exactly ``ceil(slots / B)`` blocks and only grows at its end, or is given up whole.
    ``cached_tokens`` is the prefix hit of the first admission, None before it.
    """

    __slots__ = (
        "block_size",
        "blocks",
        "cached_tokens",
        "capacity",
        "identities",
        "lookup",
        "name",
        "plain",
        "preemptions",
        "prompt_len",
        "publish_at",
        "published",
        "published_before_step",
        "published_in_step",
        "skip_lookup",
        "slots",
        "space",
        "status",
        "tokens",
    )

    def __init__(self, name: str, tokens: list[int], block_size: int, space: bytes, *, skip_lookup: bool) -> None:
        self.name = name
        self.tokens = tokens
        self.prompt_len = len(tokens)
        self.block_size = block_size
        self.space = space
        self.skip_lookup = skip_lookup
        self.status = RequestStatus.WAITING
        self.blocks: list[Block] = []
        self.capacity = 0
        self.slots = 0
        self.identities: list[bytes] = []
        self.plain = self.identities if not space else []
        self.published = 0
        self.publish_at = NEVER
        self.published_in_step = 0
        self.published_before_step = 0
        self.cached_tokens: int | None = None
        self.preemptions = 0
        self.lookup: Lookup | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(block.id for block in self.blocks)

    def chain(self, length: int) -> list[bytes]:
        """The identities of at least the first ``length`` blocks; all their tokens must be known."""
        self._extend(self.identities, length, self.space)
        return self.identities

    def plain_chain(self, length: int) -> list[bytes]:
        """The same without a namespace: how other namespaces' copies of these tokens are recognised."""
        self._extend(self.plain, length, b"")
        return self.plain

    def _extend(self, chain: list[bytes], length: int, space: bytes) -> None:
        size = self.block_size
        for i in range(len(chain), length):
            parent = chain[-1] if chain else ROOT
            chain.append(identity(parent, self.tokens[i * size : (i + 1) * size], space))
