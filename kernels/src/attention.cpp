#include "attention.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "team.h"
#include "vector.h"

#if defined(__x86_64__)
VECTORS_BEGIN
namespace pellucid {
namespace {

// Keys are taken 64 at a time, counted from the first token of the request, with a running maximum and sum (Milakov
// and Gimelshein, arXiv:1805.02867). A query's sums depend on its own position alone, not on how many other
// queries are computed beside it: a chunk of a prefill, a whole one and a decoding step give the same bits.
constexpr int KEYS = 64;
constexpr int KEY_VECTORS = KEYS / LANES;
constexpr int QUERIES = 16;  // of a request that go through the keys together
constexpr int TOGETHER = 4;  // rows whose sums are in registers at once

// Turn 16 rows of 16 words into 16 columns, in place.
inline void transpose(__m512i (&v)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
        v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
    }
}

// One query of one head on its way through the keys.
struct Row {
    float most, sum, fade;
    alignas(64) float weights[KEYS];    // of the present keys; for bfloat16, rounded and two to a word
    alignas(64) float mixed[MOST_DIM];  // Σ weight · value so far
};

// The present keys and values, turned the way in which they are read.
template <class T>
struct Turned {
    alignas(64) float keys[MOST_DIM / PER_WORD<T> * KEYS];  // [word][key]
    alignas(64) float values[KEYS / 2 * MOST_DIM + LANES];  // bfloat16 only: [pair of keys][dimension] words
};

// Some neighbouring queries of one request, for all query heads that read the KV heads from `head` to `end_head`.
template <class T>
class Tile {
  public:
    Tile(const Attention<T> &step, int request, int head, int end_head, int query, Row *rows, Turned<T> &turned)
        : step_(step), rows_(rows), head_(head), end_head_(end_head), keys_(turned.keys), values_(turned.values) {
        const int start = step.query_start[request], end = step.query_start[request + 1];
        group_ = step.heads / step.kv_heads;
        first_ = start + query;
        count_ = end - first_ < QUERIES ? end - first_ : QUERIES;
        position_ = step.contexts[request] - (end - first_);
        table_ = step.tables + request * step.table_stride;
        shift_ = __builtin_ctz(step.block_size);
        const int turns = (end_head - head) * (KEYS / LANES) * ((words() + LANES - 1) / LANES);
        per_turn_ = (KEYS + turns - 1) / turns;
        scale_ = 1.0f / __builtin_sqrtf((float)step.dim);
    }

    // `then` is the tile that follows, if any: its first keys are fetched while this one has its last.
    void attend(const Tile *then) {
        const int rows = count_ * group_, heads = end_head_ - head_;
        for (int r = 0; r < rows * heads; ++r) {
            rows_[r].most = -__builtin_inff();
            rows_[r].sum = 0;
            memset(rows_[r].mixed, 0, sizeof(float) * ((step_.dim + LANES - 1) / LANES * LANES));
        }
        const int seen = position_ + count_;
        for (int key = 0; key < seen; key += KEYS) {
            if (key + KEYS < seen)
                fetch_next(*this, key + KEYS);
            else if (then)
                fetch_next(*then, 0);
            else
                fetched_ = to_fetch_ = 0;
            // The heads of a token lie side by side in memory, so they take turns in each round.
            for (int head = head_; head < end_head_; ++head)
                look_around(head, rows_ + (head - head_) * rows, key, seen - key < KEYS ? seen - key : KEYS);
        }
        for (int head = head_; head < end_head_; ++head)
            for (int r = 0; r < rows; ++r) write(rows_[(head - head_) * rows + r], head, r);
    }

  private:
    // How many of the keys from `key` on the query of row `r` sees.
    int visible(int r, int key) const {
        const int left = position_ + r / group_ + 1 - key;
        return left < KEYS ? left : KEYS;
    }

    const T *query(int head, int r) const {
        return step_.q + (first_ + r / group_) * step_.q_stride + (head * group_ + r % group_) * step_.dim;
    }

