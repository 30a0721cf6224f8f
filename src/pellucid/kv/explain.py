"""Why a prefix hit or missed, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pellucid.kv.acts import Lookup, LookupKind, Miss, MissReason
from pellucid.lang import Sentence, clauses, say


class Explanation(Struct, frozen=True):
    """What one request's last admission asked of the prefix index and got.

    ``lookup`` is None for a request that has not been admitted, or with prefix caching off.
    ``seen`` is False if it was admitted before anybody looked. ``ages`` are the seconds since each step that is
    still remembered: then it says how long ago, not in which step. ``str()`` of it is the answer in prose.
    """

    request: str
    prefix_caching: bool
    block_size: int
    lookup: Lookup | None
    ended: bool = False
    seen: bool = True
    ages: Mapping[int, float] = {}

    @property
    def hit(self) -> int:
        """Tokens found, 0 if nothing was asked."""
        return self.lookup.hit if self.lookup else 0

    def __str__(self) -> str:
        return str(self.sentence)

    @property
    def sentence(self) -> str:
        """The answer in prose, to be told in any language."""
        if not self.prefix_caching:
            return say(
                "{name}: prefix caching is off (enable_prefix_caching=False), so nothing was asked.", name=self.request
            )
        if self.lookup is None:
            if not self.seen:
                return say("{name}: its admission was not seen, so what it asked for is not known.", name=self.request)
            if self.ended:
                return say("{name}: never admitted, so nothing has been asked.", name=self.request)
            return say("{name}: not admitted yet, so nothing has been asked.", name=self.request)
        head = say(
            "{name}: asked {asked} tokens, hit {hit} ({when})",
            name=self.request,
            asked=self.lookup.asked,
            hit=self.lookup.hit,
            when=self._when(self.lookup),
        )
        return say("{clauses}.", clauses=clauses([head, *map(self._reason, self.lookup.missed)]))

    def _when(self, lookup: Lookup) -> str:
        match lookup.kind:
            case LookupKind.FIRST:
                return say("step {step}", step=lookup.step)
            case LookupKind.RESUME:
                return say("step {step}, resume", step=lookup.step)
            case LookupKind.BYPASS:
                return say("step {step}, bypass", step=lookup.step)

    def _reason(self, miss: Miss) -> str:
        if miss.reason is MissReason.BYPASS:
            return say("the request asked not to read the cache")
        if miss.reason is MissReason.SHORT:
            if miss.tokens == 1:
                return say("the last token is shorter than a block of {size}", size=self.block_size)
            return say("the last {n} tokens are shorter than a block of {size}", n=miss.tokens, size=self.block_size)
        count = -(-miss.tokens // self.block_size)
        last = miss.block + count - 1
        moment = self._moment(miss.step)
        if count == 1:
            return _of_one(miss, say("block {n}", n=last), moment)
        return _of_several(miss, say("blocks {first}-{last}", first=miss.block, last=last), moment)

    def _moment(self, step: int | None) -> Sentence:
        if step is not None and step in self.ages:
            return say("{time} ago", time=lasting(self.ages[step]))
        return say("at step {step}", step=step)


def lasting(seconds: float) -> Sentence:
    """A length of time as people say it, in whole seconds, minutes, hours or days."""
    if seconds < 120:
        return say("{n:.0f} s", n=max(0.0, seconds))
    if seconds < 2 * 3600:
        return say("{n:.0f} min", n=seconds / 60)
    if seconds < 48 * 3600:
        return say("{n:.0f} h", n=seconds / 3600)
    return say("{n:.0f} days", n=seconds / 86400)


def _of_one(miss: Miss, block: Sentence, moment: Sentence) -> Sentence:
    match miss.reason:
        case MissReason.EVICTED:
            return say("{block} was evicted {moment} for {by}", block=block, moment=moment, by=miss.by)
        case MissReason.WITHDRAWN:
            return say(
                "{block} was withdrawn {moment}, as {by} left before computing it",
                block=block,
                moment=moment,
                by=miss.by,
            )
        case MissReason.LAST_BLOCK:
            return say("{block} was there, but at least one token must be computed", block=block)
        case MissReason.NAMESPACE:
            return say("{block} was there under another salt or adapter", block=block)
        case _:
            return _never_there(miss, block)


def _of_several(miss: Miss, blocks: Sentence, moment: Sentence) -> Sentence:
    match miss.reason:
        case MissReason.EVICTED:
            return say("{blocks} were evicted {moment} for {by}", blocks=blocks, moment=moment, by=miss.by)
        case MissReason.WITHDRAWN:
            return say(
                "{blocks} were withdrawn {moment}, as {by} left before computing it",
                blocks=blocks,
                moment=moment,
                by=miss.by,
            )
        case MissReason.LAST_BLOCK:
            return say("{blocks} were there, but at least one token must be computed", blocks=blocks)
        case MissReason.NAMESPACE:
            return say("{blocks} were there under another salt or adapter", blocks=blocks)
        case _:
            return _never_there(miss, blocks)


def _never_there(miss: Miss, blocks: Sentence) -> Sentence:
    if miss.reason is MissReason.UNKNOWN:
        return say("{blocks}: unknown", blocks=blocks)
    return say("{blocks}: never seen", blocks=blocks)
