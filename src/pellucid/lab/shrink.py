"""Making a failing case small: fewer actions, shorter requests, plainer settings, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from pellucid.lab.load import Action, Add, Case, Move, Settings

TRIES = 600
"""Most plays of a shrink: enough for some ten requests, and bounded where a step takes long."""

PLAIN = {
    "async_scheduling": False,
    "scheduling_policy": "fcfs",
    "reuse_policy": "free-first",
    "shuffle_blocks": None,
    "watermark": 0.0,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 2048,
    "enable_prefix_caching": True,
}


class _Spent(Exception):
    """There are no tries left."""


class Shrinker:
    """Holds the smallest case so far of which ``fails`` is true."""

    def __init__(self, case: Case, fails: Callable[[Case], bool], tries: int = TRIES) -> None:
        self.case = case
        self._fails = fails
        self._tries = tries

    def shrink(self) -> Case:
        """Until no change makes it smaller, or the tries are spent."""
        try:
            before = None
            while before != self.case:
                before = self.case
                self._drop_actions()
                self._close_gaps()
                self._simplify_actions()
                self._simplify_settings()
        except _Spent:
            pass
        return self.case

    def _try(self, case: Case) -> bool:
        if self._tries <= 0:
            raise _Spent
        self._tries -= 1
        if fails := self._fails(case):
            self.case = case
        return fails

    def _drop_actions(self) -> None:
        """Delta debugging: runs of actions go, long ones first (Zeller and Hildebrandt, 2002)."""
        length = max(1, len(self.case.actions) // 2)
        while length:
            at = 0
            while at < len(self.case.actions):
                actions = self.case.actions
                if not self._try(replace(self.case, actions=actions[:at] + actions[at + length :])):
                    at += length
            length //= 2

    def _close_gaps(self) -> None:
        """An action and all behind it happen earlier, by as much as can be."""
        for index in range(len(self.case.actions)):
            before = self.case.actions[index - 1].step if index else 0
            for step in _less(self.case.actions[index].step, before):
                early = self.case.actions[index].step - step
                later = (replace(action, step=action.step - early) for action in self.case.actions[index:])
                if self._try(replace(self.case, actions=(*self.case.actions[:index], *later))):
                    break

    def _simplify_actions(self) -> None:
        for index in range(len(self.case.actions)):
            progress = True
            while progress:
                progress = any(self._try(self._with(index, action)) for action in simpler(self.case.actions[index]))

    def _with(self, index: int, action: Action) -> Case:
        actions = list(self.case.actions)
        actions[index] = action
        return replace(self.case, actions=tuple(sorted(actions, key=lambda action: action.step)))

    def _simplify_settings(self) -> None:
        for settings in _plainer(self.case.settings):
            self._try(replace(self.case, settings=settings))


def simpler(action: Action) -> Iterator[Action]:
    """``action`` with one thing less, the largest cuts first."""
    for step in _less(action.step, 0):
        yield replace(action, step=step)
    if isinstance(action, Move):
        for name in ("block", "to"):
            yield from (replace(action, **{name: number}) for number in _less(getattr(action, name), 0))
    if not isinstance(action, Add):
        return
    for length in _less(len(action.prompt), 1):
        yield replace(action, prompt=action.prompt[:length])
    for tokens in _less(action.max_tokens, max(1, action.min_tokens)):
        yield replace(action, max_tokens=tokens)
    plain = Add(step=action.step, name=action.name, prompt=action.prompt, max_tokens=action.max_tokens)
    for name in ("salt", "seed", "priority", "bypass", "stop_every", "min_tokens", "ignore_eos"):
        if getattr(action, name) != getattr(plain, name):
            yield replace(action, **{name: getattr(plain, name)})


def _less(value: int, least: int) -> Iterator[int]:
    """Smaller values: the least, the middle, the next."""
    yield from sorted({least, (least + value) // 2, value - 1} & set(range(least, value)))


def _plainer(settings: Settings) -> Iterator[Settings]:
    for name, plain in PLAIN.items():
        if getattr(settings, name) != plain:
            yield replace(settings, **{name: plain})
