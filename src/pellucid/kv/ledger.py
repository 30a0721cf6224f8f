"""The hit counters and the miss ledger: every queried token either hit or has one reason."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence, Sized
from itertools import groupby
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from pellucid.kv.acts import Lookup, LookupKind, Miss, MissReason
from pellucid.kv.snapshot import HitCount

REMEMBERED_LOSSES = 65_536


class Loss(NamedTuple):
    """Why a content can no longer be found, since when, and on whose account."""

    reason: MissReason
    step: int
    by: str


class Asking(Protocol):
    """Who asks the prefix index: a `BlockTable`, or a request of an observed engine."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def tokens(self) -> Sized:
        """As many as it asks for."""

    @property
    def space(self) -> bytes:
        """Its namespace, as the index knows it."""

    @property
    def skip_lookup(self) -> bool:
        """Whether it asked not to read the cache."""

    def chain(self, length: int) -> Sequence[bytes]:
        """The identities of its first ``length`` blocks, or more."""

    def plain_chain(self, length: int) -> Sequence[bytes]:
        """The same without its namespace."""


class Index(Protocol):
    """What can be found: a `PrefixIndex`, or what was seen of the cache of an observed engine."""

    def __contains__(self, identity: bytes) -> bool:
        """Whether a block with this identity can be found."""

    def elsewhere(self, plain: bytes, space: bytes) -> bool:
        """Whether another namespace than ``space`` holds the tokens that ``plain`` stands for."""


class MissLedger:
    """Counts lookups and explains their misses.

    It remembers the identities of the last ``remembered`` lost blocks. Once it has had to forget one,
    it no longer claims that anything was never seen: the reason becomes "unknown".
    """

    def __init__(self, index: Index, remembered: int = REMEMBERED_LOSSES) -> None:
        self._index = index
        self._remembered = remembered
        self._lost: OrderedDict[bytes, Loss] = OrderedDict()
        self._forgot = False
        self.hits: dict[LookupKind, HitCount] = {}
        self.missed: dict[MissReason, int] = {}
        self.evictions = 0

    def published(self, identity: bytes) -> None:
        """A block with this content can be found from now on."""
        self._lost.pop(identity, None)

    def evicted(self, identity: bytes, step: int, by: str) -> None:
        """A block with this content has been given up for the request ``by``."""
        self.evictions += 1
        self._lose(identity, Loss(MissReason.EVICTED, step, by))

    def withdrawn(self, identity: bytes, step: int, by: str) -> None:
        """A block with this content was not computed after all: its request ``by`` left before."""
        self._lose(identity, Loss(MissReason.WITHDRAWN, step, by))

    def _lose(self, identity: bytes, loss: Loss) -> None:
        self._lost[identity] = loss
        self._lost.move_to_end(identity)
        if len(self._lost) > self._remembered:
            self._lost.popitem(last=False)
            self._forgot = True

    def count(self, lookup: Lookup) -> None:
        count = self.hits.get(lookup.kind, HitCount())
        self.hits[lookup.kind] = HitCount(count.requests + 1, count.asked + lookup.asked, count.hit + lookup.hit)
        for miss in lookup.missed:
            self.missed[miss.reason] = self.missed.get(miss.reason, 0) + miss.tokens

    def explain(self, table: Asking, hit_blocks: int) -> tuple[Miss, ...]:
        """One reason for every known token of ``table`` after its first ``hit_blocks`` blocks."""
        size, asked = table.block_size, len(table.tokens)
        if table.skip_lookup:
            return (Miss(MissReason.BYPASS, asked, 0),)
        misses = [self._explain_block(table, block) for block in range(hit_blocks, asked // size)]
        if asked % size:
            misses.append(Miss(MissReason.SHORT, asked % size, asked // size))
        return tuple(_merge(misses))

    def _explain_block(self, table: Asking, block: int) -> Miss:
        identity = table.chain(block + 1)[block]
        size = table.block_size
        if identity in self._index:  # findable and yet not hit: it ends with the request's last token
            return Miss(MissReason.LAST_BLOCK, size, block)
        if (loss := self._lost.get(identity)) is not None:
            return Miss(loss.reason, size, block, loss.step, loss.by)
        if self._index.elsewhere(table.plain_chain(block + 1)[block], table.space):
            return Miss(MissReason.NAMESPACE, size, block)
        return Miss(MissReason.UNKNOWN if self._forgot else MissReason.NEVER_SEEN, size, block)


def _merge(misses: list[Miss]) -> Iterator[Miss]:
    """Neighbouring blocks that missed for the same reason become one entry."""
    for _, run in groupby(misses, key=lambda miss: (miss.reason, miss.step, miss.by)):
        first, *rest = run
        yield replace(first, tokens=first.tokens + sum(miss.tokens for miss in rest))