    // Where the K and V of token `at` lie in the pools, for a KV head.
    long place(int at, int head) const {
        const long slot = ((long)table_[at >> shift_] << shift_) + (at & (step_.block_size - 1));
        return (slot * step_.kv_heads + head) * step_.dim;
    }

    // Blocks lie anywhere in memory, so the processor cannot guess what comes next: it is told one round ahead, a
    // few tokens at a time between other work, since it can wait for only so many lines at once.
    void fetch_next(const Tile &tile, int key) {
        next_ = &tile;
        fetched_ = key;
        const int seen = tile.position_ + tile.count_;
        to_fetch_ = seen - key < KEYS ? seen : key + KEYS;
    }

    void fetch_some(int tokens) {
        for (; tokens > 0 && fetched_ < to_fetch_; --tokens, ++fetched_) {
            const long from = next_->place(fetched_, next_->head_),
                       end = from + (next_->end_head_ - next_->head_) * step_.dim;
            for (long line = from; line < end; line += 64 / (int)sizeof(T)) {
                _mm_prefetch(step_.k_pool + line, _MM_HINT_T1);
                _mm_prefetch(step_.v_pool + line, _MM_HINT_T1);
            }
        }
    }

    // The rows of one KV head, at the `count` keys from `key` on.
    void look_around(int head, Row *rows, int key, int count) {
        bring(head, key, count);
        for (int r = 0, together; r < count_ * group_; r += together) {
            const int some = visible(r, key);
            for (together = 1; together < TOGETHER && r + together < count_ * group_; ++together)
                if (visible(r + together, key) != some) break;
            const T *q[TOGETHER];
            for (int i = 0; i < together; ++i) q[i] = query(head, r + i);
            if (some > 0) look_together(q, rows + r, together, some);
        }
    }

    int words() const { return step_.dim / PER_WORD<T>; }

    // Find the next `count` keys and values through the table, and turn them the way in which they are read.
    void bring(int head, int key, int count) {
        for (int i = 0; i < count; ++i) {
            const long at = place(key + i, head);
            k_[i] = step_.k_pool + at;
            v_[i] = step_.v_pool + at;
        }
        for (int i = 0; i < count; i += LANES)
            for (int word = 0; word < words(); word += LANES) {
                fetch_some(per_turn_);
                if (count - i >= LANES && words() - word >= LANES)
                    turn<true>(i, word, LANES);
                else
                    turn<false>(i, word, count - i);
            }
        bring_values(T{}, count);
    }

