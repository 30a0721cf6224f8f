"""What makes two blocks equal: a SHA-256 chain over parent, tokens and namespace.

A block's identity covers its own tokens and, through its parent, every token before it, so one
equal identity means an equal prefix. The hash is a strong one because a collision would show one
request another request's memory.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

ROOT = hashlib.sha256(b"pellucid.block.root").digest()
"""The parent of every first block."""

NO_NAMESPACE = b""


def namespace(salt: str | None, adapter: tuple[str, str] | None) -> bytes:
    """Salt and adapter (name, version) as one byte string, empty if there is neither.

    Each part is tagged and framed by its length, so no two different pairs encode alike.
    """
    parts = [(b"s", salt)] if salt is not None else []
    if adapter is not None:
        parts += [(b"a", adapter[0]), (b"v", adapter[1])]
    encoded = [(tag, text.encode("utf-8", "surrogatepass")) for tag, text in parts]
    return b"".join(tag + struct.pack("<Q", len(text)) + text for tag, text in encoded)


def space_id(space: bytes) -> bytes:
    """A namespace as the journal knows it: hashed, and empty if there is none."""
    return hashlib.sha256(space).digest() if space else space


def identity(parent: bytes, tokens: Sequence[int], space: bytes) -> bytes:
    """The 32-byte identity of a block of ``tokens`` in namespace ``space`` that follows ``parent``."""
    frame = struct.pack(f"<QQ{len(tokens)}q", len(space), len(tokens), *tokens)
    return hashlib.sha256(parent + frame + space).digest()
