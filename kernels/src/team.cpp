#include "team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace pellucid {
namespace {

constexpr int SPINS = 4000;
constexpr unsigned MOST_MEMBERS = 1 << 12;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when `value` is no longer `old`: spins for some tens of microseconds, then sleeps.
template <class T> void wait_while(const std::atomic<T> &value, T old) {
    for (int spin = 0; spin < SPINS; ++spin) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
    }
    value.wait(old, std::memory_order_acquire);
}

struct Team {
    std::mutex one_caller_at_a_time;
    // Changes when there is work: how many rounds there were, and, in the low bits, how many members this one has. A
    // thread that is no member may be late to see it, when `members` and `job` are those of another round already.
    std::atomic<unsigned> round{0};
    std::atomic<int> working{0};  // members other than the caller that are not done
    int members = 1;
    int started = 1;
    Piece piece = nullptr;
    void *job = nullptr;

    void start() {
        for (; started < members; ++started)
            std::thread([this, member = started, seen = round.load()]() mutable {
                for (;;) {
                    wait_while(round, seen);
                    seen = round.load(std::memory_order_acquire);
                    const int in_round = (int)(seen % MOST_MEMBERS);
                    if (member >= in_round) continue;
                    piece(job, member, in_round);
                    if (working.fetch_sub(1, std::memory_order_acq_rel) == 1) working.notify_one();
                }
            }).detach();
    }

    void run(Piece a_piece, void *a_job) {
        std::lock_guard<std::mutex> guard(one_caller_at_a_time);
        start();
        const int in_round = members;
        piece = a_piece, job = a_job;
        working.store(in_round - 1, std::memory_order_relaxed);
        round.store((round.load(std::memory_order_relaxed) / MOST_MEMBERS + 1) * MOST_MEMBERS + (unsigned)in_round,
                    std::memory_order_release);
        round.notify_all();
        piece(job, 0, in_round);
        for (int left; (left = working.load(std::memory_order_acquire)) != 0;) wait_while(working, left);
    }
};

// Never destroyed: its threads outlive main. A forked child has none of them and makes a team of its own.
Team *team = new Team;

void renew() {
    Team *mine = new Team;
    mine->members = team->members;
    team = mine;
}

const int registered = pthread_atfork(nullptr, nullptr, renew);

}  // namespace

void run_team(Piece piece, void *job) {
    if (team->members == 1)
        piece(job, 0, 1);
    else
        team->run(piece, job);
}

int team_size() { return team->members; }

void set_team_size(int members) {
    std::lock_guard<std::mutex> guard(team->one_caller_at_a_time);
    team->members = std::clamp(members, 1, (int)MOST_MEMBERS - 1);
}

}  // namespace pellucid
