// What happens to each token on its own, between the matrix products.
#pragma once

#include <stdint.h>

namespace pellucid {

// Root-mean-square norm over `width` numbers of each of `rows` rows: out = x · rsqrt(mean(x²) + epsilon) · weight.
template <class T>
void rms_norm(const T *x, long x_stride, const T *weight, T *out, long out_stride, int rows, int width, float epsilon);

// Rotate the pairs (i, i + dim / 2) of `heads` neighbouring heads of each row, in place, by the row's angles:
// cosines and sines are [rows][dim / 2].
template <class T>
void rotate(T *x, long x_stride, int rows, int heads, int dim, const float *cosines, const float *sines);

// The index of the first NaN of `width` numbers, or else of the largest, the lowest of equals: as torch has it.
int first_best(const float *x, int width);

// The same of each row.
void argmax(const float *x, long x_stride, int rows, int width, int64_t *out);

}  // namespace pellucid
