#include "product.h"

#include <string.h>

#include <algorithm>
#include <vector>

#include "team.h"
#include "vector.h"

#if defined(__x86_64__)
VECTORS_BEGIN
namespace pellucid {
namespace {

constexpr int MOST_ROWS = 12;
constexpr int MOST_PANELS = 4;
constexpr int HALVES = PANEL / LANES;
constexpr int NIBBLES = GROUP / 8 * PANEL * (int)sizeof(uint32_t);  // bytes of one plane of 4 bits of a group
constexpr int SCALES = PANEL * (int)sizeof(uint16_t);               // bytes of one float16 a row

// Sums of one tile: [row][panel][32].
using Tile = float[MOST_ROWS][MOST_PANELS * PANEL];

// -- how a panel of each kind is summed ---------------------------------------------------------------------------

template <int ROWS, int PANELS>
struct Sums {
    Vector sum[ROWS][PANELS][HALVES];

    inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; ++h) sum[r][p][h] = _mm512_setzero_ps();
    }

    inline __attribute__((always_inline)) void put(Tile &tile, int at) const {
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; ++h) _mm512_storeu_ps(&tile[r][(at + p) * PANEL + h * LANES], sum[r][p][h]);
    }
};

// Numbers of type T: a panel is [word of the depth][32].
template <class T, int ROWS, int PANELS>
void sum_words(const Product &job, int row, const char *w, size_t panel, Tile &tile, int at, Ahead &ahead) {
    Sums<ROWS, PANELS> sums;
    sums.clear();
    const long stride = job.x_stride;
    const T *x = static_cast<const T *>(job.x) + row * stride;
    for (int left = job.depth / PER_WORD<T>, some; left > 0; left -= some) {
        ahead.fetch_some();
        some = std::min(left, 16);
        for (int word = 0; word < some; ++word, x += PER_WORD<T>, w += PANEL * PER_WORD<T> * sizeof(T)) {
            Vector weights[PANELS][HALVES];
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; ++h) weights[p][h] = _mm512_loadu_ps(w + p * panel + h * sizeof(Vector));
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; ++r) {
                const Vector one = word_everywhere(x + r * stride);
#pragma GCC unroll 4
                for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                    for (int h = 0; h < HALVES; ++h)
                        sums.sum[r][p][h] = times(T{}, sums.sum[r][p][h], one, weights[p][h]);
            }
        }
    }
    sums.put(tile, at);
}

// 4-bit numbers become bfloat16 by looking them up: the low 5 bits of each 16 choose one of 32 entries, of which
// the upper half repeats the lower, so the fifth bit, a neighbour's, does not matter.
inline __m512i table_of(int base, int scale) {
    alignas(64) bf16 entries[32];
    for (int i = 0; i < 32; ++i) {
        const float value = static_cast<float>(scale * (((i & 15) ^ base) - base));
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        entries[i] = static_cast<bf16>(bits >> 16);  // exact: at most 5 significant bits
    }
    return _mm512_load_si512(entries);
}

inline Vector looked_up(__m512i numbers, __m512i table) {
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(numbers, table));
}

inline Vector half_floats(const char *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}

// One plane of a group: [4][32 outputs] words of 8 numbers, those of even depth in the low 16 bits of a word.
template <int ROWS, int PANELS>
inline __attribute__((always_inline)) void sum_plane(Sums<ROWS, PANELS> &sums, const bf16 *x, long stride,
                                                     const char *w, size_t panel, __m512i table) {
#pragma GCC unroll 4
    for (int word = 0; word < GROUP / 8; ++word) {
        __m512i numbers[PANELS][HALVES];
#pragma GCC unroll 4
        for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; ++h)
                numbers[p][h] = _mm512_loadu_si512(w + p * panel + (word * HALVES + h) * sizeof(Vector));
#pragma GCC unroll 4
        for (int step = 0; step < 4; ++step) {
            Vector weights[PANELS][HALVES];
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; ++h)
                    weights[p][h] = looked_up(_mm512_srli_epi16(numbers[p][h], 4 * step), table);
#pragma GCC unroll 6
            for (int r = 0; r < ROWS; ++r) {
                const Vector two = word_everywhere(x + r * stride + word * 8 + step * 2);
#pragma GCC unroll 4
                for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                    for (int h = 0; h < HALVES; ++h)
                        sums.sum[r][p][h] = times(bf16{}, sums.sum[r][p][h], two, weights[p][h]);
            }
        }
    }
}

