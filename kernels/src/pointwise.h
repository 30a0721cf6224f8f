// What happens to each token on its own, between the matrix products.
#pragma once

namespace pellucid {

// Root-mean-square norm over `width` numbers of each of `rows` rows: out = x · rsqrt(mean(x²) + epsilon) · weight.
template <class T>
void rms_norm(const T *x, long x_stride, const T *weight, T *out, long out_stride, int rows, int width, float epsilon);

// Rotate the pairs (i, i + dim / 2) of `heads` neighbouring heads of each row, in place, by the row's angles:
// cosines and sines are [rows][dim / 2].
template <class T>
void rotate(T *x, long x_stride, int rows, int heads, int dim, const float *cosines, const float *sines);

// The index of the largest of `width` numbers of each row, the lowest of equals.
void argmax(const float *x, long x_stride, int rows, int width, long *out);

}  // namespace pellucid
