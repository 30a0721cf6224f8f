// Fetching memory into the caches before it is read, a little at a time between multiplications: the processor waits
// for only so many lines at once, and all at once they would hold up the work.
#pragma once

#include <stddef.h>

#include <atomic>
#include <utility>
#include <vector>

namespace pellucid {

// Pieces of memory, of one size, that are read soon: whichever thread finds the time fetches the next.
class Pieces {
  public:
    Pieces(std::vector<const char *> first, size_t bytes) : bytes(bytes), first_(std::move(first)) {}

    // The next piece, or null after the last.
    const char *take() {
        const size_t at = next_.fetch_add(1, std::memory_order_relaxed);
        return at < first_.size() ? first_[at] + shift_ : nullptr;
    }

    // From now on all of them again, but so many bytes further on. Nobody may be taking any.
    void shift(ptrdiff_t by) {
        shift_ += by;
        next_.store(0, std::memory_order_relaxed);
    }

    void drop() { next_.store(first_.size(), std::memory_order_relaxed); }

    const size_t bytes;

  private:
    const std::vector<const char *> first_;
    ptrdiff_t shift_ = 0;
    std::atomic<size_t> next_{0};
};

// What one thread fetches: `bytes` from `at` on, then as many pieces, if there are any, as it comes to.
class Ahead {
  public:
    Ahead(const char *at, size_t bytes, Pieces *pieces) : at_(at), end_(at + bytes), pieces_(pieces) {}

    // To be called once in 16 rounds of multiplications. Fewer lines leave some of the K and V unfetched.
    inline __attribute__((always_inline)) void fetch_some() {
        constexpr ptrdiff_t LINE = 64, SOME = 28 * LINE;
        const char *const until = end_ - at_ < SOME ? end_ : at_ + SOME;
        for (; at_ < until; at_ += LINE) __builtin_prefetch(at_, 0, 2);
        if (at_ < end_ || !pieces_) return;
        at_ = end_ = pieces_->take();
        if (at_)
            end_ += pieces_->bytes;
        else
            pieces_ = nullptr;
    }

  private:
    const char *at_, *end_;
    Pieces *pieces_;
};

}  // namespace pellucid
