// A team of threads that waits for work by spinning for a moment, then sleeping.
//
// A decoding step has hundreds of parallel pieces of a few microseconds each. A thread that sleeps between
// two of them wakes too late to be of use, and one that never sleeps takes the processor from everybody else.
#pragma once

#include <type_traits>

namespace pellucid {

using Piece = void (*)(void *job, int member, int members);

// Run `piece` once on each of `team_size()` members, the caller being member 0; returns when all are done.
void run_team(Piece piece, void *job);

int team_size();
void set_team_size(int members);

// The same with a callable `job(member, members)`.
template <class Job> void in_parallel(Job &&job) {
    using Plain = std::remove_reference_t<Job>;
    run_team([](void *it, int member, int members) { (*static_cast<Plain *>(it))(member, members); }, &job);
}

// The half-open range of `count` units that falls to `member`: as equal as can be.
struct Share {
    long begin, end;
    Share(long count, int member, int members) : begin(count * member / members), end(count * (member + 1) / members) {}
};

constexpr long WORTH_A_TEAM = 1 << 14;  // numbers; fewer are done before a team would have begun

// `job(row)` for every row: by the caller alone if there is little to do.
template <class Job> void each_row(int rows, long width, Job &&job) {
    if (rows * width < WORTH_A_TEAM) {
        for (int row = 0; row < rows; ++row) job(row);
        return;
    }
    in_parallel([&](int member, int members) {
        const Share mine(rows, member, members);
        for (long row = mine.begin; row < mine.end; ++row) job((int)row);
    });
}

}  // namespace pellucid
