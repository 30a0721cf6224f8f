"""The launched plans of a recording, as its journal tells them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pellucid.kv.acts import Admit, AnyAct, Commit, Launch
from pellucid.lab.recording import Recording
from pellucid.lang import say


class Chunk(NamedTuple):
    """In step ``step`` the KV of ``tokens`` positions from ``start`` on was computed."""

    step: int
    start: int
    tokens: int


class Life(NamedTuple):
    """From an admission to the return of the blocks: ``found`` tokens in the cache, ``chunks`` computed."""

    found: int
    chunks: tuple[Chunk, ...]

    @property
    def reached(self) -> int:
        """How many tokens had their KV, or were about to, when it ended."""
        return self.found + self.computed

    @property
    def computed(self) -> int:
        return sum(chunk.tokens for chunk in self.chunks)


def lives(acts: Iterable[AnyAct], name: str) -> list[Life]:
    """Every life of the request ``name``: one, and one more after each pre-emption."""
    found: list[int] = []
    chunks: list[list[Chunk]] = []
    for act in acts:
        if isinstance(act, Admit) and act.request == name:
            found.append(act.computed)
            chunks.append([])
        elif isinstance(act, Launch) and name in act.requests and found:
            start = found[-1] + sum(chunk.tokens for chunk in chunks[-1])
            chunks[-1].append(Chunk(act.step, start, act.counts[act.requests.index(name)]))
    return [Life(first, tuple(rest)) for first, rest in zip(found, chunks, strict=True)]


def launches(acts: Iterable[AnyAct]) -> Iterator[tuple[Launch, int]]:
    """Every launched plan, and how many plans before it had not delivered their results yet."""
    under_way = 0
    for act in acts:
        if isinstance(act, Launch):
            yield act, under_way
            under_way += 1
        elif isinstance(act, Commit):
            under_way -= 1


def not_in_full(run: Recording, name: str) -> str | None:
    """What is wrong unless the last life of ``name``, which finished, computed all but the last token, and once."""
    needed = len(run.requests[name].prompt) + len(run.outputs[name].tokens) - 1
    *_, last = lives(run.acts or (), name) or [Life(0, ())]
    if last.reached == needed:
        return None
    return say(
        "{name} computed {computed} tokens and found {found} in the cache, and its prompt and output need {needed}.",
        name=name,
        computed=last.computed,
        found=last.found,
        needed=needed,
    )
