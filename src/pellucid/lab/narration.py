"""What one step did and why, in plain sentences, from the acts of that step alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from pellucid.kv import acts
from pellucid.kv.explain import Explanation
from pellucid.kv.fold import Fold
from pellucid.kv.snapshot import RequestView, Snapshot
from pellucid.kv.table import RequestStatus
from pellucid.lab import phrase
from pellucid.lab.claims.holes import longest_run
from pellucid.lang import Sentence, clauses, names_of, phrases, say, sentences
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
            early = isinstance(act, acts.Open | acts.Move)
            part = arrives if early else plan if planning else result
            part += _TELL[type(act)](self, act)
            if isinstance(act, acts.Take) and isinstance(self._last, acts.Admit):
                part[-2:] = [sentences(part[-2:])]
            self._last = act
            fold.apply(act)
            self._now = fold.snapshot()
        if not self._planned:
            plan += [*self._idle(), *self._waiting()]
        return Told(tuple(arrives), tuple(plan), tuple(result))

    # -- before the step ---------------------------------------------------------------------------

    def _open(self, act: acts.Open) -> Iterator[str]:
        self._prompts[act.request] = act.tokens
        count = -(-act.tokens // self._size)
        blocks = say("1 block of {size}", size=self._size)
        if count != 1:
            blocks = say("{n} blocks of {size}", n=count, size=self._size)
        yield say(
            "{name} arrives with a prompt of {tokens}: {blocks}.",
            name=act.request,
            tokens=phrase.tokens(act.tokens),
            blocks=blocks,
        )

    def _move(self, act: acts.Move) -> Iterator[str]:
        yield say(
            "Block {block} of {owners} moves to block {to}, and its content with it.",
            block=act.block,
            owners=names_of(act.requests),
            to=act.to,
        )

    # -- the plan ----------------------------------------------------------------------------------

    def _lookup(self, act: acts.Lookup) -> Iterator[str]:
        answer = Explanation(act.request, True, self._size, act).sentence
        yield say("Prefix lookup in logical blocks. {answer}", answer=answer)

    def _share(self, act: acts.Share) -> Iterator[str]:
        alive = [block for block in act.blocks if block not in act.revived]
        if alive:
            owners = sorted({name for block in alive for name in self._now.owners_of(block)})
            counts = [self._now.pool.owners[block] + 1 for block in alive]
            now = say("{n} owners each now", n=min(counts))
            if min(counts) != max(counts):
                now = say("{least} to {most} owners each now", least=min(counts), most=max(counts))
            yield say(
                "{name} shares {blocks} with {owners}: {now}, nothing copied.",
                name=act.request,
                blocks=phrase.blocks(alive),
                owners=names_of(owners),
                now=now,
            )
        if act.revived:
            yield self._revive(act)

    def _revive(self, act: acts.Share) -> str:
        tokens = phrase.tokens(len(act.revived) * self._size)
        if len(act.revived) == 1:
            return say(
                "{name} revives block {block}: nobody owned it any more, but the content was still there. "
                "{tokens} need no computing.",
                name=act.request,
                block=act.revived[0],
                tokens=tokens,
            )
        return say(
            "{name} revives blocks {blocks}: nobody owned them any more, but the content was still there. "
            "{tokens} need no computing.",
            name=act.request,
            blocks=runs(act.revived),
            tokens=tokens,
        )

    def _admit(self, act: acts.Admit) -> Iterator[str]:
        view = self._now.request(act.request)
        more = -(-view.tokens // self._size) - len(view.blocks)
        needs = phrase.more(more) if view.blocks else phrase.count(more)
        who = (
            say("{name} is admitted again", name=view.name)
            if view.preemptions
            else say("{name} is admitted", name=view.name)
        )
        what = say("its {tokens} tokens need {blocks}", tokens=view.tokens, blocks=needs)
        if act.computed:
            what = say(
                "its {tokens} tokens, {found} of them found in the cache, need {blocks}",
                tokens=view.tokens,
                found=act.computed,
                blocks=needs,
            )
        yield say("{who}: {what}, and {room}.", who=who, what=what, room=phrase.reclaimable(self._now))

    def _evict(self, act: acts.Evict) -> Iterator[str]:
        free, wanted = self._now.pool.free, self._taken(act, act.request)
        if free >= wanted:
            why = say("In the order of {policy} it is their turn", policy=self._now.pool.reuse_policy)
        elif free > 1:
            why = say("{free} free blocks are not enough for {wanted}", free=free, wanted=wanted)
        elif free:
            why = say("1 free block is not enough for {wanted}", wanted=wanted)
        else:
            why = say("No free block is left")
        if len(act.blocks) == 1:
            yield say(
                "{why}, so cached block {block} loses its content to make room for {name}.",
                why=why,
                block=act.blocks[0],
                name=act.request,
            )
        else:
            yield say(
                "{why}, so cached blocks {blocks} lose their content to make room for {name}.",
                why=why,
                blocks=runs(act.blocks),
                name=act.request,
            )

    def _take(self, act: acts.Take) -> Iterator[str]:
        blocks = phrase.blocks(act.blocks)
        what = say("{name} takes {blocks}", name=act.request, blocks=blocks)
        if isinstance(self._last, acts.Admit):
            what = say("It takes {blocks}", blocks=blocks)
        if not any(isinstance(other, acts.Admit) and other.request == act.request for other in self._step):
            what = self._why_more(what, act.request)
        if whose := self._whose(act.blocks):
            what = say("{what}; {whose}", what=what, whose=whose)
        told: list[str] = [say("{what}.", what=what)]
        longest = len(longest_run(self._now.pool.reuse_order))
        if longest < len(act.blocks):
            told.append(say("At most {n} lie side by side, which does not matter.", n=longest))
        yield sentences(told)

    def _why_more(self, what: Sentence, name: str) -> Sentence:
        view = self._now.request(name)
        left = len(view.blocks) * self._size - view.slots
        if left > 1:
            return say("{what}, as only {n} slots are left", what=what, n=left)
        if left:
            return say("{what}, as only 1 slot is left", what=what)
        return say("{what}, as those it has are full", what=what)

    def _taken(self, since: acts.AnyAct, name: str) -> int:
        """Blocks that ``name`` takes in this step after the act ``since``."""
        later = self._step[self._step.index(since) :]
        return sum(len(act.blocks) for act in later if isinstance(act, acts.Take) and act.request == name)

    def _whose(self, blocks: Sequence[int]) -> str:
        """Who held ``blocks`` last, in their order."""
        stretches = [(name, list(run)) for name, run in groupby(blocks, key=self._held_last.get)]
        if not any(name for name, _ in stretches):
            return ""
        return phrases(phrase.held_by(name, run) for name, run in stretches)

    def _unpublish(self, act: acts.Unpublish) -> Iterator[str]:
        if len(act.blocks) == 1:
            yield say(
                "Block {block} can no longer be found: {name} left before computing that.",
                block=act.blocks[0],
                name=act.request,
            )
        else:
            yield say(
                "Blocks {blocks} can no longer be found: {name} left before computing that.",
                blocks=runs(act.blocks),
                name=act.request,
            )

    def _preempt(self, act: acts.Preempt) -> Iterator[str]:
        yield say(
            "{name} goes back to the head of the queue. It keeps its {tokens} tokens; their KV is "
            "found in the cache or computed again.",
            name=act.request,
            tokens=self._now.request(act.request).tokens,
        )

    def _launch(self, act: acts.Launch) -> Iterator[str]:
        rows = dict(zip(act.requests, act.counts, strict=True))
        newest = [name for name in rows if rows[name] == 1 and self._now.request(name).slots >= self._prompts[name]]
        pieces = [self._work(name, count) for name, count in rows.items() if name not in newest]
        if len(newest) == 1:
            pieces.append(say("{name} 1, its newest", name=newest[0]))
        elif newest:
            pieces.append(say("{names} 1 each, their newest", names=names_of(newest)))
        total = sum(act.counts)
        if total == self._budget:
            yield say(
                "The model computes {tokens} (the whole budget): {rows}.",
                tokens=phrase.tokens(total),
                rows=clauses(pieces),
            )
        else:
            yield say("The model computes {tokens}: {rows}.", tokens=phrase.tokens(total), rows=clauses(pieces))

    def _work(self, name: str, count: int) -> str:
        """Which tokens of ``name`` these ``count`` are."""
        view = self._now.request(name)
        start, prompt = view.slots, self._prompts[name]
        if view.preemptions and start + count > prompt:
            return say(
                "{name} {n}, its tokens {first}-{last} once more",
                name=name,
                n=count,
                first=start + 1,
                last=start + count,
            )
        if count == prompt:
            return say("{name} {n}, its whole prompt", name=name, n=count)
        end = min(start + count, prompt)
        if end == start + 1:
            return say(
                "{name} {n}, token {last} of its prompt of {prompt}", name=name, n=count, last=end, prompt=prompt
            )
        return say(
            "{name} {n}, tokens {first}-{last} of its prompt of {prompt}",
            name=name,
            n=count,
            first=start + 1,
            last=end,
            prompt=prompt,
        )

    def _waiting(self) -> Iterator[str]:
        """Why whoever is in the queue stays there, the head first."""
        queue = [view for view in self._now.requests if view.status is not RequestStatus.RUNNING]
        for place, view in enumerate(queue):
            if place == 0:
                yield self._why_waiting(view)
            else:
                yield say(
                    "{name} waits behind {other}: only the head of the queue is admitted.",
                    name=view.name,
                    other=queue[place - 1].name,
                )

    def _idle(self) -> Iterator[str]:
        """Why a running request has no part in this step."""
        launch = next((act for act in self._step if isinstance(act, acts.Launch)), None)
        busy = launch.requests if launch else ()
        for view in self._now.requests:
            if view.status is not RequestStatus.RUNNING or view.name in busy:
                continue
            if launch and sum(launch.counts) == self._budget:
                why = say("the budget of {tokens} a step is spent", tokens=phrase.tokens(self._budget))
            elif any(isinstance(act, acts.Close) and act.request == view.name for act in self._step):
                why = say("the token that ends it is under way")
            else:
                why = say("it needs a block, and those that come next are still fenced")
            yield say("{name} computes nothing in this step: {why}.", name=view.name, why=why)

    def _why_waiting(self, view: RequestView) -> str:
        needed = -(-view.tokens // self._size)
        spent = sum(sum(act.counts) for act in self._step if isinstance(act, acts.Launch))
        if any(isinstance(act, acts.Preempt) for act in self._step):
            return say("{name} waits: a step that pre-empts admits nobody.", name=view.name)
        if needed > self._now.pool.reclaimable:
            return say(
                "{name} waits: its {tokens} tokens need {blocks}, and {room}.",
                name=view.name,
                tokens=view.tokens,
                blocks=phrase.count(needed),
                room=phrase.reclaimable(self._now),
            )
        if spent == self._budget:
            return say(
                "{name} waits: the budget of {tokens} a step is spent.", name=view.name, tokens=phrase.tokens(spent)
            )
        return say("{name} waits until what is under way is back.", name=view.name)

    # -- the result --------------------------------------------------------------------------------

    def _publish(self, act: acts.Publish) -> Iterator[str]:
        one = len(act.blocks) == 1
        if self._planned:
            why = say("its tokens are all known now")
        else:
            why = say("this step fills it") if one else say("this step fills them")
        if one:
            yield say(
                "Block {block} of {name} can be found by others from now on: {why}.",
                block=act.blocks[0],
                name=act.request,
                why=why,
            )
        else:
            yield say(
                "Blocks {blocks} of {name} can be found by others from now on: {why}.",
                blocks=runs(act.blocks),
                name=act.request,
                why=why,
            )

    def _commit(self, act: acts.Commit) -> Iterator[str]:
        late = act.launched != act.step
        result = say("The result of step {n} is in", n=act.launched) if late else say("The result is in")
        if len(act.requests) == 1:
            yield say("{result}: {name} gets 1 token.", result=result, name=act.requests[0])
        elif act.requests:
            yield say("{result}: {names} get 1 token each.", result=result, names=names_of(act.requests))
        elif late:
            yield say("{result}, and brings nobody a token.", result=result)

    def _unfence(self, act: acts.Unfence) -> Iterator[str]:
        if len(act.blocks) == 1:
            yield say(
                "Block {block} leaves its fence: no step under way can write there any more.", block=act.blocks[0]
            )
        else:
            yield say(
                "Blocks {blocks} leave their fence: no step under way can write there any more.",
                blocks=runs(act.blocks),
            )

    def _return(self, act: acts.Return) -> Iterator[str]:
        self._held_last.update(dict.fromkeys(act.blocks, act.request))
        shared = [block for block in act.blocks if self._now.pool.owners[block] > 1]
        fenced = [block for block in act.fenced if block not in shared]
        rest = [block for block in act.blocks if block not in (*shared, *fenced)]
        cached = [block for block in rest if self._now.pool.identities[block] is not None]
        free = [block for block in rest if block not in cached]
        ways = [phrase.stay(shared)] if shared else []
        ways += [phrase.cached(cached)] if cached else []
        ways += [phrase.free(free)] if free else []
        ways += [phrase.fenced(fenced, act.fence)] if fenced else []
        yield say(
            "{cause} It returns {blocks}: {ways}.",
            cause=self._cause(act),
            blocks=phrase.count(len(act.blocks)),
            ways=clauses(ways),
        )

    def _cause(self, act: acts.Return) -> str:
        later = self._step[self._step.index(act) :]
        why = next(
            cause for cause in later if isinstance(cause, acts.Preempt | acts.Close) and cause.request == act.request
        )
        if isinstance(why, acts.Close):
            return say(
                "{name} ends ({reason}) with {tokens}.",
                name=act.request,
                reason=why.reason,
                tokens=phrase.tokens(why.tokens),
            )
        who = say("it was admitted last, so it pre-empts itself")
        if why.by != act.request:
            who = say("{name}, which was admitted last, is pre-empted for {by}", name=act.request, by=why.by)
        wants = self._taken(act, why.by) or self._wanted(why.by)
        return say(
            "{name} needs {blocks}, and {room}: {who}.",
            name=why.by,
            blocks=phrase.more(wants),
            room=phrase.reclaimable(self._now),
            who=who,
        )

    def _wanted(self, name: str) -> int:
        """Blocks that ``name``, which comes to nothing in this step, asked for as the last in turn."""
        view = self._now.request(name)
        left = self._budget - sum(sum(act.counts) for act in self._step if isinstance(act, acts.Launch))
        count = min(max(1, view.tokens - view.slots), left)  # at least 1: its newest token may still be under way
        return -(-(view.slots + count) // self._size) - len(view.blocks)

    def _close(self, act: acts.Close) -> Iterator[str]:
        if not any(isinstance(other, acts.Return) and other.request == act.request for other in self._step):
            yield say(
                "{name} ends ({reason}) with {tokens}, and held no blocks.",
                name=act.request,
                reason=act.reason,
                tokens=phrase.tokens(act.tokens),
            )

    @property
    def _size(self) -> int:
        return self._now.pool.block_size


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
    acts.Move: Narrator._move,
    acts.Preempt: Narrator._preempt,
    acts.Close: Narrator._close,
}
