"""A program of its own, as Triton interprets in the tests' process: kernels compiled for a card that is not there.

    python cross_compiled.py CAPABILITY LIMIT

Prints a JSON object: of some kernels what they are, what they take of LIMIT bytes of shared memory and what was
foretold; and what Triton says of one in the tile that is best on an H200.
"""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import torch
import triton
from absent_card import AbsentCard
from triton.backends.compiler import GPUTarget
from triton.runtime.errors import OutOfResources

from pellucid.attention import KVStorage, StepLayout
from pellucid.attention import triton as attention
from pellucid.ops import triton_matmul, triton_tiles, triton_vocabulary
from pellucid.ops.triton_matmul import gated_product, product
from pellucid.triton_heads import Unscaled, Unturned

CAPABILITY, LIMIT = map(int, sys.argv[1:])
WIDE = (576, 1536, 64)
"""Outputs, inputs and tokens: SmolLM2's, and a tile that takes 100 KiB."""
loaded: list[tuple[str, int]] = []


def load_binary(name: str, binary: bytes, shared: int, device: int) -> tuple[int, ...]:
    loaded.append((name, shared))
    return 1, 1, 32, 0, 1024


class SmallerCard(AbsentCard):
    utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": LIMIT}, load_binary=load_binary)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, 32)


def taken_by_product(outputs: int, inputs: int, tokens: int, dtype: torch.dtype, gated: bool = False) -> list[object]:
    x, weight = torch.zeros(tokens, inputs, dtype=dtype), torch.zeros(outputs, inputs, dtype=dtype)
    if gated:
        gated_product(x, weight, torch.zeros(tokens, outputs // 2, dtype=dtype), eps=1e-5)
    else:
        product(x, weight, torch.zeros(tokens, outputs, dtype=dtype))
    chosen = triton_tiles.tile(outputs, inputs, tokens)
    assert chosen is not None
    rows = chosen.rows or triton_tiles.rows_of(tokens)
    tile = triton_tiles.fitted(chosen, rows, inputs, dtype, LIMIT)
    return [*loaded[-1], triton_tiles.shared_bytes(tile, rows, inputs, dtype.itemsize)]


def differing(tiles: dict[int, attention.Tile]) -> list[int]:
    """Rows of tiles that are kernels of their own, whatever number of their programs there are: each is loaded once."""
    return list({tile._replace(programs=1): rows for rows, tile in tiles.items()}.values())


def taken_by_turning(group: int, dim: int, dtype: torch.dtype, requests: int) -> list[object]:
    """Of attention that turns heads itself, after cuBLAS, with all that may be left to do."""
    kv, packed = KVStorage(1, 2, 16, 1, dim, dtype), torch.zeros(requests, (group + 2) * dim, dtype=dtype)
    q, norm = packed[:, : group * dim].view(requests, group, dim), torch.zeros(dim, dtype=dtype)
    zeros, slots = torch.zeros(requests + 1, 8, dtype=torch.int32), torch.zeros(requests, dtype=torch.int64)
    layout = StepLayout(zeros[:, 0].contiguous(), zeros[1:, 0].contiguous(), zeros[1:], slots, 1, apart=True)
    angles, x = torch.zeros(requests, dim // 2), torch.zeros(requests, 1024, dtype=dtype)
    unturned = Unturned(packed, angles, angles, (norm, norm), 1e-6, Unscaled(x, 1e-6), torch.zeros_like(packed[0]))
    backend = attention.TritonAttention()
    plan = backend.plan(q, kv, layout, turns=True)
    backend.attend(0, q, kv, layout, torch.empty_like(q), plan, unturned)
    tile = attention.decode_tile(requests, group, dim, dtype, q.device, turns=True)
    return [*loaded[-1], attention.shared_bytes(tile, dim, dtype.itemsize)]


def taken_by_attention(
    tokens: int, group: int, dim: int, dtype: torch.dtype, requests: int | None = None
) -> list[object]:
    """Of one request of ``tokens``, of the prompt if there are many; or of ``requests`` of a token each."""
    kv, q = KVStorage(1, 2, 16, 1, dim, dtype), torch.zeros(tokens, group, dim, dtype=dtype)
    rows = requests or 1
    zeros, slots = torch.zeros(rows + 1, 8, dtype=torch.int32), torch.zeros(tokens, dtype=torch.int64)
    layout = StepLayout(zeros[:, 0].contiguous(), zeros[1:, 0].contiguous(), zeros[1:], slots, tokens // rows)
    backend, device = attention.TritonAttention(), q.device
    backend.attend(0, q, kv, layout, torch.empty_like(q), backend.plan(q, kv, layout))
    if tokens == rows:
        tile = attention.decode_tile(rows, group, dim, dtype, device)
    else:
        tile = attention.prefill_tile(tokens * group, group, dim, dtype, device)
    return [*loaded[-1], attention.shared_bytes(tile, dim, dtype.itemsize)]


def taken_by_vocabulary(rows: int) -> list[object]:
    """Of the kernel that a device without bulk copies is not given."""
    hidden, weight = torch.zeros(rows, 576, dtype=torch.bfloat16), torch.zeros(1000, 576, dtype=torch.bfloat16)
    part = triton_vocabulary.part_for(weight, rows)
    assert part is not None
    triton_vocabulary.vocabulary_scores(hidden, weight, part, torch.zeros(rows, dtype=torch.int32))
    return [*loaded[-1], triton_tiles.shared_bytes(part.tile, part.tile.rows, 576, 2)]


def in_bulk() -> list[list[object]]:
    """What a device without bulk copies leaves to cuBLAS."""
    return [
        taken_by_product(6144, 1024, 40, torch.bfloat16, gated=True),
        taken_by_product(1024, 2048, 120, torch.bfloat16),
        *[taken_by_vocabulary(part.tile.rows) for part in triton_vocabulary.PARTS],
    ]


def refused() -> str:
    """What is said of a product whose tile is left as it is; nothing if it fits."""
    triton_matmul.shared_memory = lambda device: math.inf
    try:
        taken_by_product(*WIDE, torch.bfloat16)
    except OutOfResources as error:
        return str(error)
    return ""


def main() -> None:
    triton.runtime.driver.set_active(SmallerCard())
    torch.cuda.get_device_capability = lambda device=None: divmod(CAPABILITY, 10)
    triton_matmul.shared_memory = attention.shared_memory = triton_vocabulary.shared_memory = lambda device: LIMIT
    kernels = [
        taken_by_product(*WIDE, torch.bfloat16),
        taken_by_product(1024, 2048, 8, torch.float32),
        taken_by_product(6144, 1024, 8, torch.bfloat16, gated=True),
        taken_by_attention(1, 64, 128, torch.float32),
        taken_by_attention(600, 3, 128, torch.bfloat16),
        *[taken_by_attention(rows, 2, 128, torch.bfloat16, rows) for rows in attention.TILES[256]],
        taken_by_turning(64, 128, torch.float32, 1),
        taken_by_turning(3, 256, torch.bfloat16, 4),
        taken_by_turning(3, 64, torch.bfloat16, 64),
        *[taken_by_turning(2, 128, torch.bfloat16, rows) for rows in differing(attention.TURNING_TILES[256])],
        *(in_bulk() if CAPABILITY >= 90 else []),
    ]
    print(json.dumps({"kernels": kernels, "as on an H200": refused()}))


main()
