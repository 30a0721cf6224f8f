// All layers of a decoder of the Llama family in one call: what the model does one operation at a time, without
// going back to Python two hundred times a step.
#pragma once

#include <stdint.h>

#include "attention.h"
#include "product.h"

namespace pellucid {

struct Matrix {
    Weight kind;
    const char *w;
    int width, depth;
    const float *bias;
};

struct DecoderLayer {
    const void *input_norm, *mlp_norm, *q_norm, *k_norm;  // q_norm and k_norm may be null
    Matrix qkv, output, gate_up, down;
};

// `step` comes with everything but its tensors and pools, which are those of each layer in turn.
template <class T>
struct Decoder {
    const DecoderLayer *layers;
    int count;
    T *x;  // [T][width]: hidden states, in and out
    int width;
    float epsilon;
    const float *cosines, *sines;  // [T][dim / 2]
    T *pool;                       // [layers][2][blocks][block_size][kv_heads][dim]
    long half_layer;               // numbers of K, or of V, of one layer
    Attention<T> step;
};

template <class T>
void decode(const Decoder<T> &decoder);

}  // namespace pellucid
