"""Where a recording stands while it is played: how fast, from where, and what the keys do to that."""

from __future__ import annotations

from bisect import bisect_right

from pellucid.lang import Sentence, say
from pellucid.watch.tape import Tape

FASTEST = 256.0
KEYS = say("space pause  left/right step  + - speed  0-9 seek  g/G start/end  q quit")


class Player:
    """A position on ``tape`` that moves on by itself while ``playing``, ``speed`` seconds of it a second."""

    def __init__(self, tape: Tape, position: int = 0, speed: float = 1.0) -> None:
        self.tape = tape
        self.position = position
        self.speed = speed
        self.playing = position < tape.last
        self._clock = tape.clocks[position]

    def advance(self, seconds: float) -> None:
        """So much time has passed for the person who looks on."""
        if not self.playing:
            return
        self._clock += seconds * self.speed
        self.position = max(self.position, bisect_right(self.tape.clocks, self._clock) - 1)
        self.playing = self.position < self.tape.last

    def press(self, key: str) -> None:
        """Do what ``key`` stands for; other keys do nothing."""
        match key:
            case " ":
                self.playing = not self.playing and self.position < self.tape.last
            case "right" | "left":
                self.playing = False
                self._go(self.position + (1 if key == "right" else -1))
            case "home" | "g":
                self._go(0)
            case "end" | "G":
                self._go(self.tape.last)
            case "+" | "=" | ".":
                self.speed = min(FASTEST, self.speed * 2)
            case "-" | ",":
                self.speed = max(1 / FASTEST, self.speed / 2)
            case _ if key.isdecimal() and key.isascii():
                self._go(self.tape.at_share(int(key) / 10))

    def _go(self, position: int) -> None:
        self.position = max(0, min(position, self.tape.last))
        self._clock = self.tape.clocks[self.position]
        self.playing = self.playing and self.position < self.tape.last

    @property
    def status(self) -> Sentence:
        """Where it stands, in a line."""
        return say(
            "{state}   {position:,} of {last:,}   {clock} of {length}   speed {speed:g}",
            state=say("playing") if self.playing else say("paused"),
            position=self.position,
            last=self.tape.last,
            clock=clock(self._clock if self.playing else self.tape.clocks[self.position]),
            length=clock(self.tape.clocks[-1]),
            speed=self.speed,
        )


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