// sums += scale · group, lane by lane.
template <int ROWS, int PANELS>
inline __attribute__((always_inline)) void add_scaled(Sums<ROWS, PANELS> &sums, const Sums<ROWS, PANELS> &group,
                                                      const char *scales, size_t panel) {
#pragma GCC unroll 4
    for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; ++h) {
            const Vector scale = half_floats(scales + p * panel + h * (SCALES / HALVES));
#pragma GCC unroll 6
            for (int r = 0; r < ROWS; ++r)
                sums.sum[r][p][h] = _mm512_fmadd_ps(scale, group.sum[r][p][h], sums.sum[r][p][h]);
        }
}

template <int ROWS, int PANELS>
void sum_four(const Product &job, int row, const char *w, size_t panel, Tile &tile, int at, Ahead &ahead) {
    const __m512i table = table_of(0, 1);
    Sums<ROWS, PANELS> sums, group;
    sums.clear();
    const bf16 *x = static_cast<const bf16 *>(job.x) + row * job.x_stride;
    for (int k = 0; k < job.depth; k += GROUP, w += NIBBLES + 2 * SCALES) {
        ahead.fetch_some();
        group.clear();
        sum_plane<ROWS, PANELS>(group, x + k, job.x_stride, w, panel, table);
        add_scaled<ROWS, PANELS>(sums, group, w + NIBBLES, panel);
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r) {  // + least · (sum of x)
            const Vector sum = _mm512_set1_ps(job.x_sums[(long)(row + r) * (job.depth / GROUP) + k / GROUP]);
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; ++p)
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; ++h) {
                    const Vector least = half_floats(w + p * panel + NIBBLES + SCALES + h * (SCALES / HALVES));
                    sums.sum[r][p][h] = _mm512_fmadd_ps(least, sum, sums.sum[r][p][h]);
                }
        }
    }
    sums.put(tile, at);
}

template <int ROWS, int PANELS>
void sum_eight(const Product &job, int row, const char *w, size_t panel, Tile &tile, int at, Ahead &ahead) {
    const __m512i low = table_of(0, 1), high = table_of(8, 16);  // q = low + 16 · high, high from -8 to 7
    Sums<ROWS, PANELS> sums, group;
    sums.clear();
    const bf16 *x = static_cast<const bf16 *>(job.x) + row * job.x_stride;
    for (int k = 0; k < job.depth; k += GROUP, w += 2 * NIBBLES + SCALES) {
        ahead.fetch_some();
        group.clear();
        sum_plane<ROWS, PANELS>(group, x + k, job.x_stride, w, panel, low);
        sum_plane<ROWS, PANELS>(group, x + k, job.x_stride, w + NIBBLES, panel, high);
        add_scaled<ROWS, PANELS>(sums, group, w + 2 * NIBBLES, panel);
    }
    sums.put(tile, at);
}

// -- which sizes of tile --------------------------------------------------------------------------------------------

using Sum = void (*)(const Product &, int row, const char *w, size_t panel, Tile &, int at, Ahead &);

