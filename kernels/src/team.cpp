#include "team.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace pellucid {
namespace {

constexpr int SPINS = 4000;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when `value` is no longer `old`: spins for some tens of microseconds, then sleeps.
void wait_while(const std::atomic<int> &value, int old) {
    for (int spin = 0; spin < SPINS; ++spin) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause();
    }
    value.wait(old, std::memory_order_acquire);
}

struct Team {
    std::mutex one_caller_at_a_time;
    std::atomic<int> round{0};    // changes when there is work
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
                    if (member >= members) continue;
                    piece(job, member, members);
                    if (working.fetch_sub(1, std::memory_order_acq_rel) == 1) working.notify_one();
                }
            }).detach();
    }

    void run(Piece a_piece, void *a_job) {
        std::lock_guard<std::mutex> guard(one_caller_at_a_time);
        start();
        piece = a_piece, job = a_job;
        working.store(members - 1, std::memory_order_relaxed);
        round.fetch_add(1, std::memory_order_release);
        round.notify_all();
        piece(job, 0, members);
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
    team->members = members < 1 ? 1 : members;
}

}  // namespace pellucid
