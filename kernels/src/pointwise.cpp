#include "pointwise.h"

#include "team.h"
#include "vector.h"

#if defined(__x86_64__)
VECTORS_BEGIN
namespace pellucid {

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

int first_best(const float *x, int width) {
    Vector most = _mm512_set1_ps(-__builtin_inff());
    __mmask16 not_numbers = 0;
    for (int i = 0; i < width; i += LANES) {
        const Vector v = load(x + i, width - i);
        most = _mm512_mask_max_ps(most, first(width - i), v, most);  // of a NaN and a number, the second
        not_numbers |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    }
    most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int i = 0; i < width; i += LANES) {
        const Vector v = load(x + i, width - i);
        const __mmask16 best = not_numbers ? _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q)
                                           : _mm512_mask_cmp_ps_mask(first(width - i), v, most, _CMP_EQ_OQ);
        if (best) return i + __builtin_ctz(best);
    }
    return 0;
}

void argmax(const float *x, long x_stride, int rows, int width, int64_t *out) {
    each_row(rows, width, [&](int row) { out[row] = first_best(x + row * x_stride, width); });
}

template void rms_norm(const float *, long, const float *, float *, long, int, int, float);
template void rms_norm(const bf16 *, long, const bf16 *, bf16 *, long, int, int, float);
template void rotate(float *, long, int, int, int, const float *, const float *);
template void rotate(bf16 *, long, int, int, int, const float *, const float *);

}  // namespace pellucid
VECTORS_END
#endif
