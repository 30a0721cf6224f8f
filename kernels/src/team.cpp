#include "team.h"

#include <pthread.h>

#include <mutex>
#include <new>
#include <system_error>
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

// The state of a round in one word, so that to join it and to close it exclude each other: how many members have
// joined, how many still may (none once it is closed), and the number of the round.
using Gate = unsigned;
constexpr Gate JOINED = 1, FREE = 1 << 8, ROUND = 1 << 16;
constexpr int MOST_MEMBERS = 255;

int joined(Gate gate) { return (int)(gate % FREE); }
bool is_open(Gate gate) { return gate % ROUND >= FREE; }

// Returns when `done(value)`: spins for some tens of microseconds, then sleeps until somebody says that it changed.
template <class T, class Done>
T wait_until(const std::atomic<T> &value, Done &&done) {
    T now = value.load(std::memory_order_acquire);
    for (int spin = 0; spin < SPINS && !done(now); ++spin) {
        pause();
        now = value.load(std::memory_order_acquire);
    }
    for (; !done(now); now = value.load(std::memory_order_acquire)) value.wait(now, std::memory_order_acquire);
    return now;
}

struct Team {
    std::mutex one_caller_at_a_time;
    std::atomic<Gate> gate{0};
    std::atomic<int> finished{0};  // of those who joined
    std::atomic<bool> failed{false};
    std::atomic<int> members{1};
    int started = 1;
    Work work = nullptr;
    void *job = nullptr;

    // Where there may be no more threads, the team is smaller.
    void start() {
        try {
            for (; started < members; ++started) std::thread([this, seen = gate.load()] { serve(seen); }).detach();
        } catch (const std::system_error &) {
        }
    }

    void do_work() {
        try {
            work(job);
        } catch (...) {
            failed = true;
        }
    }

    [[noreturn]] void serve(Gate seen) {
        for (;;) {
            Gate now = wait_until(gate, [&](Gate g) { return g / ROUND != seen / ROUND; });
            seen = now;
            while (is_open(now) && now / ROUND == seen / ROUND)
                if (gate.compare_exchange_weak(now, now + JOINED - FREE, std::memory_order_acq_rel)) {
                    do_work();
                    finished.fetch_add(1, std::memory_order_acq_rel);
                    finished.notify_one();
                    break;
                }
        }
    }

    void run(Work some_work, void *some_job) {
        std::lock_guard<std::mutex> guard(one_caller_at_a_time);
        start();
        work = some_work, job = some_job;
        finished.store(0, std::memory_order_relaxed);
        failed.store(false, std::memory_order_relaxed);
        const Gate round = gate.load(std::memory_order_relaxed) / ROUND + 1;
        gate.exchange(round * ROUND + (Gate)(members - 1) * FREE);  // ordered before the look at who sleeps
        gate.notify_all();
        do_work();
        Gate now = gate.load(std::memory_order_relaxed);
        while (!gate.compare_exchange_weak(now, now / ROUND * ROUND + now % FREE, std::memory_order_acq_rel)) {
        }
        wait_until(finished, [&](int count) { return count == joined(now); });
        if (failed) throw std::bad_alloc();  // nothing else can go wrong in the kernels
    }
};

// Never destroyed: its threads outlive main. A forked child has none of them and makes a team of its own.
Team *team = new Team;

void renew() {
    Team *mine = new Team;
    mine->members = team->members.load();
    team = mine;
}

const int registered = pthread_atfork(nullptr, nullptr, renew);

}  // namespace

void run_team(Work work, void *job) {
    if (team->members == 1)
        work(job);
    else
        team->run(work, job);
}

int team_size() { return team->members; }

void set_team_size(int members) {
    std::lock_guard<std::mutex> guard(team->one_caller_at_a_time);
    team->members = std::clamp(members, 1, MOST_MEMBERS);
}

}  // namespace pellucid
