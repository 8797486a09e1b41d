#include "frame/cpython.h"

#include "executor/sampling.h"

#include <utility>

constinit thread_local Watches watches{};
bool sampling = true;

namespace {

constexpr uint32_t FIRST = 4;  // consecutive samples at the beginning
constexpr uint64_t RAREST = 256;  // approximate number of calls between two samples in the long run

uint64_t measured_cost() {
    uint64_t least = UINT64_MAX, before = clock_now();
    for (int i = 0; i < 64; i++) {
        uint64_t now = clock_now();
        least = std::min(least, now - before);
        before = now;
    }
    return least;
}

}  // namespace

uint64_t clock_cost() {
    static const uint64_t cost = measured_cost();
    return cost;
}

void Turn::plan() {
    uint64_t about = samples++ < FIRST ? 0 : std::min(calls / 4, RAREST);
    // From Numerical Recipes; any sequence without a short period is suitable.
    state = state * 1664525u + 1013904223u;
    next = calls - 1 + about / 2 + (about ? (state >> 8) % (about + 1) : 0);
}

float median_of(const float *values, uint32_t n) {
    if (n == 0) return 0.0f;
    float sorted[KEPT];
    std::copy(values, values + n, sorted);
    std::sort(sorted, sorted + n);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

void ProgramClock::add(const std::vector<uint64_t> &marks, uint64_t began, uint64_t ended) {
    size_t n = marks.size() - 1, place = whole.n % KEPT;
    steps.resize(n * KEPT);
    for (size_t i = 0; i < n; i++)
        steps[i * KEPT + place] = seconds_between(marks[i], marks[i + 1]);
    whole.add(seconds_between(began, ended));
}

float ProgramClock::step(size_t at) const {
    return steps.empty() ? 0.0f : median_of(&steps[at * KEPT], std::min(whole.n, KEPT));
}

void CallSample::enter(CallClock &clock) {
    if (watches.n >= Watches::MOST || !sampling) return turn_of(clock).plan();
    clock_ = &clock;
    place_ = watches.n++;
    began_ = clock_now();
    watches.at[place_] = Watch{began_, 0, 0, 0, 0, false, false};
}

void CallSample::leave(bool count) {
    uint64_t now = clock_now();
    const Watch watch = watches.at[place_];
    watches.n = std::min(watches.n, place_);
    if (Watch *up = watches.top(); up != nullptr && up->depth == 0) {
        up->inside += watch.inside;
        if (watch.inside) up->last = watch.last;
    }
    turn_of(*clock_).plan();
    if (plain_ && count && !watch.spoilt && !watch.inside) {
        clock_->plain.add(seconds_between(began_, now));
    } else if (!plain_ && count && !watch.spoilt) {
        clock_->whole.add(seconds_between(began_, now));
        clock_->inside.add((float)((double)watch.inside * 1e-9));
    }
    clock_ = nullptr;
}

void ResumeSample::enter(CallClock &clock) {
    clock_ = &clock;
    began_ = clock_now();
    place_ = watches.n - 1;
    Watch &watch = watches.at[place_];
    before_ = watch;
    watch.broke = watch.last;
    watch.open = true;
}

void ResumeSample::leave() {
    Watch &watch = watches.at[place_];
    if (watches.n > place_ && !watch.spoilt) {
        uint64_t gap = watch.open ? began_ - watch.broke : watch.gap;
        clock_->gap.add((float)((double)gap * 1e-9));
    }
    // No program ran here. The next break, after which a loop resumes when this function returns,
    // begins no earlier than this.
    if (watch.open) watch.last = std::max(watch.last, began_);
    // The program that ended this gap also ends the enclosing gap.
    if (before_.open && !watch.open) before_.gap = watch.broke + watch.gap - before_.broke;
    watch.open = before_.open && watch.open;
    watch.gap = before_.gap;
    watch.broke = before_.broke;
}

void watch_program_begins(uint64_t now) {
    Watch *watch = watches.top();
    if (watch == nullptr || watch->depth++ > 0 || !watch->open) return;
    watch->gap = now - watch->broke;
    watch->open = false;
}

void watch_program_ends(uint64_t began, uint64_t now) {
    Watch *watch = watches.top();
    if (watch == nullptr || watch->depth == 0 || --watch->depth > 0) return;
    watch->inside += now - began;
    watch->last = now;
}

void watches_spoil() {
    for (int i = 0; i < watches.n; i++) watches.at[i].spoilt = true;
}

static PyObject *set_sampling(PyObject *, PyObject *on) {
    int truth = PyObject_IsTrue(on);
    if (truth < 0) return nullptr;
    bool before = std::exchange(sampling, truth == 1);
    return PyBool_FromLong(before);
}

static PyMethodDef clocks_methods[] = {
    {"set_sampling", set_sampling, METH_O,
     "set_sampling(on) -> before: whether calls are timed when their turn comes."},
    {nullptr, nullptr, 0, nullptr}};

int clocks_init(PyObject *module) { return PyModule_AddFunctions(module, clocks_methods); }
