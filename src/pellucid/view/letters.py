"""Which letter and which colour stands for which request."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator

from rich.cells import cell_len, set_cell_size

LETTERS = string.ascii_uppercase + string.ascii_lowercase
INK = "color(16)"
COLOURS = tuple(f"color({number})" for number in (117, 222, 120, 177, 210, 43, 178, 69))
"""Dark ink on light paper, alike on dark and light terminals, and still eight colours where there are only sixteen."""


class Letters:
    """Gives each request a letter, A, B, C … in the order in which it first meets them, and keeps it.

    One object for several pictures keeps a request's letter through all of them. After 52 requests
    the letters begin again at A.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._met = 0
        self.meet(names)

    def meet(self, names: Iterable[str]) -> None:
        """Give letters to those of ``names`` that have none yet."""
        for name in names:
            self.number(name)

    def keep(self, names: Iterable[str]) -> None:
        """Forget everybody but ``names``: whoever draws for days would remember every request. Letters go on."""
        kept = set(names)
        self._numbers = {name: number for name, number in self._numbers.items() if name in kept}

    @property
    def remembered(self) -> int:
        """How many names it has not forgotten."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        """The names, in the order in which they were met."""
        return iter(self._numbers)

    def letter(self, name: str) -> str:
        return LETTERS[self.number(name) % len(LETTERS)]

    def colour(self, name: str) -> int:
        """Its place in `COLOURS`."""
        return self.number(name) % len(COLOURS)

    def style(self, name: str) -> str:
        return f"{INK} on {COLOURS[self.colour(name)]}"

    def number(self, name: str) -> int:
        """How many names were met before ``name``, which is met now if it was not."""
        number = self._numbers.setdefault(name, self._met)
        self._met += number == self._met
        return number


def shown(name: str, width: int) -> str:
    """``name`` in at most ``width`` cells, with anything that could steer a terminal replaced."""
    safe = printable(name)
    return safe if cell_len(safe) <= width else set_cell_size(safe, width - 2) + ".."


def printable(text: str) -> str:
    """``text`` with anything that could steer a terminal replaced."""
    return "".join(character if character.isprintable() else "?" for character in text)
