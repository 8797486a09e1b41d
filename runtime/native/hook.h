// The PEP 523 hook: frames inside an extent are looked up as jitted calls are.
#pragma once

#include "state.h"

// Keeps the evaluator installed, and lookups on for this thread, while the object lives.
class Extent {
  public:
    Extent();
    Extent(const Extent &) = delete;
    ~Extent();

  private:
    LookupScope scope;
};

int hook_init(PyObject *module);
