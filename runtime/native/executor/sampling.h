// Sampled run times of programs and their steps, of whole calls, of guards, and of gaps between
// compiled regions.
//
// Each timed object has a Turn: one increment and one comparison per call. The first call is never
// sampled (it compiles, and caches are cold). The next few are, then fewer and fewer, at distances
// without a period. A sampled call reads the clock once per step. The latest values are kept, and
// reports use their median, which a pause does not affect. All of this is zero-initialised and used
// under the GIL; the state of running calls is thread-local.
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

// The cost of reading the clock, in nanoseconds. It is included in each span between two reads.
uint64_t clock_cost();

// Seconds between two clock reads.
inline float seconds_between(uint64_t from, uint64_t to) {
    uint64_t span = to - from, cost = clock_cost();
    return span > cost ? (float)((double)(span - cost) * 1e-9) : 0.0f;
}

// Whether samples are taken. `benchmarks.events` disables it to measure the cost of sampling.
extern bool sampling;

// Decides which calls are sampled.
struct Turn {
    uint64_t calls, next;
    uint32_t samples, state;

    bool due() { return calls++ == next + 1; }
    void plan();  // after a sample
};

constexpr uint32_t KEPT = 16;  // number of values that are kept

float median_of(const float *values, uint32_t n);

struct Ring {
    float values[KEPT];
    uint32_t n;

    void add(float value) { values[n++ % KEPT] = value; }
    float median() const { return median_of(values, std::min(n, KEPT)); }
};

// The clock of one program: whole runs, and each step in a ring of its own.
struct ProgramClock {
    Turn turn{};
    Ring whole{};
    std::vector<float> steps;  // KEPT values per step, from the first sample on

    // `marks`: the start of each step, and the end of the last one.
    void add(const std::vector<uint64_t> &marks, uint64_t began, uint64_t ended);
    float step(size_t at) const;
};

// The clock of one code state: whole calls, the time of each in programs, and, for a resume
// function, the time since the compiled region before it. Uncompiled calls have a turn of their
// own; their time excludes the preceding look-up of an entry.
struct CallClock {
    Turn turn, plain_turn;
    Ring whole, inside, gap, plain;
};

// A sampled call in progress. It is stored per thread, not on the stack, so that there are no
// dangling pointers.
struct Watch {
    uint64_t last;    // end of the last program; the start of the call if none has run
    uint64_t inside;  // nanoseconds in programs
    uint64_t gap;
    uint64_t broke;
    int depth;     // nested running programs
    bool open;     // no program has begun since `broke`
    bool spoilt;   // it compiled something, or was profiled
};

struct Watches {
    static constexpr int MOST = 4;
    Watch at[MOST];
    int n;

    Watch *top() { return n > 0 ? &at[n - 1] : nullptr; }
};
extern constinit thread_local Watches watches;

// One call of a function, timed if it is due.
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
    // Returns the result. A null result means that the call raised, and is not counted.
    template <typename Result>
    Result *done(Result *result) {
        if (clock_ != nullptr) leave(result != nullptr);
        return result;
    }

  private:
    CallClock *clock_ = nullptr;  // of a state that the caller keeps alive
    uint64_t began_ = 0;
    int place_ = 0;
    bool plain_ = false;

    Turn &turn_of(CallClock &clock) { return plain_ ? clock.plain_turn : clock.turn; }
    void enter(CallClock &clock);
    void leave(bool count);
};

// The continuation after a break, within a sampled call.
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

// Begin and end of a program within a sampled call, if there is one.
void watch_program_begins(uint64_t now);
void watch_program_ends(uint64_t began, uint64_t now);

// Mark running calls as untypical, because they compile or are profiled.
void watches_spoil();

struct _object;  // PyObject
int clocks_init(_object *module);
