"""What an engine must offer to be put to the proof: the public protocol between the lab and any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from pellucid.kv.acts import AnyAct
from pellucid.kv.invariants import Violation
from pellucid.kv.memory import PoolMemory
from pellucid.kv.snapshot import Snapshot


class About(Struct, frozen=True, kw_only=True):
    """What an engine is, and the limits that scenarios must keep to.

    ``exact`` says whether equal requests must give equal tokens however they are batched, cached or
    placed: true in float32, and of kernels that are batch-invariant; elsewhere the order of rounding may decide.
    ``spare_blocks`` are what admission leaves free while anything runs. ``scheduling_policy`` is what the
    engine calls its own (see `pellucid.lab.turns`), None if it does not tell. ``fences`` says whether released blocks
    stay out of use while a launched step may still write to them; else the device's queue keeps the writes in order.
    """

    engine: str
    model: str
    dtype: str
    device: str
    prefix_caching: bool
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    spare_blocks: int
    vocab_size: int
    exact: bool
    scheduling_policy: str | None = None
    fences: bool = True


class Output(Struct, frozen=True):
    """What a request has produced so far: all its output tokens, and the engine's own count of prefix hits.

    ``cached_tokens`` is None if the engine does not tell.
    """

    tokens: tuple[int, ...]
    cached_tokens: int | None
    finished: bool


class Subject(Protocol):
    """One engine, idle or running, driven one step at a time.

    Nothing here is Pellucid's alone: what an engine cannot show it answers with None, and claims
    that need it become "not observable".
    """

    @property
    def about(self) -> About:
        """What this engine is; constant."""

    def add_request(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a greedy request that runs to ``max_tokens``, end tokens ignored. Raises `RequestError`.

        Requests of different ``salt`` share no prefix.
        """

    def abort_request(self, name: str) -> None:
        """End the live request ``name`` now."""

    def move_block(self, block: int, to: int) -> bool:
        """Between two steps, move the live ``block`` to ``to``, which is free or cached; False if nothing can be moved.

        Its content goes with it, and every table that holds it. Raises `MoveRefused`.
        """

    def step(self) -> Mapping[str, Output]:
        """One engine step; whoever got a token, with all it has so far."""

    def has_unfinished_requests(self) -> bool:
        """Whether a further step has anything to do."""

    def snapshot(self) -> Snapshot:
        """The block accounting now, requests under the names they were added by."""

    def acts_since(self, number: int) -> Sequence[AnyAct] | None:
        """The acts after act ``number`` (see `Snapshot.acts`); None without a journal."""

    def memory(self) -> PoolMemory | None:
        """Address and bytes of the KV pool as it is now; None if that cannot be seen."""

    def audit(self) -> Sequence[Violation] | None:
        """Invariants broken since the last audit, by looking inside; None if there is no looking inside."""


class Laboratory(Protocol):
    """Makes subjects: a fresh engine each time, the same but for ``settings`` (names as in vLLM).

    Raises `NotArisen`, saying why, for settings that its engines do not have.
    """

    def __call__(self, **settings: Any) -> Subject: ...
