"""A walk: one small situation on a real engine, one engine step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from pellucid.errors import ConfigError
from pellucid.kv.acts import AnyAct
from pellucid.kv.snapshot import PoolView, Snapshot
from pellucid.lab.narration import Narrator, Told
from pellucid.lab.recorder import tokens
from pellucid.lab.subject import About, Laboratory, Output, Subject


class Piece(NamedTuple):
    """Part of a prompt: ``blocks`` blocks of tokens and ``more`` (or less). Pieces of one ``text`` begin alike."""

    text: str
    blocks: int = 0
    more: int = 0


class Arrival(NamedTuple):
    """A greedy request of exactly ``max_tokens`` output tokens, and when it comes.

    That is before step ``step`` at the earliest, and not before ``after`` has ended and left its fences.
    """

    name: str
    prompt: tuple[Piece, ...]
    max_tokens: int
    step: int = 1
    after: str = ""


class Seen(NamedTuple):
    """How a walk ended: whether its phenomenon ``arose``, and what was seen in one sentence."""

    arose: bool
    sentence: str


class Situation(NamedTuple):
    """What happens on a walk. ``options`` are those of the engine, unless the caller gives others."""

    name: str
    title: str
    watch: str
    options: Mapping[str, Any]
    arrivals: tuple[Arrival, ...]
    seen: Callable[[Walk], Seen]


class Stride(Struct, frozen=True, kw_only=True):
    """One engine step: the accounting before and after it, and every act between, arrivals included.

    ``violations`` are the invariants that an audit from inside found broken after it.
    """

    situation: str
    step: int
    told: Told
    acts: tuple[AnyAct, ...]
    violations: tuple[str, ...]
    before: Snapshot
    after: Snapshot


class Walk:
    """``situation`` on a fresh engine of ``laboratory``: iterate to walk, one `Stride` an engine step.

    ``strides`` and ``outputs`` keep what has been seen so far. Raises what the laboratory and
    `Subject.add_request` raise, and `ConfigError` if a request of the situation cannot fit.
    """

    def __init__(self, situation: Situation, laboratory: Laboratory) -> None:
        self.situation = situation
        self.strides: list[Stride] = []
        self.outputs: dict[str, Output] = {}
        self._laboratory = laboratory
        self._subject = laboratory()
        self._narrator = Narrator(self.about.max_num_batched_tokens)
        self._coming = list(situation.arrivals)
        self._check_fit(max(situation.arrivals, key=self._most))

    @property
    def about(self) -> About:
        return self._subject.about

    @property
    def snapshot(self) -> Snapshot:
        """The engine's accounting as it is now."""
        return self._subject.snapshot()

    @property
    def pool(self) -> PoolView:
        """The pool as it is now."""
        return self.snapshot.pool

    def __iter__(self) -> Iterator[Stride]:
        while self.unfinished:
            yield self._stride()

    @property
    def unfinished(self) -> bool:
        """Whether there is a further step."""
        return bool(self._coming) or self._subject.has_unfinished_requests()

    def length(self, name: str) -> int:
        """Tokens of the prompt of ``name``."""
        arrival = next(arrival for arrival in self.situation.arrivals if arrival.name == name)
        return sum(piece.blocks * self.pool.block_size + piece.more for piece in arrival.prompt)

    def acts(self) -> Iterator[AnyAct]:
        """Every act so far."""
        for stride in self.strides:
            yield from stride.acts

    def undisturbed(self) -> dict[str, Output]:
        """The same requests one after the other, each alone on a fresh engine, without a prefix cache."""
        subject = self._laboratory(enable_prefix_caching=False)
        outputs: dict[str, Output] = {}
        for arrival in self.situation.arrivals:
            self._add(subject, arrival)
            while subject.has_unfinished_requests():
                outputs.update(subject.step())
        return outputs

    def _most(self, arrival: Arrival) -> int:
        """Tokens that it comes to, prompt and output."""
        return self.length(arrival.name) + arrival.max_tokens

    def _check_fit(self, arrival: Arrival) -> None:
        size, usable, most = self.pool.block_size, self.pool.usable, self.about.max_model_len
        tokens = self._most(arrival)
        needed = -(-tokens // size)
        if needed > usable:
            raise ConfigError(
                f"{self.situation.name!r} has a request of {needed} blocks ({arrival.name}), and the pool has {usable} "
                f"usable; give it {needed + 1} or more with --num-gpu-blocks-override."
            )
        if tokens > most:
            raise ConfigError(
                f"{self.situation.name!r} has a request of {tokens} tokens ({arrival.name}) with blocks of {size}, and "
                f"the model takes {most}; choose a smaller --block-size."
            )

    def _stride(self) -> Stride:
        before = self._subject.snapshot()
        for arrival in [arrival for arrival in self._coming if self._is_due(arrival, before)]:
            self._add(self._subject, arrival)
            self._coming.remove(arrival)
        self.outputs.update(self._subject.step())
        after = self._subject.snapshot()
        acts = tuple(self._subject.acts_since(before.acts) or ())
        stride = Stride(
            situation=self.situation.name,
            step=len(self.strides) + 1,
            told=self._narrator.tell(before, acts),
            acts=acts,
            violations=tuple(map(str, self._subject.audit() or ())),
            before=before,
            after=after,
        )
        self.strides.append(stride)
        return stride

    def _is_due(self, arrival: Arrival, now: Snapshot) -> bool:
        if len(self.strides) + 1 < arrival.step or (arrival.after and now.pool.fenced):
            return False
        output = self.outputs.get(arrival.after)
        return not arrival.after or (output is not None and output.finished)

    def _add(self, subject: Subject, arrival: Arrival) -> None:
        size, vocab = self.pool.block_size, self.about.vocab_size
        prompt = [
            token for piece in arrival.prompt for token in tokens(vocab, piece.text, piece.blocks * size + piece.more)
        ]
        subject.add_request(arrival.name, prompt, arrival.max_tokens)
