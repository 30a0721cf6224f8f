"""What a caller calls a request, and what vLLM calls it inside.

vLLM (0.14.0 and later) adds a random tail to the caller's id, and its HTTP server makes ``cmpl-R-0`` or
``chatcmpl-R`` of a client's ``X-Request-Id: R``. Which name belongs to which request is asked of vLLM when the
request comes in, never guessed from how an id begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from pellucid import log
from pellucid.errors import UnknownRequest

SERVED = re.compile(r"(?:cmpl-(?P<completion>.+)-\d+|chatcmpl-(?P<chat>.+))", re.DOTALL)
"""How vLLM's server writes a client's id; a completion has the number of its prompt at the end."""

SAMPLE = re.compile(r"\d+_")
"""What vLLM puts before the id of each of several answers to one prompt (n=2)."""

MOST_ANNOUNCED = 65_536


class AmbiguousName(UnknownRequest):
    """Two live requests of a vLLM go by one name."""


class Names:
    """Live requests by their names: the shortest of client's id, server's id and internal id that is no other's too."""

    def __init__(self) -> None:
        self._external: dict[str, str] = {}  # internal id -> the id that vLLM was given
        self._names: dict[str, str] = {}  # internal id -> the name in the journal
        self._internal: dict[str, str] = {}  # and back
        self._ids: dict[str, list[str]] = {}  # internal id -> all that the live request goes by
        self._given: Counter[str] = Counter()  # how many live requests go by this
        self._has_warned = False

    def announce(self, internal: str, external: str | None) -> None:
        """vLLM has just made ``internal`` of the ``external`` id that it was given."""
        if external is not None:
            self._external[internal] = external
            if len(self._external) > MOST_ANNOUNCED:  # nobody opens them any more: observing has ended
                del self._external[next(iter(self._external))]

    def open(self, internal: str) -> str:
        """The name under which a request that joins now appears for the rest of its life."""
        ids = self._ids[internal] = self._all_ids(internal)
        name = next((each for each in ids if not self._given[each]), internal)
        if name == internal and internal in self._external and len(ids) > 1 and not self._has_warned:
            self._has_warned = True  # once: a careless client may do it in every request
            log.say(f"two live requests were given the name {ids[0]!r}; the later one is shown as {name!r}.")
        self._given.update(ids)
        self._names[internal] = name
        self._internal[name] = internal
        return name

    def close(self, internal: str) -> None:
        """The request has left; its name may be used again."""
        for each in self._ids.pop(internal):
            self._given[each] -= 1
            if not self._given[each]:
                del self._given[each]
        del self._internal[self._names.pop(internal)]
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
        sample, client, server = self._parts(internal)
        return {client, server, sample + client, sample + server, internal}

    def _all_ids(self, internal: str) -> list[str]:
        """What the client, the server and vLLM inside call it, as far as they differ."""
        sample, client, server = self._parts(internal)
        return list(dict.fromkeys((sample + client, sample + server, internal)))

    def _parts(self, internal: str) -> tuple[str, str, str]:
        """Which of several answers it is (``"1_"``, mostly empty), the client's id, and the server's."""
        given = self._external.get(internal, internal)
        sample = ""
        if found := SAMPLE.match(internal):
            rest = internal[found.end() :]
            if given == internal and SERVED.fullmatch(rest):  # before 0.14.0
                sample, given = found[0], rest
            elif rest.startswith(given):
                sample = found[0]
        served = SERVED.fullmatch(given)
        return sample, (served["completion"] or served["chat"]) if served else given, given