// A tile keeps its sums, and those of its group if it has any, in at most 24 of the 32 registers.
constexpr int panels_for(int rows, int sums) {
    const int panels = 24 / (sums * HALVES * rows);
    return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

struct Shape {
    int panels;  // that `wide` sums side by side
    Sum wide, narrow;
};

template <int ROWS>
Shape shape_of(Weight kind) {
    constexpr int plain = panels_for(ROWS, 1), quantised = panels_for(ROWS, 2);
    if (kind == Weight::f32) return {plain, sum_words<float, ROWS, plain>, sum_words<float, ROWS, 1>};
    if (kind == Weight::bf16) return {plain, sum_words<bf16, ROWS, plain>, sum_words<bf16, ROWS, 1>};
    if constexpr (ROWS <= MOST_ROWS / 2) {
        if (kind == Weight::four) return {quantised, sum_four<ROWS, quantised>, sum_four<ROWS, 1>};
        return {quantised, sum_eight<ROWS, quantised>, sum_eight<ROWS, 1>};
    }
    return {};
}

int most_rows(Weight kind) { return kind == Weight::f32 || kind == Weight::bf16 ? MOST_ROWS : MOST_ROWS / 2; }

Shape shape(Weight kind, int rows) {
    using Of = Shape (*)(Weight);
    static const Of of[MOST_ROWS] = {shape_of<1>, shape_of<2>, shape_of<3>, shape_of<4>,  shape_of<5>,  shape_of<6>,
                                     shape_of<7>, shape_of<8>, shape_of<9>, shape_of<10>, shape_of<11>, shape_of<12>};
    return of[rows - 1](kind);
}

// -- what becomes of the sums ---------------------------------------------------------------------------------------

template <class T>
void finish(const Product &job, int row, int rows, int panel, int panels, const Tile &tile) {
    T *out = static_cast<T *>(job.out) + row * job.out_stride;
    if (job.into == Into::gated) {
        for (int r = 0; r < rows; ++r)
            for (int p = 0; p + 1 < panels; p += 2)
                for (int lane = 0; lane < PANEL; lane += LANES) {
                    const int at = (panel + p) / 2 * PANEL + lane, left = job.width / 2 - at;
                    if (left <= 0) break;
                    const Vector gate = _mm512_loadu_ps(&tile[r][p * PANEL + lane]);
                    const Vector up = _mm512_loadu_ps(&tile[r][(p + 1) * PANEL + lane]);
                    store(out + r * job.out_stride + at, _mm512_mul_ps(silu(gate), up), left);
                }
        return;
    }
    for (int r = 0; r < rows; ++r)
        for (int lane = 0; lane < panels * PANEL; lane += LANES) {
            const int at = panel * PANEL + lane, left = job.width - at;
            if (left <= 0) break;
            Vector sum = _mm512_loadu_ps(&tile[r][lane]);
            if (job.bias) sum = _mm512_add_ps(sum, load(job.bias + at, left));
            T *to = out + r * job.out_stride + at;
            if (job.into == Into::added) sum = _mm512_add_ps(sum, load(to, left));
            store(to, sum, left);
        }
}

void finish(const Product &job, int row, int rows, int panel, int panels, const Tile &tile) {
    if (job.kind == Weight::f32 || job.into == Into::f32)
        finish<float>(job, row, rows, panel, panels, tile);
    else
        finish<bf16>(job, row, rows, panel, panels, tile);
}

// The panels from `panel` to `end` for `rows` rows from `row` on. A gate and what it gates stay together.
void fill(const Product &job, int row, int rows, int panel, int end, Ahead &ahead) {
    const size_t bytes = panel_bytes(job.kind, job.depth);
    const Shape of = shape(job.kind, rows);
    const int together = job.into == Into::gated && of.panels == 1 ? 2 : of.panels;
    Tile tile;
    for (int count; panel < end; panel += count) {
        count = end - panel < together ? end - panel : together;
        const char *w = job.w + panel * bytes;
        int done = 0;
        for (; done + of.panels <= count; done += of.panels)
            of.wide(job, row, w + done * bytes, bytes, tile, done, ahead);
        for (; done < count; ++done) of.narrow(job, row, w + done * bytes, bytes, tile, done, ahead);
        finish(job, row, rows, panel, count, tile);
    }
}

// The sum of x over each group, by which the least weight of the group is multiplied: [rows][depth / 32].
void sums_of_groups(const Product &job, std::vector<float> &sums) {
    const int groups = job.depth / GROUP;
    sums.resize((size_t)job.rows * groups);
    for (int row = 0; row < job.rows; ++row)
        for (int g = 0; g < groups; ++g) {
            const bf16 *x = static_cast<const bf16 *>(job.x) + row * job.x_stride + g * GROUP;
            sums[(size_t)row * groups + g] = _mm512_reduce_add_ps(_mm512_add_ps(load(x), load(x + LANES)));
        }
}

// Units that a thread takes at once: at most 3, and so that every thread gets as many in the end.
long units_at_once(long units) {
    const auto rounded_up = [](long a, long b) { return (a + b - 1) / b; };
    const long each = rounded_up(units, team_size());
    return rounded_up(each, rounded_up(each, 3));
}

}  // namespace

