"""The journal: every act so far, in order. Whatever can be observed is a fold over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from pellucid.errors import JournalError
from pellucid.kv.acts import AnyAct, told
from pellucid.kv.fold import Fold
from pellucid.kv.snapshot import Snapshot
from pellucid.kv.veil import Show, Veil, plainly, veil_act, veil_snapshot

VERSION = 2

COMPACT_ACTS = 64
"""Folding takes some 2 microseconds an act, and moving the rest 20: this many at once keep every step short."""


class Header(Struct, frozen=True, kw_only=True):
    """The first line of a journal file: how many acts follow, and the snapshot from which they fold."""

    format: str = "pellucid.journal"
    version: int = VERSION
    base: Snapshot
    acts: int
    shows_identities: bool = False


class Journal:
    """Acts from ``base`` on. With a ``capacity`` the oldest are folded away, a few at a time.

    So a bounded journal still folds to the snapshot, and no step waits for a large fold.
    """

    def __init__(self, base: Snapshot, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise JournalError(f"a journal's capacity must be at least 1 act, not {capacity}; None is unbounded.")
        self.capacity = capacity
        self.veiled = False  # read from a file that does not show identities
        self._base = Fold(base)
        self._acts: list[AnyAct] = []
        self.append = self._acts.append

    @property
    def base(self) -> Snapshot:
        """The snapshot from which the acts that are held fold."""
        return self._base.snapshot()

    @property
    def folded(self) -> int:
        """Number of the last act that was folded away, 0 if none was."""
        return self._base.acts

    def __len__(self) -> int:
        """Number of the last act, counted from the first ever: what was folded away counts."""
        return self._base.acts + len(self._acts)

    def __repr__(self) -> str:
        return f"<Journal of acts {self.folded + 1} to {len(self)}, up to step {self.step}>"

    def __iter__(self) -> Iterator[AnyAct]:
        """The acts that are still held, oldest first."""
        return iter(self._acts)

    @property
    def step(self) -> int:
        """The step of the last act."""
        return self._acts[-1].step if self._acts else self._base.step

    def since(self, number: int) -> Sequence[AnyAct]:
        """The acts after act ``number``. Raises `JournalError` if some of them are folded away."""
        if number < self.folded:
            keeps = f"keeps {self.capacity} acts" if self.capacity else f"begins after act {self.folded}"
            raise JournalError(
                f"acts {number + 1} to {self.folded} were folded away; this journal {keeps}: "
                "read it more often or give it more capacity."
            )
        return self._acts[number - self.folded :]

    def compact(self) -> None:
        """Fold away what is over the capacity, once that is worth moving the rest."""
        if self.capacity is None or len(self._acts) < self.capacity + COMPACT_ACTS:
            return
        surplus = len(self._acts) - self.capacity
        for act in self._acts[:surplus]:
            self._base.apply(act)
        del self._acts[:surplus]

    def fold(self, until: int | None = None) -> Snapshot:
        """The snapshot after act number ``until`` (the last one by default). Raises `JournalError`."""
        end = len(self) if until is None else until
        if not self.folded <= end <= len(self):
            raise JournalError(f"act {end} is not held: this journal reaches from {self.folded} to {len(self)}.")
        fold = Fold(self.base)
        for act in self._acts[: end - self.folded]:
            fold.apply(act)
        return fold.snapshot()

    def save(self, path: str | Path, *, show_identities: bool = False) -> None:
        """Write a JSON line for the header and one for each act.

        Block identities are hashes of token ids and namespaces, which a reader could guess and
        test; unless ``show_identities``, they are written under a key that is thrown away: equal
        stays equal within the file and nothing more is told.
        """
        show_identities = show_identities and not self.veiled
        show: Show = plainly if show_identities else Veil()
        header = Header(base=veil_snapshot(self.base, show), acts=len(self._acts), shows_identities=show_identities)
        encode = msgspec.json.Encoder().encode
        with Path(path).open("wb") as file:
            file.write(encode(header) + b"\n")
            for act in self._acts:
                file.write(encode(veil_act(act, show)) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Journal:
        """Read what `save` wrote. Raises `JournalError` naming the line that is damaged."""
        with Path(path).open("rb") as file:
            header = _read_header(path, file.readline())
            journal = cls(header.base)
            journal.veiled = not header.shows_identities
            decoder = msgspec.json.Decoder(AnyAct)
            for number, line in enumerate(file, start=2):
                try:
                    journal.append(decoder.decode(line))
                except msgspec.MsgspecError as error:
                    raise JournalError(f"{path}, line {number} is no act ({error}); the file is damaged.") from error
        if len(journal._acts) != header.acts:
            raise JournalError(f"{path} holds {len(journal._acts)} of its {header.acts} acts; the file is damaged.")
        return journal


def first_difference(left: Journal, right: Journal) -> str | None:
    """None if two journals tell the same story (invariant I13), else where they part and how.

    Identities are compared as such, unless one journal was saved without them: then only by where
    the same one appears again.
    """
    if _geometry(left.base) != _geometry(right.base):
        return f"the pools differ: {_geometry(left.base)} and {_geometry(right.base)}."
    start = max(left.folded, right.folded)
    by_place = left.veiled or right.veiled
    show_left, show_right = (_Numbers(), _Numbers()) if by_place else (plainly, plainly)
    if start > min(len(left), len(right)) or veil_snapshot(left.fold(start), show_left) != veil_snapshot(
        right.fold(start), show_right
    ):
        return f"they differ before act {start + 1}, in acts that one of them has folded away."
    pairs = zip(left.since(start), right.since(start), strict=False)
    for number, (mine, yours) in enumerate(pairs, start=start + 1):
        if veil_act(mine, show_left) != veil_act(yours, show_right):
            return f"act {number} differs: {told(mine)} and {told(yours)}."
    if len(left) != len(right):
        return f"one journal ends after act {min(len(left), len(right))}, the other after {max(len(left), len(right))}."
    return None


def _geometry(base: Snapshot) -> tuple[tuple[str, int, str, int], ...]:
    return tuple((pool.name, pool.block_size, pool.reuse_policy, pool.total) for pool in base.pools)


def _read_header(path: str | Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path} does not begin like a journal ({error}).") from error
    if (header.format, header.version) != ("pellucid.journal", VERSION):
        raise JournalError(
            f"{path} is {header.format} version {header.version}, not pellucid.journal version {VERSION}."
        )
    return header


class _Numbers:
    """Stands for a value by how many others came before it."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, bytes] = {}

    def __call__(self, value: bytes) -> bytes:
        return self._numbers.setdefault(value, str(len(self._numbers)).encode()) if value else value
