"""Attention in Triton: through the block table, with no word from the host but the sizes of the step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
import triton

from pellucid.attention.base import AttentionBackend
from pellucid.attention.layout import StepLayout
from pellucid.attention.reference import ReferenceAttention
from pellucid.attention.storage import KVStorage
from pellucid.attention.triton_decode import decode_kernel
from pellucid.attention.triton_plan import FIELDS, TILE, plan_kernel
from pellucid.attention.triton_prefill import prefill_kernel
from pellucid.attention.triton_write import write_kernel
from pellucid.errors import ConfigError
from pellucid.triton_heads import Unturned
from pellucid.triton_launch import INTERPRETED, chained, processors, upcast
from pellucid.triton_memory import first_to_fit, shared_memory

MOST_HEAD_DIM = 256
MOST_GROUP = 64
LEAST_PART = 64
"""Keys: a context of no more is one part; in longer ones every part but the last has more than half of them. Shorter
parts would cost more in putting together than they save."""
MOST_PARTS = 64


class Tile(NamedTuple):
    """How a program works: rows of queries, keys at a time, warps, and loads in flight; and how many programs a
    multiprocessor has room for."""

    rows: int
    keys: int
    warps: int
    stages: int
    programs: int = 1


TILES = {
    128: {
        1: Tile(16, keys=16, warps=1, stages=3, programs=9),
        2: Tile(16, keys=16, warps=1, stages=3, programs=12),
        17: Tile(16, keys=16, warps=1, stages=3, programs=9),
        24: Tile(16, keys=16, warps=1, stages=3, programs=8),
        41: Tile(16, keys=16, warps=1, stages=3, programs=9),
    },
    256: {
        1: Tile(16, keys=16, warps=2, stages=3, programs=9),
        2: Tile(16, keys=32, warps=2, stages=4, programs=4),
        4: Tile(16, keys=16, warps=1, stages=3, programs=10),
        49: Tile(16, keys=32, warps=2, stages=4, programs=4),
        192: Tile(16, keys=16, warps=1, stages=4, programs=7),
    },
}
"""Of decoding, by the bytes of a head, at most; then by the rows of a step, padding included, at least: `max_num_seqs`
where there are prompts among them. Found by trying; why one is better than its neighbours is known in part. Where
contexts are cut into a part a program, many small programs start and end sooner, and where 64 contexts have a large one
each, a multiprocessor has most under way."""
TURNING_TILES = {
    128: {
        1: Tile(16, keys=16, warps=1, stages=3, programs=10),
        24: Tile(16, keys=16, warps=1, stages=3, programs=8),
        97: Tile(16, keys=16, warps=1, stages=3, programs=10),
    },
    256: {
        1: Tile(16, keys=16, warps=1, stages=3, programs=7),
        24: Tile(16, keys=16, warps=1, stages=3, programs=8),
    },
}
"""The same for attention that turns heads itself."""
BOUNDS = sorted({least for table in (TILES, TURNING_TILES) for tiles in table.values() for least in tiles})


class Plan(NamedTuple):
    """Which part of which context each program of `decode_kernel` reads, and what parts leave for the last of them.

    ``tile`` is how it reads: parts begin at multiples of its keys. ``counters`` are for other kernels of the step: 0,
    as they must be whenever none is at work.
    """

    parts: torch.Tensor
    sums: torch.Tensor
    weights: torch.Tensor
    arrived: torch.Tensor
    counters: torch.Tensor
    tile: Tile


class TritonAttention(AttentionBackend):
    """float32, float16 and bfloat16 on NVIDIA GPUs; in Triton's interpreter on any processor, for tests.

    Nothing is read back from the device, so a step may be recorded in a CUDA graph and played for other
    requests: what varies comes from the tensors of the layout, and only their sizes from the host.
    """

    name = "triton"

    @staticmethod
    def missing(device: torch.device, head_dim: int) -> str | None:
        """Why there is no kernel for this device and size here; None if there is one."""
        if device.type != "cuda" and not INTERPRETED:
            return f"it needs an NVIDIA GPU, and the device is {device}"
        if head_dim > MOST_HEAD_DIM:
            return f"there are kernels for heads of up to {MOST_HEAD_DIM} numbers, not {head_dim}"
        return None

    def check(
        self, block_size: int, head_dim: int, heads: int, kv_heads: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        ReferenceAttention().check(block_size, head_dim, heads, kv_heads, dtype, device)
        if head_dim > MOST_HEAD_DIM:
            raise ConfigError(
                f"Triton attention takes heads of up to {MOST_HEAD_DIM} numbers, not {head_dim}; "
                "choose attention_backend='reference'."
            )
        if heads // kv_heads > MOST_GROUP:
            raise ConfigError(
                f"Triton attention takes up to {MOST_GROUP} query heads a KV head, not {heads // kv_heads}; "
                "choose attention_backend='reference'."
            )
        for requests, turns in product(BOUNDS, (False, True)):
            decode_tile(requests, heads // kv_heads, padded(head_dim), dtype, device, turns)
        prefill_tile(1, heads // kv_heads, padded(head_dim), dtype, device)

    def forward(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: KVStorage, layout: StepLayout
    ) -> torch.Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        plan = self.plan(q, kv, layout)
        self.write(layer, k, v, kv, layout)  # in between: see `attend`
        self.attend(layer, q, kv, layout, out, plan)
        return out

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, kv: KVStorage, layout: StepLayout) -> None:
        """Put ``k`` and ``v`` [T, kv_heads, head_dim] into their slots. The heads of a token lie side by side."""
        k_pool, v_pool = kv.layer(layer)
        numbers = k[0].numel()
        write_kernel[(len(k),)](
            k, v, k_pool, v_pool, layout.slots, k.stride(0), v.stride(0),
            HEAD_NUMBERS=numbers, PADDED_NUMBERS=triton.next_power_of_2(numbers),
        )  # fmt: skip

    def plan(
        self, q: torch.Tensor, kv: KVStorage, layout: StepLayout, counters: int = 0, *, turns: bool = False
    ) -> Plan:
        """Share out the contexts of a step, for `attend` in all layers; ``q`` is as there, and may be of any layer.

        ``turns``: heads come unturned.
        """
        kv_heads, dim = kv.layer(0)[0].shape[2:]
        requests, group = len(layout.context_lens), q.shape[1] // kv_heads
        tile = decode_tile(requests, group, padded(dim), q.dtype, q.device, turns)
        slots = max(1, processors(q.device) * tile.programs // kv_heads)
        programs = programs_for(requests, slots)
        every = kv_heads * programs
        counts = torch.empty(every + counters, dtype=torch.int32, device=q.device)
        plan = Plan(
            parts=torch.empty((programs, FIELDS.value), dtype=torch.int32, device=q.device),
            sums=torch.empty((every, group, dim), dtype=torch.float32, device=q.device),
            weights=torch.empty((every, group), dtype=torch.float32, device=q.device),
            arrived=counts[:every],
            counters=counts[every:],
            tile=tile,
        )
        plan_kernel[(requests,)](
            plan.parts, counts, layout.context_lens, layout.query_start, requests, int(is_mixed(q, layout)),
            slots, programs, len(counts), LEAST=LEAST_PART // tile.keys, MOST=MOST_PARTS, UNIT=tile.keys,
            FIELDS=FIELDS.value, TILE=TILE, **chained(q.device),
        )  # fmt: skip
        return plan

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: Plan,
        unturned: Unturned | None = None,
    ) -> None:
        """The attention of every token into ``out``, both [T, heads, head_dim]; that of padding is zeros.

        All of the step's K and V are in the pool; or, if the layout is ``apart`` and the plan is for that, heads come
        ``unturned``, of which ``q`` are the queries, and K and V are put there. In a step of one token a request
        (``max_query`` 1 and T = R) the token of request r is token r, padding included. ``plan`` is read before the
        kernel before this one has ended: there must be one in between that awaits that of `plan` before it lets the
        next start.
        """
        self._decode(layer, q, kv, layout, out, plan, unturned)
        if is_mixed(q, layout):
            self._prefill(layer, q, kv, layout, out)

    def _decode(
        self,
        layer: int,
        q: torch.Tensor,
        kv: KVStorage,
        layout: StepLayout,
        out: torch.Tensor,
        plan: Plan,
        unturned: Unturned | None,
    ) -> None:
        k_pool, v_pool = kv.layer(layer)
        kv_heads, dim = k_pool.shape[2:]
        group, padded_dim = q.shape[1] // kv_heads, padded(dim)
        tile = plan.tile
        padded_group = triton.next_power_of_2(group)
        _, cos, sin, norms, eps, unscaled, bias = unturned or Unturned(q, q, q)
        q_norm, k_norm = norms or (q, q)
        x, x_eps = unscaled or (q, 0.0)
        width = x.shape[-1]
        decode_kernel[(kv_heads, len(plan.parts))](
            out, q, k_pool, v_pool, layout.block_tables, *plan[:4], layout.block_tables.stride(0), q.stride(0),
            q.stride(1), out.stride(0), out.stride(1), scale(dim), x, x.stride(0), x_eps, q if bias is None else bias,
            q_norm, k_norm, eps, cos, sin, layout.slots, GROUP=group, PADDED_GROUP=padded_group, KV_HEADS=kv_heads,
            HEAD_DIM=dim, PADDED_DIM=padded_dim, BLOCK_SIZE=kv.block_size, ROWS=tile.rows, KEYS=tile.keys,
            FIELDS=FIELDS.value, AT_ONCE=max(1, 2048 * tile.warps // (padded_group * padded_dim)),
            TURN=unturned is not None, K=width, WIDTH=triton.next_power_of_2(width), SCALED=unscaled is not None,
            BIAS=bias is not None, NORM=norms is not None, UPCAST=upcast(q.dtype), num_warps=tile.warps,
            num_stages=tile.stages, **chained(q.device),
        )  # fmt: skip

    def _prefill(self, layer: int, q: torch.Tensor, kv: KVStorage, layout: StepLayout, out: torch.Tensor) -> None:
        k_pool, v_pool = kv.layer(layer)
        kv_heads, dim = k_pool.shape[2:]
        group, requests = q.shape[1] // kv_heads, len(layout.context_lens)
        tile = prefill_tile(len(q) * q.shape[1], group, padded(dim), q.dtype, q.device)
        tiles = len(q) // (tile.rows // group) + requests + 1
        prefill_kernel[(kv_heads * tiles,)](
            out, q, k_pool, v_pool, layout.block_tables, layout.context_lens, layout.query_start, len(q), requests,
            layout.block_tables.stride(0), q.stride(0), q.stride(1), out.stride(0), out.stride(1), scale(dim),
            GROUP=group, KV_HEADS=kv_heads, HEAD_DIM=dim, PADDED_DIM=padded(dim), BLOCK_SIZE=kv.block_size,
            ROWS=tile.rows, KEYS=tile.keys, UPCAST=upcast(q.dtype), num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip


def programs_for(requests: int, slots: int) -> int:
    """Of a step, for each KV head: no more than there are slots for at once; or, if requests with a part each keep the
    memory busy (see `pellucid.attention.triton_plan`), so many more that parts may take turns."""
    return slots if 5 * requests <= 2 * slots else requests + slots


def is_mixed(q: torch.Tensor, layout: StepLayout) -> bool:
    """Whether some request may compute another number of tokens than one."""
    return layout.max_query > 1 or len(q) != len(layout.context_lens)


def decode_tile(
    requests: int, group: int, padded_dim: int, dtype: torch.dtype, device: torch.device, turns: bool = False
) -> Tile:
    """Few warps a program, since each waits for all of it; ``programs`` are, of two-byte numbers, as many as have room,
    or a few less: then they spread evenly. As was best on an H200."""
    rows = max(16, triton.next_power_of_2(group))
    width = padded_dim * dtype.itemsize
    if rows > 16 or width > 256:
        best = Tile(rows, keys=16, warps=4, stages=3, programs=4)
    else:
        tiles = (TURNING_TILES if turns else TILES)[128 if width <= 128 else 256]
        best = tiles[max(least for least in tiles if least <= requests)]
    return fitted(best, group, padded_dim, dtype, shared_memory(device))


def prefill_tile(queries: int, group: int, padded_dim: int, dtype: torch.dtype, device: torch.device) -> Tile:
    """Large tiles, unless that leaves processors idle (``queries`` is tokens × heads) or numbers are large."""
    if padded_dim * dtype.itemsize > 256:
        best = Tile(rows=64, keys=32, warps=4, stages=2)
    elif queries < 128 * processors(device):
        best = Tile(rows=64, keys=64, warps=4, stages=3)
    else:
        best = Tile(rows=128, keys=64, warps=8, stages=3)
    return fitted(best, group, padded_dim, dtype, shared_memory(device))


def fitted(best: Tile, group: int, padded_dim: int, dtype: torch.dtype, limit: float) -> Tile:
    """``best``, if it makes do with ``limit`` bytes of shared memory, or the largest like it that does.

    It holds the ``group`` of a KV head's query heads. Raises `KernelError` if nothing does.
    """
    need = partial(shared_bytes, padded_dim=padded_dim, itemsize=dtype.itemsize)
    what = f"Triton attention with {group} query heads a KV head, of {padded_dim} numbers of {8 * dtype.itemsize} bits,"
    tiles = _ever_smaller(best, max(16, triton.next_power_of_2(group)))
    return first_to_fit(tiles, need, limit, what, "attention_backend='reference'")


def shared_bytes(tile: Tile, padded_dim: int, itemsize: int) -> int:
    """Bytes of shared memory that a program takes, at most: as Triton 3.6 compiles it for any card.

    Queries lie there, and keys and values of the loads in flight. The last of these need no place, if the products read
    them from registers; then the weights of the keys may. 2 KiB are for block numbers and barriers. A number of float32
    is multiplied as two of TF32.
    """
    load, parts = 2 * tile.keys * padded_dim, 2 if itemsize == 4 else 1
    from_memory = tile.stages * load + parts * tile.rows * padded_dim
    from_registers = (tile.stages - 1) * load + parts * tile.rows * (padded_dim + tile.keys)
    return max(from_memory, from_registers) * itemsize + 2048


def _ever_smaller(tile: Tile, least_rows: int) -> Iterator[Tile]:
    """Fewer loads in flight; then halves of the rows or of the keys, whatever are more."""
    yield tile
    while tile.stages > 2:
        tile = tile._replace(stages=tile.stages - 1)
        yield tile
    while tile.keys > 16 or tile.rows > least_rows:
        if tile.rows > max(tile.keys, least_rows) or tile.keys == 16:
            tile = tile._replace(rows=tile.rows // 2)
        else:
            tile = tile._replace(keys=tile.keys // 2)
        yield tile


def padded(dim: int) -> int:
    """Numbers of a head in a matrix product: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(dim))


def scale(dim: int) -> float:
    """What scores are multiplied with, to be exponents of 2."""
    return dim**-0.5 * math.log2(math.e)
