// The PEP 523 hook: frames inside an extent are looked up like jitted calls.
#pragma once

#include "frame/code_state.h"

// While the object lives, the evaluator is installed and this thread looks up frames.
class Extent {
  public:
    explicit Extent(unsigned config);
    Extent(const Extent &) = delete;
    ~Extent();

  private:
    LookupScope scope;
    ConfigScope config;
};

// Calls a Python function. If the arguments belong to a pending call, only the new frame keeps
// references to them, so that an object dies when the program drops it, as in plain Python. They
// must not be read after the call.
PyObject *call_frame(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames);

// Whether our evaluator is called first; and put it on top again if another one has replaced it.
bool hook_is_on_top();
void hook_put_on_top();

int hook_init(PyObject *module);