    // 16 words of 16 keys, of which `count` are there, and all of them if it is `whole`.
    template <bool whole>
    void turn(int i, int word, int count) {
        const __mmask16 some = first(words() - word);
        __m512i v[16];
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            if (whole)
                v[j] = _mm512_loadu_si512(k_[i + j] + word * PER_WORD<T>);
            else
                v[j] =
                    j < count ? _mm512_maskz_loadu_epi32(some, k_[i + j] + word * PER_WORD<T>) : _mm512_setzero_si512();
        }
        transpose(v);
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j)
            if (whole || word + j < words()) _mm512_store_si512(keys_ + (word + j) * KEYS + i, v[j]);
    }

    void bring_values(float, int) {}  // are read where they are

    // Two neighbouring tokens to a word, for each dimension; after the last token, zeros.
    void bring_values(bf16, int count) {
        const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                             37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        for (int i = 0; i < count; i += 2)
            for (int d = 0; d < step_.dim; d += 2 * LANES) {
                const __mmask32 some = step_.dim - d >= 32 ? ~0u : (1u << (step_.dim - d)) - 1;
                const __m512i one = _mm512_maskz_loadu_epi16(some, v_[i] + d);
                const __m512i other =
                    i + 1 < count ? _mm512_maskz_loadu_epi16(some, v_[i + 1] + d) : _mm512_setzero_si512();
                float *to = values_ + i / 2 * step_.dim + d;
                _mm512_storeu_si512(to, _mm512_permutex2var_epi16(one, low, other));
                if (step_.dim - d > LANES) _mm512_storeu_si512(to + LANES, _mm512_permutex2var_epi16(one, high, other));
            }
    }

    // Vector `part` of the values of word `i` (one token, or two) from dimension `d` on.
    Vector value(float, int i, int d, int count) const { return load((const float *)v_[i] + d, count); }
    Vector value(bf16, int i, int d, int count) const { return load(values_ + i * step_.dim + d, count); }

    void look_together(const T *const *q, Row *rows, int together, int count) {
        switch (together) {
            case 1:
                return look<1>(q, rows, count);
            case 2:
                return look<2>(q, rows, count);
            case 3:
                return look<3>(q, rows, count);
            default:
                return look<4>(q, rows, count);
        }
    }

    // Rows that each see the first `count` of the present keys.
    template <int ROWS>
    void look(const T *const *q, Row *rows, int count) {
        if (count > KEYS - LANES)
            score<ROWS, KEY_VECTORS>(q, rows, 0);
        else
            for (int i = 0; i < count; i += LANES) score<ROWS, 1>(q, rows, i);
        for (int i = 0; i < ROWS; ++i) weigh(rows[i], count);
        int d = 0;
        for (; d + 4 * LANES <= step_.dim; d += 4 * LANES) mix<ROWS, 4>(rows, d, count);
        for (; d < step_.dim; d += LANES) mix<ROWS, 1>(rows, d, count);
    }

    template <int ROWS, int VECTORS>
    void score(const T *const *q, Row *rows, int at) {
        Vector sum[ROWS][VECTORS];
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) sum[i][v] = _mm512_setzero_ps();
        for (int word = 0; word < words(); ++word) {
            Vector key[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) key[v] = _mm512_load_ps(keys_ + word * KEYS + at + v * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; ++i) {
                const Vector one = word_everywhere(q[i] + word * PER_WORD<T>);
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; ++v) sum[i][v] = times(T{}, sum[i][v], one, key[v]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v)
                _mm512_store_ps(rows[i].weights + at + v * LANES, _mm512_mul_ps(sum[i][v], _mm512_set1_ps(scale_)));
    }

    // From scores to weights, relative to the largest score so far.
    static void weigh(Row &row, int count) {
        Vector most = _mm512_set1_ps(row.most);
        for (int i = 0; i < count; i += LANES)
            most = _mm512_mask_max_ps(most, first(count - i), most, _mm512_load_ps(row.weights + i));
        const float new_most = _mm512_reduce_max_ps(most);
        row.fade = row.sum == 0 ? 0.0f : _mm512_cvtss_f32(exponential(_mm512_set1_ps(row.most - new_most)));
        row.most = new_most;
        Vector sum = _mm512_setzero_ps();
        for (int i = 0; i < count; i += LANES) {
            const Vector score = _mm512_sub_ps(_mm512_load_ps(row.weights + i), _mm512_set1_ps(new_most));
            const Vector weight = keep(T{}, row, i, _mm512_maskz_mov_ps(first(count - i), exponential(score)));
            sum = _mm512_add_ps(sum, weight);
        }
        row.sum = row.sum * row.fade + _mm512_reduce_add_ps(sum);
    }

    static Vector keep(float, Row &row, int at, Vector weight) {
        _mm512_store_ps(row.weights + at, weight);
        return weight;
    }

    static Vector keep(bf16, Row &row, int at, Vector weight) {  // what is summed is what is multiplied with
        bf16 *to = reinterpret_cast<bf16 *>(row.weights) + at;
        store(to, weight);
        return load(to);
    }

    template <int ROWS, int PARTS>
    void mix(Row *rows, int d, int count) {
        Vector part[ROWS][PARTS];
        const int lanes = PARTS == 1 ? step_.dim - d : LANES;
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; ++p)
                part[i][p] = _mm512_mul_ps(_mm512_load_ps(rows[i].mixed + d + p * LANES), _mm512_set1_ps(rows[i].fade));
        const auto add = [&](int word, int seen) __attribute__((always_inline)) {
            Vector v[PARTS];
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; ++p) {
                v[p] = value(T{}, word, d + p * LANES, lanes);
                if (seen != ~0) v[p] = _mm512_and_ps(v[p], _mm512_castsi512_ps(_mm512_set1_epi32(seen)));
            }
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; ++i) {
                const Vector weight = word_everywhere(rows[i].weights + word);
#pragma GCC unroll 4
                for (int p = 0; p < PARTS; ++p) part[i][p] = times(T{}, part[i][p], weight, v[p]);
            }
        };
        for (int word = 0; word < count / PER_WORD<T>; ++word) add(word, ~0);
        if (count % PER_WORD<T>) add(count / PER_WORD<T>, 0xFFFF);  // a later token's value may be no number at all
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; ++p) _mm512_store_ps(rows[i].mixed + d + p * LANES, part[i][p]);
    }

    void write(const Row &row, int head, int r) const {
        T *out = step_.out + (first_ + r / group_) * step_.out_stride + (head * group_ + r % group_) * step_.dim;
        const Vector share = _mm512_set1_ps(1.0f / row.sum);
        for (int d = 0; d < step_.dim; d += LANES)
            store(out + d, _mm512_mul_ps(_mm512_load_ps(row.mixed + d), share), step_.dim - d);
    }

    const Attention<T> &step_;
    Row *rows_;
    int head_, end_head_, group_, first_, count_, position_, shift_;
    const int32_t *table_;
    float scale_;
    const Tile *next_ = nullptr;
    int fetched_ = 0, to_fetch_ = 0, per_turn_;
    const T *k_[KEYS], *v_[KEYS];
    float *const keys_, *const values_;
};

