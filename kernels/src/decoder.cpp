#include "decoder.h"

#include <vector>

#include "pointwise.h"

#if defined(__x86_64__)
namespace pellucid {
namespace {

// Memory for what lives between two operations; kept from step to step, because fresh pages cost more than their use.
template <class T>
T *scratch(long count) {
    thread_local std::vector<T> memory;
    if ((long)memory.size() < count) memory.resize(count);
    return memory.data();
}

template <class T>
void times(const Matrix &m, const T *x, long stride, int rows, T *out, long out_stride, Into into) {
    multiply({m.kind, x, stride, rows, m.w, m.width, m.depth, out, out_stride, into, m.bias});
}

}  // namespace

template <class T>
void decode(const Decoder<T> &of) {
    Attention<T> step = of.step;
    const int rows = step.tokens, queries = step.heads * step.dim, keys = step.kv_heads * step.dim;
    const long qkv_width = queries + 2 * keys;
    const int inner = of.layers[0].down.depth;
    T *normed = scratch<T>(rows * (of.width + qkv_width + queries + inner)), *qkv = normed + (long)rows * of.width,
      *attended = qkv + rows * qkv_width;
    T *gated = attended + (long)rows * queries;

    step.q = qkv, step.k = qkv + queries, step.v = qkv + queries + keys;
    step.q_stride = step.k_stride = step.v_stride = qkv_width;
    step.out = attended, step.out_stride = queries;
    for (int i = 0; i < of.count; ++i) {
        const DecoderLayer &layer = of.layers[i];
        step.k_pool = of.pool + 2 * i * of.half_layer;
        step.v_pool = step.k_pool + of.half_layer;
        rms_norm(of.x, of.width, static_cast<const T *>(layer.input_norm), normed, of.width, rows, of.width,
                 of.epsilon);
        times(layer.qkv, normed, of.width, rows, qkv, qkv_width, Into::own);
        if (layer.q_norm)
            for (int row = 0; row < rows; ++row) {
                T *q = qkv + row * qkv_width, *k = q + queries;
                rms_norm(q, step.dim, static_cast<const T *>(layer.q_norm), q, step.dim, step.heads, step.dim,
                         of.epsilon);
                rms_norm(k, step.dim, static_cast<const T *>(layer.k_norm), k, step.dim, step.kv_heads, step.dim,
                         of.epsilon);
            }
        rotate(qkv, qkv_width, rows, step.heads + step.kv_heads, step.dim, of.cosines, of.sines);
        attend(step);
        times(layer.output, attended, queries, rows, of.x, of.width, Into::added);
        rms_norm(of.x, of.width, static_cast<const T *>(layer.mlp_norm), normed, of.width, rows, of.width, of.epsilon);
        times(layer.gate_up, normed, of.width, rows, gated, inner, Into::gated);
        times(layer.down, gated, inner, rows, of.x, of.width, Into::added);
    }
}

template void decode(const Decoder<float> &);
template void decode(const Decoder<uint16_t> &);

}  // namespace pellucid
#endif
