#include "sampler.h"

#include <math.h>

#include <algorithm>
#include <vector>

#include "pointwise.h"
#include "team.h"
#include "vector.h"

#if defined(__x86_64__)
VECTORS_BEGIN
namespace pellucid {
namespace {

struct alignas(64) Line {
    float of[LANES];
};

// One row's numbers on their way through the filters. There is room for a whole vector behind the last of them.
struct Scratch {
    std::vector<Line> memory;
    float *scores, *candidates, *weights;

    explicit Scratch(int width) { make_room(width); }
    void make_room(int width) {
        const size_t lines = (size_t)width / LANES + 2;
        if (memory.size() < 3 * lines) memory.resize(3 * lines);
        scores = memory[0].of, candidates = memory[lines].of, weights = memory[2 * lines].of;
    }
};

// ---- Scores

// scores = x / temperature; returns the largest, or NaN if there is one.
float scale(const float *x, int width, float temperature, float *scores) {
    const Vector divisor = _mm512_set1_ps(temperature);
    Vector most = _mm512_set1_ps(-INFINITY);
    __mmask16 not_numbers = 0;
    for (int i = 0; i < width; i += LANES) {
        const int count = width - i;
        const Vector v = _mm512_div_ps(load(x + i, count), divisor);
        store(scores + i, v, count);
        most = _mm512_mask_max_ps(most, first(count), v, most);  // of a NaN and a number, the second
        not_numbers |= _mm512_mask_cmp_ps_mask(first(count), v, v, _CMP_UNORD_Q);
    }
    return not_numbers ? NAN : _mm512_reduce_max_ps(most);
}

// ---- Filters

// Copy the scores from `least` on to `candidates`; returns how many they are.
int collect(const float *scores, int width, float least, float *candidates) {
    const Vector lowest = _mm512_set1_ps(least);
    int kept = 0;
    for (int i = 0; i < width; i += LANES) {
        const Vector v = load(scores + i, width - i);
        const __mmask16 keep = _mm512_mask_cmp_ps_mask(first(width - i), v, lowest, _CMP_GE_OQ);
        store(candidates + kept, _mm512_maskz_compress_ps(keep, v));
        kept += __builtin_popcount(keep);
    }
    return kept;
}

// weights = e to the power (candidates - most).
void weigh(const float *candidates, int n, float most, float *weights) {
    for (int i = 0; i < n; i += LANES)
        store(weights + i, exponential(_mm512_sub_ps(load(candidates + i), _mm512_set1_ps(most))));
}

// The weights of the scores above `limit`, summed. Short float sums, then doubles: counts are exact, masses nearly so.
double weight_above(const float *scores, const float *weights, int n, float limit) {
    constexpr int SHORT = 64 * LANES;
    double total = 0;
    for (int begin = 0; begin < n; begin += SHORT) {
        Vector sum = _mm512_setzero_ps();
        for (int i = begin, end = std::min(n, begin + SHORT); i < end; i += LANES) {
            const __mmask16 above =
                _mm512_mask_cmp_ps_mask(first(n - i), load(scores + i), _mm512_set1_ps(limit), _CMP_GT_OQ);
            sum = _mm512_mask_add_ps(sum, above, sum, load(weights + i));
        }
        total += _mm512_reduce_add_ps(sum);
    }
    return total;
}

// Candidates, unordered, with a weight each.
struct Candidates {
    float *scores, *weights;
    int n;
    float low, high;  // the lowest and the highest score

    Candidates(float *scores, float *weights, int n) : scores(scores), weights(weights), n(n) { keep(true, -INFINITY); }

    // Drop those that are not above `limit`, or else those that are.
    void keep(bool above, float limit) {
        Vector lowest = _mm512_set1_ps(INFINITY), highest = _mm512_set1_ps(-INFINITY);
        const __mmask16 turned = above ? 0 : 0xFFFF;
        int kept = 0;  // never ahead of i, so nothing is overwritten before it is read
        for (int i = 0; i < n; i += LANES) {
            const Vector v = load(scores + i), weight = load(weights + i);
            const __mmask16 stays = (_mm512_cmp_ps_mask(v, _mm512_set1_ps(limit), _CMP_GT_OQ) ^ turned) & first(n - i);
            lowest = _mm512_mask_min_ps(lowest, stays, lowest, v);
            highest = _mm512_mask_max_ps(highest, stays, highest, v);
            store(scores + kept, _mm512_maskz_compress_ps(stays, v));
            store(weights + kept, _mm512_maskz_compress_ps(stays, weight));
            kept += __builtin_popcount(stays);
        }
        n = kept;
        low = _mm512_reduce_min_ps(lowest), high = _mm512_reduce_max_ps(highest);
    }

