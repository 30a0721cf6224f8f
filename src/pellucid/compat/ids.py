"""vLLM's internal request ids: the caller's name, a dash and eight random hex characters."""

from __future__ import annotations

import secrets


class InternalIds:
    """One internal id for each live submission. They are what vLLM's scheduler knows requests by.

    A table is looked up by the exact id that `issue` returned: cutting off the tail or comparing
    beginnings takes ``A-1-bf6e0edb`` for a request named ``A``.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}
        self._by_id: dict[str, str] = {}

    def issue(self, name: str) -> str:
        """A fresh id for a submission just made under ``name``."""
        internal = f"{name}-{secrets.token_hex(4)}"
        self._by_name[name] = internal
        self._by_id[internal] = name
        return internal

    def of(self, name: str) -> str:
        """The id of the live request of exactly this name."""
        return self._by_name[name]

    def name(self, internal: str) -> str | None:
        """Which live request has exactly this internal id; None if none has."""
        return self._by_id.get(internal)

    def live_name(self, either: str) -> str | None:
        """The live request that ``either`` is the name or the internal id of; None if there is none."""
        return either if either in self._by_name else self.name(either)

    def forget(self, name: str) -> None:
        """The request has ended."""
        self._by_id.pop(self._by_name.pop(name, ""), None)
