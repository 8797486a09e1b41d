// Tail calls: how a frame that broke goes on without growing the stack.
//
// Replacement code ends a break by returning what `_native.Tail(resume)(closure, *values)` made: a pending call.
// Whoever ran the first code of the frame (a jitted function, the hook) then runs the pending calls one after
// the other, so a break inside a loop costs no depth, and a traceback shows the frame once, as in plain Python.
#pragma once

#include "frame/objects.h"

// Runs pending calls until there is a result. Takes over the reference; null (with an exception) passes through.
PyObject *run_tails(PyObject *result);

int tail_init(PyObject *module);
