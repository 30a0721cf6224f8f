#include "pointwise.h"

#include "team.h"
#include "vector.h"

#if defined(__x86_64__)
VECTORS_BEGIN
namespace pellucid {
namespace {

constexpr long WORTH_A_TEAM = 1 << 14;  // numbers; fewer are done before a team would have begun

// `job(row)` for every row: by the caller alone if there is little to do.
template <class Job> void each_row(int rows, long width, Job &&job) {
    if (rows * width < WORTH_A_TEAM) {
        for (int row = 0; row < rows; ++row) job(row);
        return;
    }
    in_parallel([&](int member, int members) {
        const Share mine(rows, member, members);
        for (long row = mine.begin; row < mine.end; ++row) job((int)row);
    });
}

}  // namespace

template <class T>
void rms_norm(const T *x, long x_stride, const T *weight, T *out, long out_stride, int rows, int width, float epsilon) {
    each_row(rows, width, [&](int row) {
        const T *from = x + row * x_stride;
        T *to = out + row * out_stride;
        Vector squares = _mm512_setzero_ps();
        for (int i = 0; i < width; i += LANES) {
            const Vector v = load(from + i, width - i);
            squares = _mm512_fmadd_ps(v, v, squares);
        }
        const float mean = _mm512_reduce_add_ps(squares) / (float)width;
        const Vector scale = _mm512_set1_ps(1.0f / __builtin_sqrtf(mean + epsilon));
        for (int i = 0; i < width; i += LANES)
            store(to + i, _mm512_mul_ps(_mm512_mul_ps(load(from + i, width - i), scale), load(weight + i, width - i)),
                  width - i);
    });
}

template <class T>
void rotate(T *x, long x_stride, int rows, int heads, int dim, const float *cosines, const float *sines) {
    const int half = dim / 2;
    each_row(rows, (long)heads * dim, [&](int row) {
        const float *cosine = cosines + (long)row * half, *sine = sines + (long)row * half;
        for (T *head = x + row * x_stride, *end = head + heads * dim; head < end; head += dim)
            for (int i = 0; i < half; i += LANES) {
                const int count = half - i;
                const Vector c = load(cosine + i, count), s = load(sine + i, count);
                const Vector one = load(head + i, count), other = load(head + half + i, count);
                store(head + i, _mm512_fnmadd_ps(other, s, _mm512_mul_ps(one, c)), count);
                store(head + half + i, _mm512_fmadd_ps(one, s, _mm512_mul_ps(other, c)), count);
            }
    });
}

void argmax(const float *x, long x_stride, int rows, int width, long *out) {
    each_row(rows, width, [&](int row) {
        const float *from = x + row * x_stride;
        Vector best = _mm512_set1_ps(-__builtin_inff());
        for (int i = 0; i < width; i += LANES)
            best = _mm512_mask_max_ps(best, first(width - i), best, load(from + i, width - i));
        const float most = _mm512_reduce_max_ps(best);
        long at = 0;
        while (at < width - 1 && from[at] != most) ++at;
        out[row] = at;
    });
}

template void rms_norm(const float *, long, const float *, float *, long, int, int, float);
template void rms_norm(const bf16 *, long, const bf16 *, bf16 *, long, int, int, float);
template void rotate(float *, long, int, int, int, const float *, const float *);
template void rotate(bf16 *, long, int, int, int, const float *, const float *);

}  // namespace pellucid
VECTORS_END
#endif
