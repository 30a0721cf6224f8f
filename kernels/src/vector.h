// 16 numbers at a time: what the kernels need of AVX-512, with or without its bfloat16 part.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

// The kernels are compiled for a processor that the compiler's own machine need not have; the module looks
// before it calls them. To be put before, and after, every function that uses vectors.
#define PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define VECTORS_BEGIN                                                                                              \
    PRAGMA(clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c"))), \
                                apply_to = function))
#define VECTORS_END PRAGMA(clang attribute pop)
#else
#define VECTORS_BEGIN        \
    PRAGMA(GCC push_options) \
    PRAGMA(GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c"))
#define VECTORS_END PRAGMA(GCC pop_options)
#endif

VECTORS_BEGIN
namespace pellucid {

using bf16 = uint16_t;
using Vector = __m512;

constexpr int LANES = 16;

inline __mmask16 first(int count) { return count >= LANES ? 0xFFFF : static_cast<__mmask16>((1u << count) - 1); }

// The first `count` numbers at `from`; the other lanes are 0 and their memory is not touched.
inline Vector load(const float *from, int count = LANES) { return _mm512_maskz_loadu_ps(first(count), from); }
inline Vector load(const bf16 *from, int count = LANES) {
    const __m256i half = _mm256_maskz_loadu_epi16(first(count), from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

inline void store(float *to, Vector v, int count = LANES) { _mm512_mask_storeu_ps(to, first(count), v); }
inline void store(bf16 *to, Vector v, int count = LANES) {  // to nearest, ties to even; NaN stays NaN
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7FC00000));
    _mm256_mask_storeu_epi16(to, first(count), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

// What is multiplied at once is a word: one float, or two neighbouring bfloat16, whose products are exact.
template <class T>
constexpr int PER_WORD = 4 / (int)sizeof(T);

// sum + a · b in each lane; the first argument says of what type the words are.
inline Vector times(float, Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
inline Vector times(bf16, Vector sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

inline Vector word_everywhere(const void *word) {
    int bits;
    memcpy(&bits, word, sizeof bits);
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}

// e to the power v: 2^n · p(r), where p is Taylor's polynomial of degree 7 on |r| <= ln(2) / 2 (error below 2e-7).
inline Vector exponential(Vector v) {
    v = _mm512_max_ps(_mm512_set1_ps(-87.3f), v);  // in this order NaN stays NaN
    v = _mm512_min_ps(_mm512_set1_ps(88.0f), v);
    const Vector n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    Vector r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), v);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    Vector p = _mm512_set1_ps(1.0f / 5040);
    constexpr float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (const float term : terms) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(term));
    return _mm512_scalef_ps(p, n);
}

inline Vector silu(Vector v) {
    const Vector one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(v, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), v))));
}

}  // namespace pellucid
VECTORS_END
#endif
