"""What Pellucid says while it works: one line on stderr, unless the host program logs already."""

from __future__ import annotations

import logging

logger = logging.getLogger("pellucid")


def say(message: str) -> None:
    """Log ``message`` as information; if nobody has set up logging, it goes to stderr."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pellucid: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.info(message)
