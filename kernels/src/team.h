// A team of threads that waits for work by spinning for a moment, then sleeping.
//
// A decoding step has hundreds of parallel pieces of a few microseconds each. A thread that sleeps between
// two of them wakes too late to be of use, and one that never sleeps takes the processor from everybody else.
// Nobody is waited for who has not come: on a busy machine a thread may get its turn when the work is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <type_traits>

namespace pellucid {

using Work = void (*)(void *job);

// The caller does `work`, and so do those members of the team who come before the caller is through; returns when all
// of them are. Whoever comes takes what is left, so `work` ends when nothing is.
void run_team(Work work, void *job);

int team_size();
void set_team_size(int members);

// The same with a callable.
template <class Job>
void together(Job &&job) {
    using Plain = std::remove_reference_t<Job>;
    run_team([](void *it) { (*static_cast<Plain *>(it))(); }, &job);
}

// `job(begin, end)` for ranges that make up 0 … units, each of at most `at_once`.
template <class Job>
void share_out(long units, long at_once, Job &&job) {
    std::atomic<long> next{0};
    together([&] {
        for (long begin; (begin = next.fetch_add(at_once, std::memory_order_relaxed)) < units;)
            job(begin, std::min(begin + at_once, units));
    });
}

// The same with `job(begin, end, next)`: the thread goes on at `next`, or is through if that is `units` or beyond.
template <class Job>
void share_out_ahead(long units, long at_once, Job &&job) {
    std::atomic<long> free{0};
    together([&] {
        const auto take = [&] { return free.fetch_add(at_once, std::memory_order_relaxed); };
        for (long begin = take(), next; begin < units; begin = next) {
            next = take();
            job(begin, std::min(begin + at_once, units), next);
        }
    });
}

constexpr long WORTH_A_TEAM = 1 << 14;  // numbers; fewer are done before a team would have begun

// `job(row)` for every row: by the caller alone if there is little to do.
template <class Job>
void each_row(int rows, long width, Job &&job) {
    const auto some = [&](long begin, long end) {
        for (long row = begin; row < end; ++row) job((int)row);
    };
    if (rows * width < WORTH_A_TEAM)
        some(0, rows);
    else
        share_out(rows, std::max(1L, WORTH_A_TEAM / 4 / width), some);
}

}  // namespace pellucid
