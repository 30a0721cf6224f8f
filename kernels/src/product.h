// Matrix products with packed weights: out = x · wᵀ for x [rows, depth] and w [width, depth].
//
// Weights are packed in panels of 32 outputs, so that a panel is read from beginning to end, once, whatever the
// number of rows (as in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). Every
// output is one sum in one order, over the depth from first to last, however many rows there are beside it and
// however many threads: equal rows give equal bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fetch.h"

namespace pellucid {

constexpr int PANEL = 32;  // outputs
constexpr int GROUP = 32;  // depth over which quantised weights share a scale

enum class Weight : int {
    f32 = 0,    // [depth][32] float
    bf16 = 1,   // [depth / 2][32][2] bfloat16
    four = 2,   // 4 bits: scale · q + least, per group of 32 (GGUF's Q4_0 and Q4_1)
    eight = 3,  // 8 bits: scale · q, per group of 32 (GGUF's Q8_0)
};

enum class Into : int {
    f32 = 0,    // float
    own = 1,    // the type of x
    added = 2,  // added to what is there, of the type of x
    gated = 3,  // silu(even panels) · odd panels, of the type of x: half as many outputs
};

struct Product {
    Weight kind;
    const void *x;  // float for f32 weights, else bfloat16
    long x_stride;
    int rows;
    const char *w;
    int width;  // outputs before gating
    int depth;
    void *out;
    long out_stride;
    Into into;
    const float *bias;              // [width] or null
    const float *x_sums = nullptr;  // filled in by `multiply`, for 4-bit weights
    const char *then = nullptr;     // weights of the product that follows, if it is known
    Pieces *pieces = nullptr;       // what else is read soon
};

size_t panel_bytes(Weight kind, int depth);

// Write the rows [width, depth] to every `step`-th panel from panel `first` on; the last panel is padded with zeros.
// `source`: float for f32, bfloat16 for bf16, GGUF's own bytes for four (Q4_1; Q4_0 if not `least`) and eight (Q8_0).
void pack(Weight kind, const void *source, bool least, int width, int depth, char *w, int first, int step);

// Rows of packed weights as float (f32) or, rounded to nearest, as bfloat16 (the others): [how_many][depth].
void unpack_rows(Weight kind, const char *w, int depth, const int64_t *rows, int how_many, void *out);

void multiply(Product product);

}  // namespace pellucid
