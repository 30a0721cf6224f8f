"""Why a prefix hit or missed, in a sentence."""

from __future__ import annotations

from msgspec import Struct

from pellucid.kv.acts import Lookup, Miss, MissReason


class Explanation(Struct, frozen=True):
    """What one request's last admission asked of the prefix index and got.

    ``lookup`` is None for a request that has not been admitted, or with prefix caching off.
    ``str()`` of it is the answer in prose.
    """

    request: str
    prefix_caching: bool
    block_size: int
    lookup: Lookup | None
    ended: bool = False

    @property
    def hit(self) -> int:
        """Tokens found, 0 if nothing was asked."""
        return self.lookup.hit if self.lookup else 0

    def __str__(self) -> str:
        if not self.prefix_caching:
            return f"{self.request}: prefix caching is off (enable_prefix_caching=False), so nothing was asked."
        if self.lookup is None:
            when = "never admitted" if self.ended else "not admitted yet"
            return f"{self.request}: {when}, so nothing has been asked."
        again = f", {self.lookup.kind}" if self.lookup.kind != "first" else ""
        head = (
            f"{self.request}: asked {self.lookup.asked} tokens, hit {self.lookup.hit} (step {self.lookup.step}{again})"
        )
        reasons = [self._reason(miss) for miss in self.lookup.missed]
        return "; ".join([head, *reasons]) + "."

    def _reason(self, miss: Miss) -> str:
        count = -(-miss.tokens // self.block_size)
        last = miss.block + count - 1
        where = f"block {miss.block}" if count == 1 else f"blocks {miss.block}-{last}"
        be = "was" if count == 1 else "were"
        match miss.reason:
            case MissReason.EVICTED:
                return f"{where} {be} evicted at step {miss.step} for {miss.by}"
            case MissReason.WITHDRAWN:
                return f"{where} {be} withdrawn at step {miss.step}, as {miss.by} left before computing it"
            case MissReason.SHORT:
                rest = "token is" if miss.tokens == 1 else f"{miss.tokens} tokens are"
                return f"the last {rest} shorter than a block of {self.block_size}"
            case MissReason.LAST_BLOCK:
                return f"{where} {be} there, but at least one token must be computed"
            case MissReason.NAMESPACE:
                return f"{where} {be} there under another salt or adapter"
            case MissReason.BYPASS:
                return "the request asked not to read the cache"
            case _:
                return f"{where}: {miss.reason}"
