"""Python's garbage collector while steps run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let the collector leave alone what is there already; what is made meanwhile it looks after as ever.

    The pool of a large GPU has hundreds of thousands of blocks: to look at all of them would stop steps for 0.1 s. What
    somebody has frozen before stays frozen.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
