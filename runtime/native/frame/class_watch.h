// Detects that an object got another class or `__dict__`, or a tensor another body.
//
// There is no event for these, and without one, a word of each object would have to be read for
// each. But they are rare, and Python code can only do them through three C setters: `__class__` of
// object, `__dict__` of classes made by Python, and torch's `_swap_tensor_impl`. A function before
// each counts the calls. While none has run, words that only these setters write need no check. The
// garbage collector clears objects without setters, so the number of collected objects counts as
// well. If a setter cannot be wrapped (self-test at import), its words are read at each call. Used
// by the heap guards.
#pragma once

#include "frame/cpython.h"

// The counters so far. If they are equal at two times, nothing was reassigned in between.
struct Reassigned {
    uint64_t setters = 0, collected = 0;
    bool operator==(const Reassigned &) const = default;
};

// The setters whose calls are counted.
struct CountedSetters {
    bool classes = false, dicts = false, tensors = false;
};
extern CountedSetters counted_setters;

extern uint64_t setters_run;
extern int setters_running;  // running setters: their words may be written at any time
extern struct _gc_runtime_state *collector;

inline bool may_be_reassigning() { return setters_running > 0 || collector->collecting; }

inline Reassigned reassigned_so_far() {
    Reassigned now{setters_run, 0};
    for (const auto &generation : collector->generation_stats)
        now.collected += (uint64_t)generation.collected;
    return now;
}

// Disables garbage collections in a scope. References are borrowed in it, and a collection runs
// finalizers, which may drop the referents. CPython 3.11 may collect whenever an object is created,
// also in C; later versions collect only between two instructions.
class NoCollection {
  public:
#if PY312
    NoCollection() {}
#else
    NoCollection() : was(collector->enabled) { collector->enabled = 0; }
    ~NoCollection() { collector->enabled = was; }
#endif
    NoCollection(const NoCollection &) = delete;

#if !PY312
  private:
    int was;
#endif
};

// Whether only a counted setter writes the `__dict__` pointer of this class's instances.
bool dict_setter_is_counted(PyTypeObject *type);

// Adds count_swaps(function), which starts to count calls of torch's function that swaps the bodies
// of two tensors.
int reassigned_init(PyObject *module);
