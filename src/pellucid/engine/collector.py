"""Python's garbage collector while steps run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_COUNTING = Lock()
_users = 0


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the collector leave alone what is there already; what is made meanwhile it looks after as ever.

    The pool of a large GPU has hundreds of thousands of blocks: to look at all of them would stop steps for 0.1 s. It
    lasts until the last of those who asked for it is done. What somebody else has frozen before stays frozen.
    """
    global _users
    with _COUNTING:
        ours = _users > 0 or not gc.get_freeze_count()
        if ours and not _users:
            gc.freeze()
        _users += ours
    try:
        yield
    finally:
        with _COUNTING:
            _users -= ours
            if ours and not _users:
                gc.unfreeze()
