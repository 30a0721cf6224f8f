"""The work that engines on a GPU are compared by: what is drawn, what is timed, and the lines that say it.

`gpu.py` (Pellucid) and `vllm_gpu.py` (vLLM) run it, each through an `Engine`, so both do the very same work: prompts
of random token ids in one order of drawing, past end tokens, without text. A line is a word and, but for
``startup_s``, one JSON object:

*startup_s*: seconds to construct the engine, imports apart.

*start*: seconds from the start of this process to its first token, after a prompt of 128: ``imported`` (the engine's
modules are there), ``made`` (the engine is), ``first_token``.

*throughput*: ``--nseq`` requests at once, prompts and outputs of lengths drawn from ``--inlen`` and ``--outlen``, at
``--temperature``; twice, with new prompts. Output tokens, and all tokens, over the whole time.

*decode*: 1, 8, 64 prompts of 128 tokens, 512 output tokens each, greedy; the whole time over 512.

With ``--long MAX_LEN``, on an engine for requests of that length and without a prefix cache:

*ttft*: a prompt of so many tokens, alone, to its first token; the best of 4.

*longdecode*: milliseconds a step at a long context: the same prompts for 257 tokens and for 1, over 256.

*prefill*: prompt tokens a second, 64 prompts of 2,000 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ANSWERS = 257
"""Output tokens of *longdecode*."""


class Work(NamedTuple):
    """Prompts, how many tokens to answer each with, and the temperature."""

    prompts: list[list[int]]
    limits: list[int]
    temperature: float

    @property
    def tokens_in(self) -> int:
        return sum(map(len, self.prompts))


class Engine(Protocol):
    """``vocab_size``: token ids are below it."""

    vocab_size: int

    def prepare(self, work: Work) -> Any:
        """``work`` in the engine's own terms; not timed."""

    def run(self, prepared: Any) -> int:
        """Do it all; how many tokens came out."""


