"""Driving a subject and writing down what it shows, after every step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from pellucid.kv.snapshot import Snapshot
from pellucid.lab.recording import Frame, Recording, Submission
from pellucid.lab.subject import Output, Subject

PATIENCE = 1_000


class Recorder:
    """Plays one scenario on an idle subject.

    ``on_step`` is called with the number of steps so far, for whoever watches.
    """

    def __init__(
        self, scenario: str, subject: Subject, engine: int = 0, on_step: Callable[[int], None] | None = None
    ) -> None:
        self.scenario = scenario
        self.about = subject.about
        self._subject = subject
        self._engine = engine
        self._on_step = on_step
        self._steps = 0
        self._requests: dict[str, Submission] = {}
        self._outputs: dict[str, Output] = {}
        self._added: list[str] = []
        self._aborted: list[str] = []
        self._moved: list[tuple[int, int]] = []
        self._stopped: set[str] = set()
        self._frames: list[Frame] = []
        self.observe()

    @property
    def snapshot(self) -> Snapshot:
        """As last observed."""
        return self._frames[-1].snapshot

    @property
    def requests(self) -> tuple[str, ...]:
        """The names of all that were added."""
        return tuple(self._requests)

    def add(self, name: str, prompt: tuple[int, ...], max_tokens: int, salt: str | None = None) -> None:
        self._subject.add_request(name, prompt, max_tokens, salt)
        self._requests[name] = Submission(prompt, max_tokens, salt)
        self._added.append(name)

    def abort(self, name: str) -> None:
        self._subject.abort_request(name)
        self._aborted.append(name)
        self._stopped.add(name)

    def move(self, moves: Iterable[tuple[int, int]]) -> bool:
        """Move live blocks (block, to), one after the other, and observe; False if this subject moves none."""
        for block, to in moves:
            if not self._subject.move_block(block, to):
                return False
            self._moved.append((block, to))
        self.observe()
        return True

    def step(self) -> None:
        self._outputs.update(self._subject.step())
        self._steps += 1
        if self._on_step:
            self._on_step(self._steps)
        self.observe()

    def until(self, condition: Callable[[], bool], limit: int) -> bool:
        """Step until ``condition`` holds, ``limit`` steps at most; whether it does."""
        for _ in range(limit):
            if condition():
                return True
            self.step()
        return condition()

    def until_ended(self, *names: str) -> bool:
        """Step until each of ``names`` has ended, ``PATIENCE`` steps at most; whether they have."""
        return self.until(lambda: all(map(self.ended, names)), PATIENCE)

    def drain(self) -> None:
        """End what still lives, and let what is under way come in."""
        for name in [request.name for request in self._subject.snapshot().requests]:
            self.abort(name)
        self.until(lambda: not self._subject.has_unfinished_requests(), limit=100)
        self.observe()

    def observe(self) -> None:
        """Write down what there is to see now."""
        violations = self._subject.audit()
        frame = Frame(
            step=self._steps,
            added=tuple(self._added),
            aborted=tuple(self._aborted),
            moved=tuple(self._moved),
            snapshot=self._subject.snapshot(),
            memory=self._subject.memory(),
            received={name: len(output.tokens) for name, output in self._outputs.items()},
            violations=None if violations is None else tuple(map(str, violations)),
        )
        self._frames.append(frame)
        self._added, self._aborted, self._moved = [], [], []

    def ended(self, name: str) -> bool:
        """Whether the request has delivered its last token or was aborted."""
        output = self._outputs.get(name)
        return bool(output and output.finished) or name in self._stopped

    def placed(self, name: str) -> bool:
        """Whether the whole prompt of ``name`` has its blocks, or had them: it has ended."""
        request = self._frames[-1].live(name)
        return self.ended(name) or (request is not None and request.slots >= len(self._requests[name].prompt))

    def recording(self) -> Recording:
        acts = self._subject.acts_since(self._frames[0].snapshot.acts)
        return Recording(
            scenario=self.scenario,
            engine=self._engine,
            about=self.about,
            requests=dict(self._requests),
            frames=tuple(self._frames),
            acts=None if acts is None else tuple(acts),
            outputs=dict(self._outputs),
        )


def tokens(vocab_size: int, text: str, length: int) -> tuple[int, ...]:
    """``length`` token ids, always the same for the same ``text``, from the middle of the vocabulary.

    The ends of a vocabulary are where special tokens live.
    """
    draw = random.Random(text)
    return tuple(draw.randrange(vocab_size // 8, max(vocab_size * 7 // 8, vocab_size // 8 + 1)) for _ in range(length))
