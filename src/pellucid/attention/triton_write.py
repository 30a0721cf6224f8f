"""The step's K and V, each token's into its slot."""

import triton
import triton.language as tl


@triton.jit
def write_kernel(
    k,
    v,
    k_pool,
    v_pool,
    slots,
    k_token_stride,
    v_token_stride,
    HEAD_NUMBERS: tl.constexpr,
    PADDED_NUMBERS: tl.constexpr,
):
    """Grid (tokens,). The heads of one token lie side by side, HEAD_NUMBERS numbers in all."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    numbers = tl.arange(0, PADDED_NUMBERS)
    real = numbers < HEAD_NUMBERS
    key = tl.load(k + token * k_token_stride + numbers, mask=real)
    value = tl.load(v + token * v_token_stride + numbers, mask=real)
    tl.store(k_pool + slot * HEAD_NUMBERS + numbers, key, mask=real)
    tl.store(v_pool + slot * HEAD_NUMBERS + numbers, value, mask=real)
