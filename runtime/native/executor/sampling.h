// Run times, sampled: of programs and their steps, of whole calls, of guards, and of what lies between two compiled parts.
//
// What is timed has a Turn: one increment and one compare a call. The first call is never taken (it compiles, and caches are
// cold); the next few are, then ever fewer, at distances that no period of the program can follow. A sampled call looks at
// the clock once a step. What is kept is the latest values; who asks gets their median, which a pause does not move.
// Everything here is zero at birth and used under the GIL; what a thread is in the middle of is the thread's own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

inline uint64_t clock_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// What a look at the clock costs, in nanoseconds: it is part of each span between two looks.
uint64_t clock_cost();

// Seconds between two looks.
inline float seconds_between(uint64_t from, uint64_t to) {
    uint64_t span = to - from, cost = clock_cost();
    return span > cost ? (float)((double)(span - cost) * 1e-9) : 0.0f;
}

// Whether what is due is sampled: `benchmarks.events` switches it off, to say what samples cost.
extern bool sampling;

// Which calls are sampled.
struct Turn {
    uint64_t calls, next;
    uint32_t samples, state;

    bool due() { return calls++ == next + 1; }
    void plan();  // after a sample
};

constexpr uint32_t KEPT = 16;  // latest values

float median_of(const float *values, uint32_t n);

struct Ring {
    float values[KEPT];
    uint32_t n;

    void add(float value) { values[n++ % KEPT] = value; }
    float median() const { return median_of(values, std::min(n, KEPT)); }
};

// Of one program: the whole, and each step in its own ring.
struct ProgramClock {
    Turn turn{};
    Ring whole{};
    std::vector<float> steps;  // KEPT a step, from the first sample on

    // `marks`: when the steps began, and when the last one was over.
    void add(const std::vector<uint64_t> &marks, uint64_t began, uint64_t ended);
    float step(size_t at) const;
};

// Of one code state: whole calls, how much of each was inside of programs, and, of a resume function, the time since the
// compiled part before it. Calls that run as written have a turn of their own: what plain Python takes, without the look for
// an entry before it.
struct CallClock {
    Turn turn, plain_turn;
    Ring whole, inside, gap, plain;
};

// A sampled call under way. Its place is the thread's, not the stack's: nobody is left with a pointer to what is gone.
struct Watch {
    uint64_t last;    // when the last program ended; the beginning, where none has run
    uint64_t inside;  // nanoseconds in programs
    uint64_t gap;
    uint64_t broke;
    int depth;        // programs that run inside of one another
    bool open;        // since `broke` no program has begun
    bool spoilt;      // it compiled something, or was profiled
};

struct Watches {
    static constexpr int MOST = 4;
    Watch at[MOST];
    int n;

    Watch *top() { return n > 0 ? &at[n - 1] : nullptr; }
};
extern constinit thread_local Watches watches;

// One call of a function, timed if its turn has come.
class CallSample {
  public:
    CallSample() = default;
    explicit CallSample(CallClock &clock) { begin(clock); }
    CallSample(const CallSample &) = delete;
    ~CallSample() {
        if (clock_ != nullptr) leave(false);
    }
    void begin(CallClock &clock) {
        if (clock.turn.due()) enter(clock);
    }
    void begin_plain(CallClock &clock) {
        plain_ = true;
        if (clock.plain_turn.due()) enter(clock);
    }
    // The result once more; null is a call that raised and counts for nothing.
    template <typename Result>
    Result *done(Result *result) {
        if (clock_ != nullptr) leave(result != nullptr);
        return result;
    }

  private:
    CallClock *clock_ = nullptr;  // of a state that the caller holds
    uint64_t began_ = 0;
    int place_ = 0;
    bool plain_ = false;

    Turn &turn_of(CallClock &clock) { return plain_ ? clock.plain_turn : clock.turn; }
    void enter(CallClock &clock);
    void leave(bool count);
};

// What follows a break, inside of a sampled call.
class ResumeSample {
  public:
    explicit ResumeSample(CallClock &clock) {
        if (watches.n > 0) enter(clock);
    }
    ResumeSample(const ResumeSample &) = delete;
    ~ResumeSample() {
        if (clock_ != nullptr) leave();
    }

  private:
    CallClock *clock_ = nullptr;
    uint64_t began_ = 0;
    Watch before_{};
    int place_ = 0;

    void enter(CallClock &clock);
    void leave();
};

// A program runs inside of a sampled call, if there is one: between these two.
void watch_program_begins(uint64_t now);
void watch_program_ends(uint64_t began, uint64_t now);

// What is under way compiles, or is profiled: it is no call like others.
void watches_spoil();

struct _object;  // PyObject
int clocks_init(_object *module);
