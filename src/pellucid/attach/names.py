"""What a caller calls a request, and what vLLM calls it inside.

vLLM (0.14.0 and later) adds a random tail to the caller's id, and its HTTP server makes ``cmpl-R-0`` or
``chatcmpl-R`` of a client's ``X-Request-Id: R``. Which name belongs to which request is asked of vLLM when the
request comes in, never guessed from how an id begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pellucid.errors import UnknownRequest

SERVED = re.compile(r"(?:cmpl-(?P<completion>.+)-\d+|chatcmpl-(?P<chat>.+))", re.DOTALL)
"""How vLLM's server writes a client's id; a completion has the number of its prompt at the end."""


class AmbiguousName(UnknownRequest):
    """Two live requests of a vLLM go by one name."""


class Names:
    """Live requests by their names: the shortest of caller's id, server's id and internal id that is still free."""

    def __init__(self) -> None:
        self._external: dict[str, str] = {}  # internal id -> the id that vLLM was given
        self._names: dict[str, str] = {}  # internal id -> the name in the journal
        self._internal: dict[str, str] = {}  # and back

    def announce(self, internal: str, external: str | None) -> None:
        """vLLM has just made ``internal`` of the ``external`` id that it was given."""
        if external is not None:
            self._external[internal] = external

    def open(self, internal: str) -> str:
        """The name under which a request that joins now appears for the rest of its life."""
        given = self._external.get(internal, internal)
        candidates = [given, internal]
        if served := SERVED.fullmatch(given):
            candidates.insert(0, served["completion"] or served["chat"])
        name = next((each for each in candidates if each not in self._internal), internal)
        self._names[internal] = name
        self._internal[name] = internal
        return name

    def close(self, internal: str) -> None:
        """The request has left; its name may be used again."""
        name = self._names.pop(internal)
        del self._internal[name]
        self._external.pop(internal, None)

    def find(self, name: str, elsewhere: Mapping[str, object] = {}) -> str:
        """The name in the journal of the live request that the caller calls ``name``.

        ``elsewhere`` are further names that may be asked for, such as those of ended requests. Raises
        `AmbiguousName` if several live requests were given it, `UnknownRequest` if none was.
        """
        given = [internal for internal in self._names if name in self.aliases(internal)]
        if len(given) > 1:
            known = ", ".join(f"{self._names[internal]!r} (vLLM's {internal!r})" for internal in given)
            raise AmbiguousName(f"{len(given)} live requests were given the name {name!r}: ask for {known}.")
        if given:
            return self._names[given[0]]
        if name in elsewhere:
            return name
        live = ", ".join(sorted(self._internal)[:8]) or "none"
        raise UnknownRequest(f"no request is named {name!r}; names are matched exactly (live: {live}).")

    def aliases(self, internal: str) -> set[str]:
        """Everything that the live request ``internal`` may be asked for by."""
        given = self._external.get(internal, internal)
        served = SERVED.fullmatch(given)
        client = {served["completion"] or served["chat"]} if served else set()
        return {internal, given, self._names[internal]} | client
