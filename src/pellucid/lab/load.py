"""A load as plain data: the engine's settings and a list of timed actions, so that running it twice is the same run."""

from __future__ import annotations

import random

from msgspec import Struct

from pellucid.kv import REUSE_POLICIES
from pellucid.plan import SamplingParams

LONGEST = 64
"""Tokens of the longest request, prompt and output: short enough for many rounds, long enough for many blocks."""

FAMILIES = 3
STOP_IDS = 256


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine that a load runs on, under the names of `pellucid.LLM`'s options."""

    num_gpu_blocks_override: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    reuse_policy: str = "free-first"
    shuffle_blocks: int | None = None
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = False
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 128
    watermark: float = 0.0


class Add(Struct, frozen=True, kw_only=True, tag_field="do", tag="add", forbid_unknown_fields=True, omit_defaults=True):
    """Before step ``step`` a request arrives; nothing happens if one of its name still lives.

    It is greedy without a ``seed``, and ends at every token id that ``stop_every`` divides (0: at none).
    ``bypass`` means that it does not read the prefix cache.
    """

    step: int
    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    min_tokens: int = 0
    stop_every: int = 0
    ignore_eos: bool = True
    seed: int | None = None
    priority: int = 0
    salt: str | None = None
    bypass: bool = False

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=0.0 if self.seed is None else 1.0,
            seed=self.seed,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=range(0, STOP_IDS, self.stop_every) if self.stop_every else (),
            ignore_eos=self.ignore_eos,
            skip_reading_prefix_cache=self.bypass,
        )


class Abort(Struct, frozen=True, tag_field="do", tag="abort", forbid_unknown_fields=True):
    """Before step ``step`` the live request ``name`` is aborted; nothing happens if there is none."""

    step: int
    name: str


class Move(Struct, frozen=True, tag_field="do", tag="move", forbid_unknown_fields=True):
    """Before step ``step`` a live block moves to a reclaimable one; nothing happens if there is none, or it may not.

    Of all blocks that are held it is number ``block``, of those in the order of re-use number ``to``, counted round.
    """

    step: int
    block: int
    to: int


Action = Add | Abort | Move


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """One round: a fresh engine of ``model`` ("none": see `Echo`), and what happens to it, by step."""

    model: str
    settings: Settings
    actions: tuple[Action, ...]

    @property
    def requests(self) -> int:
        return sum(isinstance(action, Add) for action in self.actions)


def draw(model: str, seed: int, number: int, settings: Settings | None = None) -> Case:
    """Round ``number`` of the soak of ``seed``: the same everywhere and always. Without ``settings`` they are drawn."""
    rng = random.Random(f"{seed}/{number}")
    drawn = _settings(rng)
    settings = settings or drawn
    room = min(LONGEST, (settings.num_gpu_blocks_override - 1) * settings.block_size)
    families = _families(seed)
    actions: list[Action] = []
    step = 0
    for index in range(rng.randint(3, 40)):
        step += rng.choice((0, 0, 0, 1, 1, 2, 6))
        add = _request(rng, f"r{index}", step, rng.choice(families), room)
        actions.append(add)
        if rng.random() < 0.35:
            when = step + rng.choice((0, 0, 1, 1, 2, 3, rng.randint(0, 12), rng.randint(0, 40)))
            actions.append(Abort(when, add.name))
            if rng.random() < 0.3:  # the same name again, at once
                actions.append(_request(rng, add.name, when, rng.choice(families), room))
    actions += _moves(rng, step)
    actions.sort(key=lambda action: action.step)
    return Case(model, settings, tuple(actions))


def _moves(rng: random.Random, last: int) -> list[Move]:
    """Blocks are moved about in some rounds, until a while after the last request."""
    count = rng.choice((0, 0, 0, 5, 20))
    return [Move(rng.randint(0, last + 20), rng.randrange(100), rng.randrange(100)) for _ in range(count)]


def _settings(rng: random.Random) -> Settings:
    block_size = rng.choice((1, 2, 4, 8, 16))
    tokens = rng.choice((24, 32, 48, 64, 96, 160))
    return Settings(
        num_gpu_blocks_override=1 - (-tokens // block_size),
        block_size=block_size,
        enable_prefix_caching=rng.random() < 0.85,
        reuse_policy=rng.choice(sorted(REUSE_POLICIES)),
        shuffle_blocks=rng.choice((None, None, None, 1)),
        scheduling_policy=rng.choice(("fcfs", "priority")),
        async_scheduling=rng.random() < 0.5,
        max_num_batched_tokens=rng.choice((1, 2, 3, 5, 8, 16, 17, 64, 64, 64, 2048, 2048)),
        max_num_seqs=rng.choice((1, 2, 3, 4, 8, 128, 128)),
        watermark=rng.choice((0.0, 0.0, 0.0, 0.1, 0.3)),
    )


def _families(seed: int) -> list[list[int]]:
    """Texts that prompts are beginnings of; the second parts from the first after 12 tokens."""
    rng = random.Random(f"families of {seed}")
    families = [[rng.randrange(4, 256) for _ in range(LONGEST)] for _ in range(FAMILIES)]
    families[1][:12] = families[0][:12]
    return families


def _request(rng: random.Random, name: str, step: int, family: list[int], room: int) -> Add:
    max_tokens = min(rng.choice((1, 2, 3, 5, 8, 13, 20, 32, 48)), room - 1)
    length = min(rng.choice((4, 9, 17, LONGEST, LONGEST)), rng.randint(1, room - max_tokens))
    tail = [rng.randrange(4, 6) for _ in range(min(rng.choice((0, 0, 1, 2)), length - 1))]
    return Add(
        step=step,
        name=name,
        prompt=(*family[: length - len(tail)], *tail),
        max_tokens=max_tokens,
        min_tokens=min(rng.choice((0, 0, 0, 2)), max_tokens),
        stop_every=rng.choice((0, 0, 0, 5)),
        ignore_eos=rng.random() < 0.8,
        seed=rng.choice((None, None, None, 1)),
        priority=rng.choice((0, 0, 1, 2)),
        salt=rng.choice((None, None, None, None, "a", "b")),
        bypass=rng.random() < 0.1,
    )
