#include "frame/trials.h"

#include "executor/sampling.h"
#include "frame/code_state.h"
#include "tensors/tensor.h"

#include <cmath>

namespace {

constexpr unsigned long long NEVER = ~0ull;
constexpr unsigned long long FIRST = 8;  // hits before the first trial: caches are warm
constexpr uint32_t ROUND = 4;            // samples of both kinds between two judgements
constexpr uint32_t EARLY = 4 * ROUND;    // samples of both kinds that come quickly
constexpr uint32_t MOST = 64;            // samples of both kinds before an open question rests
constexpr uint32_t MOST_LOST = 64;
constexpr unsigned long long REST = 100;  // hits between two questions, at least
constexpr double CLEARLY = 0.02;  // a difference of logarithms that counts
constexpr double SURELY = 3.0;    // in standard errors
// Times are known no better than to 2 %.
constexpr double FLOOR = 0.02 * 0.02;

// The trial that runs on this thread.
struct Running {
    Entry *entry;
    uint64_t began;
    bool plain, spoilt;
};
constinit thread_local Running running{};

PyObject *test_clock = nullptr;

uint64_t now() {
    if (test_clock == nullptr) return clock_now();
    Ref told(PyObject_CallNoArgs(test_clock));
    uint64_t found = told ? PyLong_AsUnsignedLongLong(told.get()) : 0;
    if (PyErr_Occurred()) PyErr_Clear();
    return found;
}

uint32_t random_below(Trials &trials, uint32_t bound) {
    trials.random = trials.random * 1664525u + 1013904223u;  // from Numerical Recipes
    return (trials.random >> 8) % bound;
}

// Below 0: compiled is faster; above: slower; 0: not known.
int verdict_of(const Trials &trials) {
    double difference = trials.compiled.mean() - trials.plain.mean();
    double error = std::sqrt(trials.compiled.uncertainty() + trials.plain.uncertainty());
    if (std::fabs(difference) < CLEARLY || std::fabs(difference) < SURELY * error) return 0;
    return difference > 0 ? 1 : -1;
}

// Whether programs take next to none of the time of a call. Then it can hardly be faster compiled:
// the rest is Python's work, and more of it than as written.
bool mostly_outside(const CodeState *state, const Entry *entry) {
    constexpr float SMALL = 1 / 16.0f;
    if (entry->kind == Kind::direct && !entry->target_is_program) return false;  // not sampled
    const CallClock &clock = state->clock;
    return clock.whole.n >= ROUND && clock.inside.median() < SMALL * clock.whole.median();
}

// Whether compiled calls were clearly slower, if perhaps by chance. While that is so, calls that
// run as written cost nothing.
bool seems_slower(const Entry *entry) {
    return !entry->slower && entry->trials->ratio > 1 + CLEARLY;
}

// Asks dispatch whether an entry may be given up, or taken up again. It reports it.
bool accepted(CodeState *state, Entry *entry, bool slower) {
    if (callbacks.judged == nullptr) return true;
    const Trials &trials = *entry->trials;
    LookupScope off(Lookup::off);
    Ref callback(Py_NewRef(callbacks.judged)),
        times(Py_BuildValue("OOOdd", (PyObject *)state, (PyObject *)entry,
                            slower ? Py_True : Py_False, trials.compiled.seconds(),
                            trials.plain.seconds()));
    Ref answer(times ? PyObject_Call(callback.get(), times.get(), nullptr) : nullptr);
    if (!answer) PyErr_Clear();
    return answer && answer.get() == Py_True;
}

// The time until the next question: so long that the plain calls of a round cost two percent,
// and then ever longer, but not so long that a change of the program goes unnoticed.
void rest(Entry *entry) {
    Trials &trials = *entry->trials;
    double lost = trials.ratio > 0 ? std::min(std::max(1 / trials.ratio, 1.0), 1e6) : 1.0;
    auto cost = (unsigned long long)(50.0 * ROUND * lost);
    entry->trial_at = entry->hits + std::max({REST, 4 * entry->hits, cost});
    trials.compiled = trials.plain = {};
    trials.lost = 0;
}

void judge(CodeState *state, Entry *entry) {
    Trials &trials = *entry->trials;
    int verdict = verdict_of(trials);
    trials.ratio = std::exp(trials.compiled.mean() - trials.plain.mean());
    bool early = trials.plain.n < EARLY || entry->slower || trials.ratio <= 1;
    if (verdict == 0 && !early && mostly_outside(state, entry)) verdict = 1;
    bool open = verdict == 0 && trials.plain.n < MOST;
    if (open) return;
    if (verdict == 0 && seems_slower(entry)) {
        trials.compiled = trials.plain = {};  // the first calls of a program may be unlike others
        return;
    }
    if (verdict != 0 && (verdict > 0) != (bool)entry->slower &&
        accepted(state, entry, verdict > 0))
        entry->slower = verdict > 0;
    rest(entry);
}

void plan(CodeState *state, Entry *entry) {
    Trials &trials = *entry->trials;
    uint32_t n = std::min(trials.compiled.n, trials.plain.n);
    uint32_t apart = n < EARLY || seems_slower(entry) ? 3 : 12;
    entry->trial_at = entry->hits + 1 + random_below(trials, apart);
    bool complete = trials.compiled.n == trials.plain.n && n > 0 && n % ROUND == 0;
    if (complete) judge(state, entry);
    if (trials.lost >= MOST_LOST) rest(entry);
}

PyObject *set_trial_clock(PyObject *, PyObject *clock) {
    Py_XSETREF(test_clock, clock == Py_None ? nullptr : Py_NewRef(clock));
    Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {
    {"set_trial_clock", set_trial_clock, METH_O,
     "set_trial_clock(function | None): for tests, the nanoseconds by which trials are timed"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void Evidence::add(double seconds) {
    double one = std::log(std::max(seconds, 1e-9));
    n++;
    sum += one;
    squares += one * one;
}

double Evidence::seconds() const { return std::exp(mean()); }

double Evidence::uncertainty() const {
    if (n < 2) return INFINITY;
    double spread = std::max(0.0, squares - sum * sum / n) / (n - 1);
    return std::max(spread, FLOOR) / n;
}

Sample trial_begins(Entry *entry) {
    if (entry->trials == nullptr) {
        entry->trial_at = NEVER;
        return Sample::none;
    }
    Trials &trials = *entry->trials;
    if (running.entry != nullptr || !sampling) {
        entry->trial_at = entry->hits + 1 + random_below(trials, 8);
        return Sample::none;
    }
    // A checkpoint saves as many tensors in its first run as in the second.
    if (saving_hooks() != nullptr) {
        entry->trial_at = NEVER;
        return Sample::none;
    }
    uint32_t compiled = trials.compiled.n, plain = trials.plain.n;
    bool as_written = compiled == plain ? random_below(trials, 2) == 1 : plain < compiled;
    running = {(Entry *)Py_NewRef((PyObject *)entry), now(), as_written, false};
    return as_written ? Sample::plain : Sample::compiled;
}

void trial_ends(CodeState *state, bool returned) {
    // The exception of a call that raised.
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    uint64_t ended = now();
    Running trial = std::exchange(running, {});
    Ref entry((PyObject *)trial.entry);
    Trials &trials = *trial.entry->trials;
    double seconds = (double)(ended - trial.began) * 1e-9;
    if (!returned || trial.spoilt) {
        trials.lost++;
    } else if (trial.plain) {
        trials.plain.add(seconds);
    } else {
        double guards = test_clock == nullptr ? trial.entry->checked.median() : 0.0;
        trials.compiled.add(seconds + guards);
    }
    plan(state, trial.entry);
    PyErr_Restore(type, value, traceback);
}

void trial_spoil() { running.spoilt = true; }

void trials_arm(Entry *entry) {
    if (entry->trials != nullptr) return;
    entry->trials = new Trials{};
    entry->trial_at = entry->hits + FIRST;
}

int trials_init(PyObject *module) { return PyModule_AddFunctions(module, module_methods); }
