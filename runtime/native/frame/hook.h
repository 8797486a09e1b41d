// The PEP 523 hook: frames inside an extent are looked up as jitted calls are.
#pragma once

#include "frame/code_state.h"

// Keeps the evaluator installed, and lookups on for this thread, while the object lives.
class Extent {
  public:
    explicit Extent(unsigned config);
    Extent(const Extent &) = delete;
    ~Extent();

  private:
    LookupScope scope;
    ConfigScope config;
};

// Calls a Python function. Arguments that are a pending call's are held by the new frame alone: what the program
// drops then dies when it drops it, as in plain Python. They must not be read after the call.
PyObject *call_frame(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames);

// Whether our evaluator is the one that is asked first; put it there again, where it was and somebody has taken it away.
bool hook_is_on_top();
void hook_put_on_top();

int hook_init(PyObject *module);