template <class T>
void write_slots(const Attention<T> &step) {
    const long token = (long)step.kv_heads * step.dim;
    for (long t = 0; t < step.tokens; ++t) {
        memcpy(step.k_pool + step.slots[t] * token, step.k + t * step.k_stride, token * sizeof(T));
        memcpy(step.v_pool + step.slots[t] * token, step.v + t * step.v_stride, token * sizeof(T));
    }
}

struct Place {
    int request, query;
};

// Tiles of queries, each request's last one first: it is the longest.
template <class T>
std::vector<Place> tiles(const Attention<T> &step) {
    std::vector<Place> all;
    for (int request = 0; request < step.requests; ++request) {
        const int start = step.query_start[request], queries = step.query_start[request + 1] - start;
        if (step.contexts[request] == 0)  // padding
            for (int t = 0; t < queries; ++t)
                memset(step.out + (start + t) * step.out_stride, 0, sizeof(T) * step.heads * step.dim);
        else
            for (int query = (queries - 1) / QUERIES * QUERIES; query >= 0; query -= QUERIES)
                all.push_back({request, query});
    }
    return all;
}

}  // namespace

template <class T>
void attend(const Attention<T> &step) {
    write_slots(step);
    const std::vector<Place> all = tiles(step);
    // A few requests are shared out by their heads.
    const int split = (int)all.size() < 4 * team_size() ? step.kv_heads : 1, heads = step.kv_heads / split;
    std::atomic<size_t> next{0};
    together([&] {
        thread_local std::vector<Row> rows;
        rows.resize(std::max(rows.size(), (size_t)(QUERIES * (step.heads / split))));
        Turned<T> turned;
        std::optional<Tile<T>> pair[2];  // the present tile, and the one that follows
        const auto take = [&](std::optional<Tile<T>> &tile) {
            const size_t at = next.fetch_add(1, std::memory_order_relaxed);
            if (at >= all.size() * split) return tile.reset();
            const Place &place = all[at / split];
            const int head = (int)(at % split) * heads;
            tile.emplace(step, place.request, head, head + heads, place.query, rows.data(), turned);
        };
        take(pair[0]);
        for (int present = 0; pair[present]; present = 1 - present) {
            take(pair[1 - present]);
            pair[present]->attend(pair[1 - present] ? &*pair[1 - present] : nullptr);
        }
    });
    for (int t = step.query_start[step.requests]; t < step.tokens; ++t)  // padding behind the last request
        memset(step.out + t * step.out_stride, 0, sizeof(T) * step.heads * step.dim);
}

template void attend(const Attention<float> &);
template void attend(const Attention<bf16> &);

}  // namespace pellucid
VECTORS_END
#endif
