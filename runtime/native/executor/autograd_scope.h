// State around ATen calls: autocast, grad mode and the warning handler, set for one run and then
// restored.
//
// steps.cpp uses it around the steps of a program, and `_native.warned_call` for the Python
// executor.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

// Disables autocast during a run, and grad mode if an input requires a gradient. Casts are nodes of
// the graph, and a graph runs here only if no gradient is needed.
class AmbientOff {
  public:
    void enter(bool an_input_requires_grad);
    void leave();

    // Whether grad mode has been disabled; grad mode again for a part of the run.
    bool was_grad() const { return was_grad_; }
    static void set_grad(bool on);

  private:
    bool was_cast_[2] = {}, was_grad_ = false;
};

// Converts torch's C++ warnings to Python warnings, like torch's own Python bindings: one of
// torch's handlers collects them, and they are issued at the end.
class Warnings {
  public:
    void enter();
    int leave();  // -1 if a warning became an error, which is set

  private:
    alignas(16) char handler_[256];  // torch::PyWarningHandler has 48 bytes
    bool active_ = false;
};

int ambient_init(PyObject *module);
