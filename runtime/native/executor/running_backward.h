// What autograd's engine will run in the backward of this thread.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int running_backward_init(PyObject *module);