class Draw:
    """Random prompts. Ids are below ``vocab_size``; a vocabulary of more than 40,000 leaves them as drawn."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._random, self._vocab_size = random.Random(seed), vocab_size

    def prompt(self, length: int) -> list[int]:
        return [self._random.randint(10, 40000) % self._vocab_size for _ in range(length)]

    def work(self, count: int, lengths: tuple[int, int], limits: tuple[int, int], temperature: float) -> Work:
        """``count`` requests, lengths and limits drawn from the ranges given: all prompts first, then all limits."""
        prompts = [self.prompt(self._random.randint(*lengths)) for _ in range(count)]
        return Work(prompts, [self._random.randint(*limits) for _ in range(count)], temperature)

    def alike(self, count: int, length: int, limit: int) -> Work:
        return Work([self.prompt(length) for _ in range(count)], [limit] * count, 0.0)


class Line(NamedTuple):
    """What one measurement says; ``facts`` are printed as they are."""

    name: str
    facts: dict[str, Any]

    def show(self) -> Line:
        print(self.name, json.dumps(self.facts), flush=True)
        return self


def seconds(engine: Engine, work: Work) -> tuple[float, int]:
    """How long ``work`` takes from handing it over to its last token, and how many tokens came out."""
    prepared = engine.prepare(work)
    start = time.perf_counter()
    tokens = engine.run(prepared)
    return time.perf_counter() - start, tokens


def start(engine: Engine, imported: float, made: float) -> Line:
    """``imported`` and ``made``: how old this process was then."""
    seconds(engine, Draw(2, engine.vocab_size).alike(1, 128, 1))
    facts = {"imported": imported, "made": made, "first_token": age()}
    return Line("start", {name: round(value, 2) for name, value in facts.items()})


# -- short requests --------------------------------------------------------------------------------


def short_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a model, or a folder with a config.json (see shapes/)")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--nseq", type=int, default=256, help="requests of throughput (default 256)")
    parser.add_argument("--inlen", type=int, nargs=2, default=(100, 1024), help="their prompts (default 100 1024)")
    parser.add_argument("--outlen", type=int, nargs=2, default=(100, 1024), help="their outputs (default 100 1024)")
    parser.add_argument("--temperature", type=float, default=0.6, help="their temperature (default 0.6)")
    parser.add_argument("--out", type=int, default=512, help="output tokens of decode (default 512)")
    parser.add_argument("--batches", type=int, nargs="+", default=(1, 8, 64), help="batches of decode (default 1 8 64)")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--long", type=int, metavar="MAX_LEN", help="the long work instead, up to so many tokens")


def engine_options(options: argparse.Namespace) -> dict[str, Any]:
    """What both engines are made with, under the names that they share."""
    return {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "max_model_len": options.long or options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "gpu_memory_utilization": 0.85 if options.long else 0.8,
        "enable_prefix_caching": not options.long,
        "enforce_eager": options.eager,
    }


def measure_short(engine: Engine, options: argparse.Namespace) -> list[Line]:
    draw = Draw(0, engine.vocab_size)
    seconds(engine, draw.work(8, (64, 64), (16, 16), options.temperature))  # warm
    lines = [_throughput(engine, draw, options, repeat).show() for repeat in range(2)]
    return lines + [_decode(engine, draw, options, batch).show() for batch in options.batches]


def _throughput(engine: Engine, draw: Draw, options: argparse.Namespace, repeat: int) -> Line:
    work = draw.work(options.nseq, options.inlen, options.outlen, options.temperature)
    wall, out = seconds(engine, work)
    rates = {"out_tok_s": round(out / wall), "tot_tok_s": round((work.tokens_in + out) / wall)}
    return Line("throughput", {"rep": repeat, "wall_s": round(wall, 3), "nin": work.tokens_in, "nout": out, **rates})


def _decode(engine: Engine, draw: Draw, options: argparse.Namespace, batch: int) -> Line:
    work = draw.work(batch, (128, 128), (options.out, options.out), 0.0)
    wall, out = seconds(engine, work)
    per_step = round(wall / options.out * 1e3, 3)
    facts = {"bs": batch, "out": options.out, "wall_s": round(wall, 3), "ms_per_step": per_step}
    return Line("decode", {**facts, "tok_s": round(out / wall)})


# -- long prompts and contexts ---------------------------------------------------------------------


def measure_long(engine: Engine, longest: int) -> list[Line]:
    """What does not fit into ``longest`` tokens, with some to spare, is left out."""
    draw, lines = Draw(1, engine.vocab_size), []
    seconds(engine, draw.alike(1, 64, 8))  # warm
    for length in (128, 1024, 4096, 8000, 32000):
        if length + 300 <= longest:
            lines.append(_first_token(engine, draw, length).show())
    for batch, length in ((1, 7000), (32, 7000), (1, 30000), (8, 30000)):
        if length + 300 <= longest:
            lines.append(_long_decode(engine, draw, batch, length).show())
    if longest > 2000:
        wall, _ = seconds(engine, draw.alike(64, 2000, 1))
        lines.append(Line("prefill", {"n": 64, "inlen": 2000, "tok_s": round(64 * 2000 / wall)}).show())
    return lines


def _first_token(engine: Engine, draw: Draw, length: int) -> Line:
    walls = [seconds(engine, draw.alike(1, length, 1))[0] for _ in range(4)]
    return Line("ttft", {"n": length, "ms": round(min(walls) * 1e3, 2), "all": [round(w * 1e3, 1) for w in walls]})


def _long_decode(engine: Engine, draw: Draw, batch: int, length: int) -> Line:
    work = draw.alike(batch, length, 1)
    first, _ = seconds(engine, work)
    whole, _ = seconds(engine, work._replace(limits=[ANSWERS] * batch))
    return Line("longdecode", {"bs": batch, "ctx": length, "ms_per_step": round((whole - first) / 256 * 1e3, 3)})


# -- this process ----------------------------------------------------------------------------------


def age() -> float:
    """Seconds since this process was started, its interpreter's own start included, to 10 ms (Linux only)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