void multiply(Product job) {
    thread_local std::vector<float> sums;
    if (job.kind == Weight::four) {
        sums_of_groups(job, sums);
        job.x_sums = sums.data();
    }
    const int unit = job.into == Into::gated ? 2 : 1;  // panels that must stay together
    const long units = (job.width + PANEL * unit - 1) / (PANEL * unit), at_once = units_at_once(units);
    const int tiles = (job.rows + most_rows(job.kind) - 1) / most_rows(job.kind);
    const size_t bytes = unit * panel_bytes(job.kind, job.depth);
    // While it multiplies several tiles with some panels, a thread fetches those with which it goes on: here, or in
    // the product that follows. A single tile reads them as fast as memory gives them.
    const auto ahead_of = [&](long next) -> Ahead {
        if (tiles == 1) return {nullptr, 0, nullptr};
        if (next < units) return {job.w + next * bytes, std::min(at_once, units - next) * bytes, job.pieces};
        if (job.then) return {job.then + (next - units) * bytes, at_once * bytes, job.pieces};
        return {nullptr, 0, job.pieces};
    };
    share_out_ahead(units, at_once, [&](long begin, long end, long next) {
        Ahead ahead = ahead_of(next);
        for (int tile = 0; tile < tiles; ++tile) {
            const long row = (long)job.rows * tile / tiles, end_row = (long)job.rows * (tile + 1) / tiles;
            fill(job, (int)row, (int)(end_row - row), (int)begin * unit, (int)end * unit, ahead);
        }
    });
}

size_t panel_bytes(Weight kind, int depth) {
    switch (kind) {
        case Weight::f32:
            return (size_t)depth * PANEL * sizeof(float);
        case Weight::bf16:
            return (size_t)depth * PANEL * sizeof(bf16);
        case Weight::four:
            return (size_t)(depth / GROUP) * (NIBBLES + 2 * SCALES);
        case Weight::eight:
            return (size_t)(depth / GROUP) * (2 * NIBBLES + SCALES);
    }
    return 0;
}

