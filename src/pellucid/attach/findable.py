"""What can be found in the prefix cache of an observed vLLM, as far as it was seen."""

from __future__ import annotations

from msgspec import Struct


class Origin(Struct, frozen=True, gc=False):
    """What the tokens of a block would be known by without its namespace, and the namespace."""

    plain: bytes
    space: bytes


class Findable:
    """The contents of the blocks of one pool: an identity each, or None.

    The miss ledger asks it. Where the tokens of a block came from is told apart and may be told later (`recognise`):
    that is only of interest once somebody asks from within another namespace.
    """

    def __init__(self, blocks: int) -> None:
        self.contents: list[bytes | None] = [None] * blocks
        self.namespaces = False  # whether anybody with a salt or an adapter was ever seen
        self._holders: dict[bytes, int] = {}  # identity -> how many blocks hold it
        self._origins: dict[int, Origin] = {}  # by block
        self._spaces: dict[bytes, dict[bytes, int]] = {}  # plain identity -> namespace -> blocks

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._holders

    def elsewhere(self, plain: bytes, space: bytes) -> bool:
        """Whether another namespace than ``space`` is known to hold the tokens that ``plain`` stands for."""
        return any(other != space for other in self._spaces.get(plain, ()))

    def add(self, block: int, identity: bytes) -> None:
        self.contents[block] = identity
        self._holders[identity] = self._holders.get(identity, 0) + 1

    def discard(self, block: int) -> bytes:
        """``block`` can no longer be found. Returns what it was found under."""
        identity = self.contents[block]
        assert identity is not None
        self.contents[block] = None
        self._holders[identity] -= 1
        if not self._holders[identity]:
            del self._holders[identity]
        if (origin := self._origins.pop(block, None)) is not None:
            spaces = self._spaces[origin.plain]
            spaces[origin.space] -= 1
            if not spaces[origin.space]:
                del spaces[origin.space]
                if not spaces:
                    del self._spaces[origin.plain]
        return identity

    def recognise(self, block: int, origin: Origin) -> None:
        """What ``block`` holds came from there; if that is known already, it stays as it is."""
        if block not in self._origins:
            self._origins[block] = origin
            spaces = self._spaces.setdefault(origin.plain, {})
            spaces[origin.space] = spaces.get(origin.space, 0) + 1
