// Tail calls: continue a frame after a break without growing the stack.
//
// Replacement code ends at a break by returning the result of `_native.Tail(resume)(closure,
// *values)`, a pending call. The caller of the frame's first code (a jitted function, the hook)
// then runs the pending calls one after the other. So a break inside a loop adds no depth, and a
// traceback shows the frame once, as in plain Python.
#pragma once

#include "frame/objects.h"

// Runs pending calls until there is a result. Takes over the reference; null (with an exception) is
// passed through.
PyObject *run_tails(PyObject *result);

int tail_init(PyObject *module);