namespace {

// The place of number `k` of a group, for output `lane`, in a plane: which word, and how far up in it.
struct Nibble {
    int word, shift;
    Nibble(int k, int lane) : word((k / 8) * PANEL + lane), shift((k % 2) * 16 + (k % 8) / 2 * 4) {}
};

void pack_four(const uint8_t *group, bool least, char *to, int lane) {
    uint32_t *words = reinterpret_cast<uint32_t *>(to);
    uint16_t scale, offset;
    memcpy(&scale, group, 2);
    if (least)
        memcpy(&offset, group + 2, 2);
    else
        offset = _cvtss_sh(-8 * _cvtsh_ss(scale), 0);  // Q4_0: scale · (q - 8)
    const uint8_t *bytes = group + (least ? 4 : 2);
    for (int k = 0; k < GROUP; ++k) {
        const uint32_t q = k < GROUP / 2 ? bytes[k] & 15 : bytes[k - GROUP / 2] >> 4;
        const Nibble at(k, lane);
        words[at.word] |= q << at.shift;
    }
    memcpy(to + NIBBLES + lane * 2, &scale, 2);
    memcpy(to + NIBBLES + SCALES + lane * 2, &offset, 2);
}

void pack_eight(const uint8_t *group, char *to, int lane) {
    uint32_t *low = reinterpret_cast<uint32_t *>(to), *high = reinterpret_cast<uint32_t *>(to + NIBBLES);
    for (int k = 0; k < GROUP; ++k) {
        const Nibble at(k, lane);
        low[at.word] |= (uint32_t)(group[2 + k] & 15) << at.shift;
        high[at.word] |= (uint32_t)(group[2 + k] >> 4) << at.shift;
    }
    memcpy(to + 2 * NIBBLES + lane * 2, group, 2);
}

void pack_row(Weight kind, const void *source, bool least, int depth, long row, char *panel, int lane) {
    const int groups = depth / GROUP;
    const size_t from = kind == Weight::eight ? 34 : least ? 20 : 18, to = panel_bytes(kind, GROUP);
    for (int g = 0; g < groups; ++g) {
        const uint8_t *group = static_cast<const uint8_t *>(source) + (row * groups + g) * from;
        if (kind == Weight::four)
            pack_four(group, least, panel + g * to, lane);
        else
            pack_eight(group, panel + g * to, lane);
    }
}

float unpacked(Weight kind, const char *panel, int k, int lane) {
    const Nibble at(k % GROUP, lane);
    const char *group = panel + (size_t)(k / GROUP) * (panel_bytes(kind, GROUP));
    const uint32_t low = reinterpret_cast<const uint32_t *>(group)[at.word] >> at.shift & 15;
    const auto half_float = [&](int from) {
        uint16_t bits;
        memcpy(&bits, group + from + lane * 2, 2);
        return _cvtsh_ss(bits);
    };
    if (kind == Weight::four) return half_float(NIBBLES) * (float)low + half_float(NIBBLES + SCALES);
    const uint32_t high = reinterpret_cast<const uint32_t *>(group + NIBBLES)[at.word] >> at.shift & 15;
    return half_float(2 * NIBBLES) * (float)(int8_t)(low | high << 4);
}

// Numbers: the words (one float, or two bfloat16) of 32 rows side by side.
void pack_words(const uint32_t *source, int rows, int words, uint32_t *panel) {
    for (int word = 0; word < words; ++word)
        for (int lane = 0; lane < rows; ++lane) panel[word * PANEL + lane] = source[(long)lane * words + word];
}

}  // namespace

void unpack_rows(Weight kind, const char *w, int depth, const int64_t *rows, int how_many, void *out) {
    const size_t bytes = panel_bytes(kind, depth);
    for (int i = 0; i < how_many; ++i) {
        const char *panel = w + rows[i] / PANEL * bytes;
        const int lane = (int)(rows[i] % PANEL);
        for (int k = 0; k < depth; ++k) {
            const long at = (long)i * depth + k;
            if (kind == Weight::f32)
                static_cast<float *>(out)[at] = reinterpret_cast<const float *>(panel)[k * PANEL + lane];
            else if (kind == Weight::bf16)
                static_cast<bf16 *>(out)[at] =
                    reinterpret_cast<const bf16 *>(panel)[(k / 2 * PANEL + lane) * 2 + k % 2];
            else
                store(static_cast<bf16 *>(out) + at, _mm512_set1_ps(unpacked(kind, panel, k, lane)), 1);
        }
    }
}

void pack(Weight kind, const void *source, bool least, int width, int depth, char *w, int first, int step) {
    const size_t bytes = panel_bytes(kind, depth);
    const int panels = (width + PANEL - 1) / PANEL;
    share_out(panels, 1, [&](long begin, long end) {
        for (long p = begin; p < end; ++p) {
            char *panel = w + (first + p * step) * bytes;
            const int rows = (int)std::min((long)PANEL, width - p * PANEL);
            memset(panel, 0, bytes);
            if (kind == Weight::f32 || kind == Weight::bf16) {
                const int words = kind == Weight::f32 ? depth : depth / 2;
                pack_words(static_cast<const uint32_t *>(source) + p * PANEL * words, rows, words,
                           reinterpret_cast<uint32_t *>(panel));
            } else {
                for (int lane = 0; lane < rows; ++lane)
                    pack_row(kind, source, least, depth, p * PANEL + lane, panel, lane);
            }
        }
    });
}

}  // namespace pellucid
VECTORS_END
#endif
