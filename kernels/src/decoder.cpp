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

constexpr long WORTH_FETCHING = 8 << 20;  // bytes of K and V, or they would be gone again before they are read

// Where the first layer's K and V of earlier tokens lie, block by block.
template <class T>
Pieces blocks_to_read(const Decoder<T> &of) {
    const Attention<T> &step = of.step;
    const long block = (long)step.block_size * step.kv_heads * step.dim, bytes = block * sizeof(T);
    std::vector<const char *> blocks;
    for (int r = 0; r < step.requests; ++r) {
        const int earlier = step.contexts[r] - (step.query_start[r + 1] - step.query_start[r]);
        for (int b = 0; b * step.block_size < earlier && (long)blocks.size() * bytes < WORTH_FETCHING; ++b)
            for (const T *half : {of.pool, of.pool + of.half_layer})
                blocks.push_back(reinterpret_cast<const char *>(half + step.tables[r * step.table_stride + b] * block));
    }
    return {std::move(blocks), (size_t)bytes};
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

    Pieces kv = blocks_to_read(of);
    const auto times = [&](const Matrix &m, const T *x, T *out, long out_stride, Into into, const Matrix *then) {
        multiply({m.kind, x, m.depth, rows, m.w, m.width, m.depth, out, out_stride, into, m.bias, nullptr,
                  then ? then->w : nullptr, &kv});
    };
    step.q = qkv, step.k = qkv + queries, step.v = qkv + queries + keys;
    step.q_stride = step.k_stride = step.v_stride = qkv_width;
    step.out = attended, step.out_stride = queries;
    for (int i = 0; i < of.count; ++i) {
        const DecoderLayer &layer = of.layers[i], *following = i + 1 < of.count ? &layer + 1 : nullptr;
        step.k_pool = of.pool + 2 * i * of.half_layer;
        step.v_pool = step.k_pool + of.half_layer;
        rms_norm(of.x, of.width, static_cast<const T *>(layer.input_norm), normed, of.width, rows, of.width,
                 of.epsilon);
        times(layer.qkv, normed, qkv, qkv_width, Into::own, &layer.output);
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
        if (following)
            kv.shift(2 * of.half_layer * sizeof(T));
        else
            kv.drop();
        times(layer.output, attended, of.x, of.width, Into::added, &layer.gate_up);
        rms_norm(of.x, of.width, static_cast<const T *>(layer.mlp_norm), normed, of.width, rows, of.width, of.epsilon);
        times(layer.gate_up, normed, gated, inner, Into::gated, &layer.down);
        times(layer.down, gated, of.x, of.width, Into::added, following ? &following->qkv : nullptr);
    }
}

template void decode(const Decoder<float> &);
template void decode(const Decoder<uint16_t> &);

}  // namespace pellucid
#endif
