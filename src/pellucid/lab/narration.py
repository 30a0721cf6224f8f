"""What one step did and why, in plain sentences, from the acts of that step alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from pellucid.kv import acts
from pellucid.kv.block import BlockState
from pellucid.kv.explain import Explanation
from pellucid.kv.fold import Fold
from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lab.claims.holes import longest_run
from pellucid.view import runs

AFTER_PLANNING = (acts.Launch, acts.Commit)


class Told(Struct, frozen=True):
    """Plain sentences about one step: before it, what was planned and why, and what came of it."""

    arrives: tuple[str, ...]
    plan: tuple[str, ...]
    result: tuple[str, ...]


class Narrator:
    """Tells step after step of one engine whose token budget is ``budget`` a step.

    It keeps what a step's own acts do not say: how long each prompt is, and who held a block last.
    The engine serves first come first: then the queue stands in the order of arrival, whoever was
    pre-empted included.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._prompts: dict[str, int] = {}
        self._held_last: dict[int, str] = {}
        self._now: Snapshot
        self._step: Sequence[acts.AnyAct] = ()
        self._planned = False
        self._last: acts.AnyAct | None = None

    def tell(self, before: Snapshot, step: Sequence[acts.AnyAct]) -> Told:
        """The sentences of one step; ``step`` are the acts since ``before``."""
        self._step, self._now, self._planned, self._last = step, before, False, None
        fold = Fold(before)
        arrives: list[str] = []
        plan: list[str] = []
        result: list[str] = []
        for act in step:
            if isinstance(act, AFTER_PLANNING) and not self._planned:
                self._planned = True
                plan += [*self._idle(), *self._waiting()]
            planning = isinstance(act, acts.Launch) or not self._planned
            part = arrives if isinstance(act, acts.Open) else plan if planning else result
            part += _TELL[type(act)](self, act)
            if isinstance(act, acts.Take) and isinstance(self._last, acts.Admit):
                part[-2:] = [" ".join(part[-2:])]
            self._last = act
            fold.apply(act)
            self._now = fold.snapshot()
        if not self._planned:
            plan += [*self._idle(), *self._waiting()]
        return Told(tuple(arrives), tuple(plan), tuple(result))

    # -- before the step ---------------------------------------------------------------------------

    def _open(self, act: acts.Open) -> Iterator[str]:
        self._prompts[act.request] = act.tokens
        yield f"{act.request} arrives with a prompt of {_count(act.tokens, 'token')}: {self._blocks_for(act.tokens)}."

    # -- the plan ----------------------------------------------------------------------------------

    def _lookup(self, act: acts.Lookup) -> Iterator[str]:
        yield f"Prefix lookup in logical blocks. {Explanation(act.request, True, self._size, act)}"

    def _share(self, act: acts.Share) -> Iterator[str]:
        alive = [block for block in act.blocks if block not in act.revived]
        if alive:
            owners = sorted({name for block in alive for name in self._now.owners_of(block)})
            counts = [self._now.pool.owners[block] + 1 for block in alive]
            now = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
            yield (
                f"{act.request} shares {_blocks(alive)} with {_names(owners)}: {now} owners each now, nothing copied."
            )
        if act.revived:
            yield (
                f"{act.request} revives {_blocks(act.revived)}: nobody owned {_them(act.revived)} any more, but the "
                f"content was still there. {_count(len(act.revived) * self._size, 'token')} need no computing."
            )

    def _admit(self, act: acts.Admit) -> Iterator[str]:
        view = self._now.request(act.request)
        again = " again" if view.preemptions else ""
        more = -(-view.tokens // self._size) - len(view.blocks)
        needs = _count(more, "more block" if view.blocks else "block")
        found = f", {act.computed} of them found in the cache," if act.computed else ""
        yield (
            f"{act.request} is admitted{again}: its {view.tokens} tokens{found} need {needs}, "
            f"and {_reclaimable(self._now)}."
        )

    def _evict(self, act: acts.Evict) -> Iterator[str]:
        lose = "loses its" if len(act.blocks) == 1 else "lose their"
        free, wanted = self._now.pool.free, self._taken(act, act.request)
        if free >= wanted:
            why = f"In the order of {self._now.pool.reuse_policy} it is their turn"
        elif free:
            why = f"{_count(free, 'free block')} {_are(free)} not enough for {wanted}"
        else:
            why = "No free block is left"
        yield f"{why}, so cached {_blocks(act.blocks)} {lose} content to make room for {act.request}."

    def _take(self, act: acts.Take) -> Iterator[str]:
        who = "It" if isinstance(self._last, acts.Admit) else act.request
        admitted = any(isinstance(other, acts.Admit) and other.request == act.request for other in self._step)
        why = "" if admitted else self._why_more(act.request)
        longest = len(longest_run(self._now.pool.reuse_order))
        scattered = f" At most {longest} lie side by side, which does not matter." if longest < len(act.blocks) else ""
        yield f"{who} takes {_blocks(act.blocks)}{why}{self._whose(act.blocks)}.{scattered}"

    def _why_more(self, name: str) -> str:
        view = self._now.request(name)
        left = len(view.blocks) * self._size - view.slots
        return f", as only {_count(left, 'slot')} {_are(left)} left" if left else ", as those it has are full"

    def _taken(self, since: acts.AnyAct, name: str) -> int:
        """Blocks that ``name`` takes in this step after the act ``since``."""
        later = self._step[self._step.index(since) :]
        return sum(len(act.blocks) for act in later if isinstance(act, acts.Take) and act.request == name)

    def _whose(self, blocks: Sequence[int]) -> str:
        """Who held ``blocks`` last, in their order."""
        stretches = [(name, list(run)) for name, run in groupby(blocks, key=self._held_last.get)]
        if not any(name for name, _ in stretches):
            return ""
        known = (f"{runs(run)} {_was(run)} {f'held last by {name}' if name else 'unused'}" for name, run in stretches)
        return "; " + ", ".join(known)

    def _unpublish(self, act: acts.Unpublish) -> Iterator[str]:
        yield f"{_blocks(act.blocks).capitalize()} can no longer be found: {act.request} left before computing that."

    def _preempt(self, act: acts.Preempt) -> Iterator[str]:
        tokens = self._now.request(act.request).tokens
        yield (
            f"{act.request} goes back to the head of the queue. It keeps its {tokens} tokens; their KV is "
            "found in the cache or computed again."
        )

    def _launch(self, act: acts.Launch) -> Iterator[str]:
        rows = dict(zip(act.requests, act.counts, strict=True))
        newest = [name for name in rows if rows[name] == 1 and self._now.request(name).slots >= self._prompts[name]]
        pieces = [self._work(name, count) for name, count in rows.items() if name not in newest]
        if newest:
            pieces.append(f"{_names(newest)} 1{', its' if len(newest) == 1 else ' each, their'} newest")
        total = sum(act.counts)
        full = " (the whole budget)" if total == self._budget else ""
        yield f"The model computes {_count(total, 'token')}{full}: {'; '.join(pieces)}."

    def _work(self, name: str, count: int) -> str:
        """Which tokens of ``name`` these ``count`` are."""
        view = self._now.request(name)
        start = view.slots
        prompt = self._prompts[name]
        if view.preemptions and start + count > prompt:
            return f"{name} {count}, its tokens {start + 1}-{start + count} once more"
        if count == prompt:
            return f"{name} {count}, its whole prompt"
        end = min(start + count, prompt)
        which = f"token {end}" if end == start + 1 else f"tokens {start + 1}-{end}"
        return f"{name} {count}, {which} of its prompt of {prompt}"

    def _waiting(self) -> Iterator[str]:
        """Why whoever is in the queue stays there, the head first."""
        queue = [view for view in self._now.requests if view.status is not RequestStatus.RUNNING]
        for place, view in enumerate(queue):
            if place == 0:
                yield self._why_waiting(view)
            else:
                yield f"{view.name} waits behind {queue[place - 1].name}: only the head of the queue is admitted."

    def _idle(self) -> Iterator[str]:
        """Why a running request has no part in this step."""
        launch = next((act for act in self._step if isinstance(act, acts.Launch)), None)
        busy = launch.requests if launch else ()
        for view in self._now.requests:
            if view.status is not RequestStatus.RUNNING or view.name in busy:
                continue
            if launch and sum(launch.counts) == self._budget:
                why = f"the budget of {_count(self._budget, 'token')} a step is spent"
            elif any(isinstance(act, acts.Close) and act.request == view.name for act in self._step):
                why = "the token that ends it is under way"
            else:
                why = "it needs a block, and those that come next are still fenced"
            yield f"{view.name} computes nothing in this step: {why}."

    def _why_waiting(self, view: RequestView) -> str:
        needed = -(-view.tokens // self._size)
        spent = sum(sum(act.counts) for act in self._step if isinstance(act, acts.Launch))
        if any(isinstance(act, acts.Preempt) for act in self._step):
            return f"{view.name} waits: a step that pre-empts admits nobody."
        if needed > self._now.pool.reclaimable:
            return (
                f"{view.name} waits: its {view.tokens} tokens need {_count(needed, 'block')}, and "
                f"{_reclaimable(self._now)}."
            )
        if spent == self._budget:
            return f"{view.name} waits: the budget of {_count(spent, 'token')} a step is spent."
        return f"{view.name} waits until what is under way is back."

    # -- the result --------------------------------------------------------------------------------

    def _publish(self, act: acts.Publish) -> Iterator[str]:
        why = "its tokens are all known now" if self._planned else f"this step fills {_them(act.blocks)}"
        yield f"{_blocks(act.blocks).capitalize()} of {act.request} can be found by others from now on: {why}."

    def _commit(self, act: acts.Commit) -> Iterator[str]:
        late = f" of step {act.launched}" if act.launched != act.step else ""
        if act.requests:
            each = "gets 1 token" if len(act.requests) == 1 else "get 1 token each"
            yield f"The result{late} is in: {_names(act.requests)} {each}."
        elif late:
            yield f"The result{late} is in, and brings nobody a token."

    def _unfence(self, act: acts.Unfence) -> Iterator[str]:
        leave = "leaves its fence" if len(act.blocks) == 1 else "leave their fence"
        yield f"{_blocks(act.blocks).capitalize()} {leave}: no step under way can write there any more."

    def _return(self, act: acts.Return) -> Iterator[str]:
        self._held_last.update(dict.fromkeys(act.blocks, act.request))
        shared = [block for block in act.blocks if self._now.pool.owners[block] > 1]
        fenced = [block for block in act.fenced if block not in shared]
        rest = [block for block in act.blocks if block not in (*shared, *fenced)]
        cached = [block for block in rest if self._now.pool.identities[block] is not None]
        free = [block for block in rest if block not in cached]
        ways = {
            "stay with their other owners": shared,
            "stay cached, to be found again": cached,
            "are free": free,
            f"are fenced, as step {act.fence} may still write there": fenced,
        }
        told = [f"{runs(blocks)} {_fit(way, blocks)}" for way, blocks in ways.items() if blocks]
        yield f"{self._cause(act)} It returns {_count(len(act.blocks), 'block')}: {'; '.join(told)}."

    def _cause(self, act: acts.Return) -> str:
        later = self._step[self._step.index(act) :]
        why = next(
            cause for cause in later if isinstance(cause, acts.Preempt | acts.Close) and cause.request == act.request
        )
        if isinstance(why, acts.Close):
            return f"{act.request} ends ({why.reason}) with {_count(why.tokens, 'token')}."
        if why.by == act.request:
            who = "it was admitted last, so it pre-empts itself"
        else:
            who = f"{act.request}, which was admitted last, is pre-empted for {why.by}"
        wants = self._taken(act, why.by) or self._wanted(why.by)
        return f"{why.by} needs {_count(wants, 'more block')}, and {_reclaimable(self._now)}: {who}."

    def _wanted(self, name: str) -> int:
        """Blocks that ``name``, which comes to nothing in this step, asked for as the last in turn."""
        view = self._now.request(name)
        left = self._budget - sum(sum(act.counts) for act in self._step if isinstance(act, acts.Launch))
        count = min(max(1, view.tokens - view.slots), left)  # at least 1: its newest token may still be under way
        return -(-(view.slots + count) // self._size) - len(view.blocks)

    def _close(self, act: acts.Close) -> Iterator[str]:
        if not any(isinstance(other, acts.Return) and other.request == act.request for other in self._step):
            yield f"{act.request} ends ({act.reason}) with {_count(act.tokens, 'token')}, and held no blocks."

    # -- words -------------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return self._now.pool.block_size

    def _blocks_for(self, tokens: int) -> str:
        return f"{_count(-(-tokens // self._size), 'block')} of {self._size}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _blocks(blocks: Sequence[int]) -> str:
    return f"block{'' if len(blocks) == 1 else 's'} {runs(blocks)}"


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _was(blocks: Sequence[int]) -> str:
    return "was" if len(blocks) == 1 else "were"


def _them(blocks: Sequence[int]) -> str:
    return "it" if len(blocks) == 1 else "them"


def _fit(way: str, blocks: Sequence[int]) -> str:
    """``way``, said of several blocks, said of as many as there are."""
    if len(blocks) > 1:
        return way
    verb, rest = way.split(" ", 1)
    return f"{ {'are': 'is', 'stay': 'stays'}[verb] } {rest}".strip().replace("their", "its")


def _reclaimable(now: Snapshot) -> str:
    free, cached = now.pool.count(BlockState.FREE), now.pool.count(BlockState.CACHED)
    return f"{free + cached} {_are(free + cached)} reclaimable" + (f" ({free} free, {cached} cached)" if cached else "")


_TELL: dict[type, Callable[[Narrator, Any], Iterator[str]]] = {
    acts.Open: Narrator._open,
    acts.Lookup: Narrator._lookup,
    acts.Share: Narrator._share,
    acts.Evict: Narrator._evict,
    acts.Take: Narrator._take,
    acts.Publish: Narrator._publish,
    acts.Unpublish: Narrator._unpublish,
    acts.Admit: Narrator._admit,
    acts.Launch: Narrator._launch,
    acts.Commit: Narrator._commit,
    acts.Return: Narrator._return,
    acts.Unfence: Narrator._unfence,
    acts.Preempt: Narrator._preempt,
    acts.Close: Narrator._close,
}
