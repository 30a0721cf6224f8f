// Causal attention through block tables, straight from the pool.
#pragma once

#include <stdint.h>

namespace pellucid {

// One layer of one step: R requests that compute T tokens together. Strides are in numbers of the type T.
template <class T>
struct Attention {
    const T *q, *k, *v;  // [T] rows of heads · dim, kv_heads · dim and kv_heads · dim numbers
    long q_stride, k_stride, v_stride;
    T *k_pool, *v_pool;  // [blocks][block_size][kv_heads][dim]
    T *out;              // [T] rows of heads · dim numbers
    long out_stride;
    const int64_t *slots;        // [T]
    const int32_t *query_start;  // [R + 1]
    const int32_t *contexts;     // [R]
    const int32_t *tables;       // [R] rows
    long table_stride;
    int tokens, requests, block_size /* a power of two */, heads, kv_heads, dim;
};

constexpr int MOST_DIM = 256;

// Write the step's K and V to their slots, then attend. A slot that holds no token of the request is never read.
template <class T>
void attend(const Attention<T> &step);

}  // namespace pellucid
