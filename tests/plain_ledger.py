"""Why a lookup missed, worked out again from the journal and the requests' tokens alone."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from pellucid.engine.sequence import Sequence
from pellucid.kv import acts
from pellucid.kv.acts import Miss, MissReason
from pellucid.kv.identity import ROOT, identity, namespace


class Prefix(NamedTuple):
    """What a block holds: the whole prefix up to its end, in a namespace."""

    space: bytes
    tokens: tuple[int, ...]


class PlainLedger:
    """Follows the acts in order. It remembers every loss, so it never says "unknown"."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._holds: dict[int, Prefix] = {}
        self._identities: dict[bytes, Prefix] = {}
        self._lost: dict[Prefix, tuple[MissReason, int, str]] = {}

    def follow(self, act: acts.AnyAct, sequence: Sequence | None) -> None:
        """Take one act about ``sequence`` into account; a lookup must say what is expected of it."""
        if isinstance(act, acts.Publish):
            assert sequence is not None
            self._learn(sequence)
            for block, key in zip(act.blocks, act.identities, strict=True):
                self._holds[block] = self._identities[key]
                self._lost.pop(self._holds[block], None)
        elif isinstance(act, acts.Evict):
            for block in act.blocks:
                self._lost[self._holds.pop(block)] = (MissReason.EVICTED, act.step, act.request)
        elif isinstance(act, acts.Unpublish):
            for block in act.blocks:
                self._lost[self._holds.pop(block)] = (MissReason.WITHDRAWN, act.step, act.request)
        elif isinstance(act, acts.Move):
            if act.block in self._holds:
                self._holds[act.to] = self._holds.pop(act.block)
        elif isinstance(act, acts.Lookup):
            assert sequence is not None
            assert act.missed == self.misses(act, sequence)
            assert all(  # only a prompt's very last block is there and yet not used
                miss.tokens == self._size and (miss.block + 1) * self._size == act.asked
                for miss in act.missed
                if miss.reason is MissReason.LAST_BLOCK
            )

    def _learn(self, sequence: Sequence) -> None:
        space, parent = self._space(sequence), ROOT
        for end in range(self._size, len(sequence.tokens) + 1, self._size):
            parent = identity(parent, sequence.tokens[end - self._size : end], space)
            self._identities[parent] = Prefix(space, tuple(sequence.tokens[:end]))

    def _space(self, sequence: Sequence) -> bytes:
        return namespace(sequence.request.salt, sequence.request.adapter)

    def misses(self, lookup: acts.Lookup, sequence: Sequence) -> tuple[Miss, ...]:
        size, asked, space = self._size, lookup.asked, self._space(sequence)
        if sequence.request.sampling.skip_reading_prefix_cache:
            return (Miss(MissReason.BYPASS, asked, 0),)
        found = []
        for block in range(lookup.hit // size, asked // size):
            found.append(self._miss(Prefix(space, tuple(sequence.tokens[: (block + 1) * size])), block))
        if asked % size:
            found.append(Miss(MissReason.SHORT, asked % size, asked // size))
        runs = [list(run) for _, run in groupby(found, key=lambda miss: (miss.reason, miss.step, miss.by))]
        return tuple(
            Miss(run[0].reason, sum(miss.tokens for miss in run), run[0].block, run[0].step, run[0].by) for run in runs
        )

    def _miss(self, prefix: Prefix, block: int) -> Miss:
        size, held = self._size, set(self._holds.values())
        if prefix in held:
            return Miss(MissReason.LAST_BLOCK, size, block)
        if prefix in self._lost:
            reason, step, by = self._lost[prefix]
            return Miss(reason, size, block, step, by)
        if any(other.tokens == prefix.tokens for other in held):
            return Miss(MissReason.NAMESPACE, size, block)
        return Miss(MissReason.NEVER_SEEN, size, block)
