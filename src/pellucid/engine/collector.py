"""Python's garbage collector while steps run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARER = 16
"""How many times as many objects as usual must have been made before the collector looks through them. What lives
then is mostly what the last step has handed out, whole lists of tokens, of which nothing is garbage: to look
through those of 64 requests takes a good part of a step."""

_COUNTING = Lock()
_users = 0
_thresholds: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the collector leave alone what is there already, and look through what is made meanwhile less often.

    The pool of a large GPU has hundreds of thousands of blocks: to look at all of them would stop steps for 0.1 s. It
    lasts until the last of those who asked for it is done. Of a caller who has frozen objects before, nothing changes.
    """
    global _users
    with _COUNTING:
        ours = _users > 0 or not gc.get_freeze_count()
        if ours and not _users:
            _begin()
        _users += ours
    try:
        yield
    finally:
        with _COUNTING:
            _users -= ours
            if ours and not _users:
                _end()


def _begin() -> None:
    global _thresholds
    _thresholds = gc.get_threshold()
    gc.set_threshold(RARER * _thresholds[0], *_thresholds[1:])
    gc.freeze()


def _end() -> None:
    gc.unfreeze()
    if gc.get_threshold()[0] == RARER * _thresholds[0]:  # else somebody has chosen another meanwhile
        gc.set_threshold(*_thresholds)
