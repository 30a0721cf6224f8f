"""A tile of keys: what decoding and prefill both do with it."""

import triton
import triton.language as tl


@triton.jit
def attend_keys(q, k, v, acc, peak, total, scale, seen, MASKED: tl.constexpr, UPCAST: tl.constexpr):
    """Let the queries ``q`` [rows, PADDED_DIM] see the keys ``k`` and values ``v`` [keys, PADDED_DIM].

    The online softmax of Milakov and Gimelshein (2018), as in FlashAttention (Dao et al., 2022), to base 2:
    ``scale`` is that of the scores times log2(e). ``acc`` [rows, PADDED_DIM] is the sum of the values, ``total``
    [rows] that of the weights, both as shares of 2 ** ``peak``, the largest score yet.

    If MASKED, a row sees what ``seen`` [rows or 1, keys] says. The first keys of a row must hold one that it sees.
    """
    if UPCAST:
        k = k.to(tl.float32)
        v = v.to(tl.float32)
    scores = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(peak - higher)
    acc = tl.dot(weights.to(v.dtype), v, acc * fade[:, None], input_precision="tf32x3")
    return acc, higher, total * fade + tl.sum(weights, 1)
