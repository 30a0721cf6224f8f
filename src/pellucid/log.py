"""What Pellucid says while it works: one line on stderr, unless the host program logs already."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("pellucid")
logger.setLevel(logging.INFO)


def say(message: str, level: int = logging.INFO) -> None:
    """Log ``message``; if nobody has set up logging, it goes to stderr."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pellucid: %(message)s"))
        logger.addHandler(handler)
    logger.log(level, message)


@contextmanager
def only_warnings() -> Iterator[None]:
    """Inside, nothing below a warning is said."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
