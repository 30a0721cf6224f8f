"""What crosses the line between scheduler and runner: a frozen plan in, a frozen result out.

The plan speaks in *differences*: a runner keeps one row of tokens and one block table per
request and is told only what to append. Rows are named by ``handle``, an integer that is
unique per submission, so a caller's name that is used again can never meet an old row.
"""

from __future__ import annotations

from msgspec import Struct

from pellucid.plan.sampling import SamplingParams


class Admission(Struct, frozen=True, gc=False):
    """A request that starts (or starts again after a pre-emption) with this step.

    ``tokens`` are all token ids known so far, prompt then output; ``prompt_len`` says where
    the prompt ends. The runner makes a new row of them; the request's whole block table
    comes in the same plan's ``new_blocks``.
    """

    handle: int
    name: str
    tokens: tuple[int, ...]
    prompt_len: int
    sampling: SamplingParams


class StepPlan(Struct, frozen=True, gc=False):
    """One step of work. ``handles``, ``starts``, ``counts`` and ``samples`` run in parallel.

    Row ``i`` computes the KV of token positions ``starts[i] .. starts[i] + counts[i] - 1``
    and, where ``samples[i]`` is true, samples the token at position ``starts[i] + counts[i]``.
    A position beyond the row's known tokens is the token the runner itself sampled in the
    step before (asynchronous scheduling plans before it has seen it).

    ``released`` rows are dropped first, then ``admitted`` rows made, blocks replaced in every table
    that holds them by ``moves`` (block, the block in its place), ``new_blocks`` appended to tables,
    ``copies`` (source block, destination block) carried out, and the rows run. Moves and copies
    are in order: one may undo or continue another.
    """

    step: int
    released: tuple[int, ...]
    admitted: tuple[Admission, ...]
    new_blocks: tuple[tuple[int, tuple[int, ...]], ...]
    copies: tuple[tuple[int, int], ...]
    handles: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    samples: tuple[bool, ...]
    moves: tuple[tuple[int, int], ...] = ()


class StepResult(Struct, frozen=True, gc=False):
    """What a step sampled: one token id per true entry of the plan's ``samples``, in its order."""

    step: int
    tokens: tuple[int, ...]
