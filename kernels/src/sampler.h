// Drawing the next token of every row from its logits.
#pragma once

#include <stdint.h>

namespace pellucid {

// What decided a row: only the scores from `least` on were kept, and the token won with `won`, noise included.
struct Decision {
    float least, won;
};

// `count` rows of `width` logits, the i-th of them at x + rows[i] · stride. What belongs to it is at [i] of each array.
struct Draws {
    const float *x;
    long stride;
    int width, count;
    const int64_t *rows;
    const float *temperature;  // above 0
    const int64_t *top_k;      // 0 or less: all
    const float *top_p;        // 1: all
    const float *min_p;        // 0: all
    const int64_t *keys;       // where the row's stream of random numbers starts, 64 bits
    int64_t *tokens;           // out
    Decision *decisions;       // out, or null
};

// Draw one token a row from the softmax of logits / temperature, after min-p, then top-k, then top-p. A row's token
// depends on nothing but its own logits and parameters. A NaN, or else an infinite score, is taken where there is one.
void draw(const Draws &draws);

}  // namespace pellucid
