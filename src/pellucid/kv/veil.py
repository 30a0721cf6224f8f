"""Showing acts and snapshots without the hashes in them, which whoever guesses a text could test the guess by."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import msgspec

from pellucid.kv.acts import AnyAct, Open, Publish
from pellucid.kv.snapshot import PoolView, Snapshot

Show = Callable[[bytes], bytes]
"""What stands for an identity or a namespace: equal for equal ones."""


def plainly(value: bytes) -> bytes:
    """Everything as it is."""
    return value


class Veil:
    """A keyed hash under a key that nobody keeps."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def __call__(self, value: bytes) -> bytes:
        return hashlib.blake2b(value, key=self._key, digest_size=16).digest() if value else value


def veil_act(act: AnyAct, show: Show) -> AnyAct:
    """``act`` with its identities and namespace as ``show`` has them."""
    if isinstance(act, Publish):
        return msgspec.structs.replace(act, identities=tuple(map(show, act.identities)))
    if isinstance(act, Open):
        return msgspec.structs.replace(act, space=show(act.space))
    return act


def veil_snapshot(base: Snapshot, show: Show) -> Snapshot:
    """``base`` with its identities as ``show`` has them."""

    def veil(pool: PoolView) -> PoolView:
        hidden = tuple(value if value is None else show(value) for value in pool.identities)
        return msgspec.structs.replace(pool, identities=hidden)

    return msgspec.structs.replace(base, pools=tuple(map(veil, base.pools)))
