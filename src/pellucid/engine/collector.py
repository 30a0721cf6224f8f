"""Python's garbage collector while steps run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

RARER = 16
"""How many times as many objects as usual must have been made before the collector looks through them. What lives
then is mostly what the last step has handed out, whole lists of tokens, of which nothing is garbage: to look
through those of 64 requests takes a good part of a step."""

MEANT = 1_000
"""So many frozen objects are a caller's doing. A few hundred are Python 3.12's, which counts those that never die."""

MOST = 2**31 - 1
"""The collector's thresholds are C integers."""

_COUNTING = Lock()
_users = 0
_end: Callable[[], None]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the collector leave alone what is there already, and look through what is made meanwhile less often.

    The pool of a large GPU has hundreds of thousands of blocks: to look at all of them would stop steps for 0.1 s. It
    lasts until the last of those who asked for it is done. What a caller has frozen before stays frozen, and a first
    threshold that a caller sets meanwhile stays set.
    """
    global _users, _end
    with _COUNTING:
        if not _users:
            _end = _begin()
        _users += 1
    try:
        yield
    finally:
        with _COUNTING:
            _users -= 1
            if not _users:
                _end()


def _begin() -> Callable[[], None]:
    """What ends it again."""
    freezes = gc.get_freeze_count() < MEANT
    usual = gc.get_threshold()[0]
    raised = min(RARER * usual, MOST)
    gc.set_threshold(raised)
    if freezes:
        gc.freeze()

    def end() -> None:
        if freezes:
            gc.unfreeze()
        if gc.get_threshold()[0] == raised:
            gc.set_threshold(usual)

    return end
