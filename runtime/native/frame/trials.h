// Trials: what calls of an entry take compiled, and what they take in plain Python.
//
// An entry that dispatch has armed has some of its calls timed, and a few of them run as written: a
// plain call is always right. The logarithms of both times are compared, so that one interrupted
// call decides nothing. If compiled calls are slower beyond doubt, the entry is given up: its calls
// run as written. Later trials compare again. A hit that is not due costs one comparison.
#pragma once

#include "frame/cpython.h"

#include <cstdint>

struct Entry;
struct CodeState;

// Logarithms of times.
struct Evidence {
    uint32_t n;
    double sum, squares;

    void add(double seconds);
    double mean() const { return n ? sum / n : 0.0; }
    double seconds() const;
    // The square of the standard error of the mean.
    double uncertainty() const;
};

// The trials of one entry. Zero-initialised.
struct Trials {
    Evidence compiled, plain;
    double ratio;    // of compiled calls to calls as written, by the latest judgement; 0: unknown
    uint32_t lost;   // samples that could not be used
    uint32_t random;
};

enum class Sample { none, compiled, plain };

// From now on, calls of the entry are tried.
void trials_arm(Entry *entry);

// Decides about a call of an entry whose turn has come, and starts its clock unless it returns
// none. The caller passes the outcome of that call to `trial_ends`.
Sample trial_begins(Entry *entry);
void trial_ends(CodeState *state, bool returned);

// The running trial of this thread compiles something, and says nothing.
void trial_spoil();

int trials_init(PyObject *module);
