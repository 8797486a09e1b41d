// Knowing that no object was given another class or another `__dict__`, and no tensor another body.
//
// No event tells of these, and there is a word of each object to be read for each. But they are rare, and all that
// Python code can do goes through three setters of C: `__class__` of object, `__dict__` of classes made by Python, and
// torch's `_swap_tensor_impl`. Those are counted, by a function before each. While none has run, words that only they
// write need no look. The garbage collector takes objects apart without them: what it has collected counts as well.
// Where a setter cannot be had (self-test at import), its words are read at each call. Used by heap.cpp.
#pragma once

#include "frame/cpython.h"

// What has happened so far. Equal at two times: nothing was reassigned between them.
struct Reassigned {
    uint64_t setters = 0, collected = 0;
    bool operator==(const Reassigned &) const = default;
};

// Which setters are counted.
struct CountedSetters {
    bool classes = false, dicts = false, tensors = false;
};
extern CountedSetters counted_setters;

extern uint64_t setters_run;
extern int setters_running;  // some have begun: their words may be written at any time
extern struct _gc_runtime_state *collector;

inline bool may_be_reassigning() { return setters_running > 0 || collector->collecting; }

inline Reassigned reassigned_so_far() {
    Reassigned now{setters_run, 0};
    for (const auto &generation : collector->generation_stats) now.collected += (uint64_t)generation.collected;
    return now;
}

// A stretch without collections: references are borrowed in it, and a collection runs finalizers, which may drop what
// they refer to. 3.11 collects whenever an object is made, in C as well; later versions between two instructions only.
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

// Whether the pointer to the `__dict__` of this class's instances is written by a counted setter alone.
bool dict_setter_is_counted(PyTypeObject *type);

// count_swaps(function): torch's function that gives two tensors each other's bodies is counted from now on.
int reassigned_init(PyObject *module);