    // A number in [low, high), about half-way: both sides of it are inhabited.
    float middle() const {
        const float half_way = std::max(low, 0.5f * low + 0.5f * high);
        return half_way < high ? half_way : low;
    }
};

// The lowest score such that the weights of all that are above it come to less than `enough`. What is equal stays
// together. A weighted quickselect (Hoare's "Find", CACM 4(7), 1961) with the middle of the range as its pivot: the
// range at least halves each time, whatever the scores are.
float cut(Candidates among, double enough) {
    double above = 0;
    while (among.low < among.high) {
        const float pivot = among.middle();
        const double more = weight_above(among.scores, among.weights, among.n, pivot);
        const bool too_much = above + more >= enough;
        if (!too_much) above += more;
        among.keep(too_much, pivot);
    }
    return among.low;
}

// What a score must be at least to pass min-p, then top-k, then top-p in a row whose highest score is `most`.
float least_kept(const Draws &draws, int i, float most, Scratch &the) {
    const int width = draws.width;
    const int64_t top_k = draws.top_k[i];
    const float top_p = draws.top_p[i];
    float least = most + logf(draws.min_p[i]);
    if (0 < top_k && top_k < width) {
        const int n = collect(the.scores, width, least, the.candidates);
        std::fill(the.weights, the.weights + n, 1.0f);
        least = cut({the.candidates, the.weights, n}, (double)top_k);
    }
    if (top_p < 1) {
        const int n = collect(the.scores, width, least, the.candidates);
        weigh(the.candidates, n, most, the.weights);
        const double all = weight_above(the.candidates, the.weights, n, -INFINITY);
        least = cut({the.candidates, the.weights, n}, top_p * all);
    }
    return least;
}

// ---- Noise

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014; constants of Vigna's public-domain splitmix64.c), as in
// pellucid/runtime/noise.py: the same 64 bits, and the same float steps from there to the noise.
constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15, FIRST = 0xBF58476D1CE4E5B9, SECOND = 0x94D049BB133111EB;

inline __m512i everywhere(uint64_t number) { return _mm512_set1_epi64((long long)number); }

inline __m512i mix(__m512i z) {
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 30));
    z = _mm512_mullo_epi64(z, everywhere(FIRST));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 27));
    z = _mm512_mullo_epi64(z, everywhere(SECOND));
    return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}

// Numbers token .. token + 15 of a stream, uniform in (0, 1).
inline Vector uniform(uint64_t key, int token) {
    const __m512i counts = _mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 8);
    const __m512i steps = _mm512_mullo_epi64(counts, everywhere(GAMMA));
    const __m512i counter = _mm512_add_epi64(everywhere(key + (uint64_t)token * GAMMA), steps);
    const __m512i one = mix(counter), other = mix(_mm512_add_epi64(counter, everywhere(8 * GAMMA)));
    const __m256 low = _mm512_cvtepu64_ps(_mm512_srli_epi64(one, 11));
    const __m256 high = _mm512_cvtepu64_ps(_mm512_srli_epi64(other, 11));
    const Vector whole = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    const Vector u = _mm512_mul_ps(_mm512_add_ps(whole, _mm512_set1_ps(0.5f)), _mm512_set1_ps(0x1p-53f));
    return _mm512_min_ps(u, _mm512_set1_ps(1 - 0x1p-24f));
}

inline float gumbel(float u) { return -logf(-log1pf(-u)); }

// No less than gumbel(u), and more by less than 0.07 where u is small. As -log(1 - u) >= u, the noise is at most
// -log(u); and a float's bits, read as an integer, are 2^23 · (log2(u) + 127) or up to 0.0861 · 2^23 less. The last
// digits of all these steps are far below the 1e-3 on top.
inline Vector most_noise(Vector u) {
    constexpr float LOG_2 = 0.69314718f;
    const Vector bits = _mm512_cvtepi32_ps(_mm512_castps_si512(u));
    return _mm512_fnmadd_ps(bits, _mm512_set1_ps(LOG_2 * 0x1p-23f), _mm512_set1_ps(127 * LOG_2 + 1e-3f));
}

// The token, of those that score `least` or more, with the largest sum of score and noise, the lowest of equals; the
// sum goes to `won`. Logarithms are taken of the few tokens only whose noise may be enough.
int win(const float *scores, int width, float least, uint64_t key, float &won) {
    int winner = 0;
    won = -INFINITY;
    for (int i = 0; i < width; i += LANES) {
        const Vector v = load(scores + i, width - i);
        const __mmask16 kept = _mm512_mask_cmp_ps_mask(first(width - i), v, _mm512_set1_ps(least), _CMP_GE_OQ);
        if (!kept) continue;
        const Vector u = uniform(key, i);
        unsigned able = _mm512_mask_cmp_ps_mask(kept, _mm512_add_ps(v, most_noise(u)), _mm512_set1_ps(won), _CMP_GT_OQ);
        if (!able) continue;
        Line numbers;
        store(numbers.of, u);
        for (; able; able &= able - 1) {
            const int lane = __builtin_ctz(able);
            const float sum = scores[i + lane] + gumbel(numbers.of[lane]);
            if (sum > won) won = sum, winner = i + lane;
        }
    }
    return winner;
}

void draw_row(const Draws &draws, int i, Scratch &the) {
    const float most = scale(draws.x + draws.rows[i] * draws.stride, draws.width, draws.temperature[i], the.scores);
    Decision decision = {most, most};
    if (isfinite(most)) {
        decision.least = least_kept(draws, i, most, the);
        draws.tokens[i] = win(the.scores, draws.width, decision.least, (uint64_t)draws.keys[i], decision.won);
    } else {
        draws.tokens[i] = first_best(the.scores, draws.width);
    }
    if (draws.decisions) draws.decisions[i] = decision;
}

}  // namespace

void draw(const Draws &draws) {
    each_row(draws.count, draws.width, [&](int i) {
        thread_local Scratch scratch(draws.width);
        scratch.make_room(draws.width);
        draw_row(draws, i, scratch);
    });
}

}  // namespace pellucid
VECTORS_END
#endif
