"""The vocabulary of the journal: one immutable record for everything that can happen to a block.

Every act carries the ``step`` in which it happened (the number of plans made so far, 0 before the
first). Blocks are physical ids, requests the callers' own names. No act holds token ids or text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from msgspec import Struct

SECRET_FIELDS = ("space", "identities")
"""They are hashes of what a request brought along; whoever guesses it could test the guess."""


class MissReason(enum.StrEnum):
    """Why a queried token was not found (each has exactly one)."""

    NEVER_SEEN = "never seen"
    EVICTED = "evicted"
    WITHDRAWN = "withdrawn"  # its request left before it was computed
    LAST_BLOCK = "last-block rule"  # at least one token must be computed
    SHORT = "shorter than a block"
    NAMESPACE = "other salt or adapter"
    BYPASS = "bypass"  # the request asked not to read the cache
    UNKNOWN = "unknown"  # never seen, or evicted so long ago that it is forgotten


class LookupKind(enum.StrEnum):
    """Lookups are counted apart: a first admission, a resume after a pre-emption, a bypass."""

    FIRST = "first"
    RESUME = "resume"
    BYPASS = "bypass"


class Miss(Struct, frozen=True, gc=False, omit_defaults=True):
    """A run of ``tokens`` queried tokens, from logical block ``block`` on, that missed for one reason.

    For an eviction, ``step`` and ``by`` say when the block was given up and for whose request; for a
    withdrawal, when and by which request.
    """

    reason: MissReason
    tokens: int
    block: int
    step: int | None = None
    by: str | None = None


class Act(Struct, frozen=True, gc=False, tag_field="act", tag=str.lower):
    """Base of all acts."""

    step: int


def told(act: Act) -> str:
    """``act`` for an error message: everything but identities and namespaces."""
    return f"{type(act).__name__}({', '.join(f'{name}={value!r}' for name, value in public_fields(act))})"


def public_fields(act: Act) -> Iterator[tuple[str, object]]:
    """Names and values of what ``act`` says, without secrets, and without the KV group where it is the first."""
    for name in act.__struct_fields__:
        value = getattr(act, name)
        if name not in SECRET_FIELDS and (name != "group" or value):
            yield name, value


class Open(Act, frozen=True, gc=False):
    """A request of ``tokens`` prompt tokens joined the waiting queue; ``space`` is its namespace, hashed."""

    request: str
    tokens: int
    space: bytes


class Lookup(Act, frozen=True, gc=False):
    """An admission asked the prefix index for ``asked`` tokens and hit ``hit``; ``missed`` sums to the rest."""

    request: str
    kind: LookupKind
    asked: int
    hit: int
    missed: tuple[Miss, ...]


class Share(Act, frozen=True, gc=False, omit_defaults=True):
    """A prefix hit: ``request`` became one more owner of ``blocks``; ``revived`` of them had none.

    They begin its table in KV group ``group``. Block 0 in them stands for what a sliding window does not need.
    """

    request: str
    blocks: tuple[int, ...]
    revived: tuple[int, ...]
    group: int = 0


class Evict(Act, frozen=True, gc=False):
    """``blocks`` lost their content to make room for ``request``."""

    request: str
    blocks: tuple[int, ...]


class Take(Act, frozen=True, gc=False, omit_defaults=True):
    """``request`` became the owner of ``blocks``, appended in this order to its table in KV group ``group``."""

    request: str
    blocks: tuple[int, ...]
    group: int = 0


class Publish(Act, frozen=True, gc=False):
    """``blocks`` became findable under ``identities``: the plan that fills them has been made."""

    request: str
    blocks: tuple[int, ...]
    identities: tuple[bytes, ...]


class Unpublish(Act, frozen=True, gc=False):
    """``blocks`` are no longer findable: their request left before the plan that fills them had run."""

    request: str
    blocks: tuple[int, ...]


class Admit(Act, frozen=True, gc=False):
    """``request`` runs from now on, with ``computed`` tokens found in the cache."""

    request: str
    computed: int


class Launch(Act, frozen=True, gc=False):
    """The plan of this step was handed to the runner: ``counts[i]`` tokens of ``requests[i]``."""

    requests: tuple[str, ...]
    counts: tuple[int, ...]


class Commit(Act, frozen=True, gc=False):
    """The result of step ``launched`` arrived: each of ``requests`` got one token."""

    launched: int
    requests: tuple[str, ...]


class Return(Act, frozen=True, gc=False, omit_defaults=True):
    """``request`` gave up its whole table in KV group ``group``, ``blocks`` last first.

    Launched steps up to ``fence`` may still write to ``fenced`` of them, which stay out of use so long.
    """

    request: str
    blocks: tuple[int, ...]
    fenced: tuple[int, ...]
    fence: int
    group: int = 0


class Drop(Act, frozen=True, gc=False, omit_defaults=True):
    """A sliding window left ``blocks`` of ``request`` behind: block 0 stands at ``places`` of its table instead.

    Only an observed engine has windows. ``blocks`` are in the order in which they became reclaimable.
    """

    request: str
    blocks: tuple[int, ...]
    places: tuple[int, ...]
    group: int = 0


class Forget(Act, frozen=True, gc=False):
    """The prefix cache was reset: nothing that ``blocks`` held can be found any more."""

    blocks: tuple[int, ...]


class Unfence(Act, frozen=True, gc=False):
    """The step that could still write to ``blocks`` is committed: those without an owner are reclaimable."""

    blocks: tuple[int, ...]


class Move(Act, frozen=True, gc=False):
    """The owners ``requests`` of ``block``, and its content, have ``to`` in its place.

    ``block`` is returned, without content. Launched steps up to ``fence`` may still write to it, 0 if none
    does: then it stays out of use so long.
    """

    requests: tuple[str, ...]
    block: int
    to: int
    fence: int


class Preempt(Act, frozen=True, gc=False):
    """``request`` went back to the waiting queue, so that ``by`` gets blocks. It will be recomputed."""

    request: str
    by: str


class Close(Act, frozen=True, gc=False):
    """``request`` left the engine, with ``tokens`` tokens, because of ``reason`` (stop, length, abort)."""

    request: str
    tokens: int
    reason: str


AnyAct = (
    Open
    | Lookup
    | Share
    | Evict
    | Take
    | Publish
    | Unpublish
    | Admit
    | Launch
    | Commit
    | Return
    | Drop
    | Forget
    | Unfence
    | Move
    | Preempt
    | Close
)
