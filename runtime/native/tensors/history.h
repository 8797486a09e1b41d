// What a tensor is to autograd: a leaf, a result of an operator, or a view of either.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

// Whether `runtime.guards.tensor_access.history` returns `expected` for a tensor. Never raises and
// never runs user code.
bool tensor_history_is(PyObject *tensor, PyObject *expected);

int history_init(PyObject *module);
