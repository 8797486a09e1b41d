// What surrounds ATen calls: autocast, grad mode and the handler of warnings, set for one run and put back after it.
//
// Used by steps.cpp around the steps of a program, and by `_native.warned_call` for the Python executor.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

// Autocast and grad mode are the graph's own matter: casts are nodes of it, and it is run only when no gradient
// is wanted. So autocast is off during a run, and grad mode too if an input requires a gradient.
class AmbientOff {
  public:
    void enter(bool an_input_requires_grad);
    void leave();

  private:
    bool was_cast_[2] = {}, was_grad_ = false;
};

// torch's C++ warnings become Python warnings as long as one of torch's handlers is in force, as its own Python
// bindings have it: collected meanwhile, issued at the end.
class Warnings {
  public:
    void enter();
    int leave(); // -1 if a warning was turned into an error, which is set

  private:
    alignas(16) char handler_[256]; // torch::PyWarningHandler has 48 bytes
    bool active_ = false;
};

int ambient_init(PyObject *module);
